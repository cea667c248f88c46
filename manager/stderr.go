package manager

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"time"

	"capgpu/internal/sanitize"
)

// A child's output goes to the log at a limited rate, besides that of the log itself
// (pacedlog.go): a burst of lines, and then one per interval. The manager reads no faster
// than that. A child that writes more blocks on its full pipe and costs the manager next to
// nothing.
const (
	lineBurst    = 200
	lineInterval = 20 * time.Millisecond
	leftOutEvery = time.Second // how often the number of suppressed lines is logged
)

const (
	maxLineBytes = 2048     // of a logged line
	pieceBytes   = 16 << 10 // a longer line is split, and only its first piece is logged
)

// pacedReader delays each read until its limiter allows a line.
type pacedReader struct {
	io.Reader
	limiter *rateLimiter
}

func (r pacedReader) Read(b []byte) (int, error) {
	time.Sleep(r.limiter.wait(time.Now()))
	return r.Reader.Read(b)
}

// forwardLines logs the lines of r, each cut to maxLineBytes, as many as the limiter allows.
// It reads to the end, and returns the last line, sanitized, whether it was logged or not.
func forwardLines(log *slog.Logger, r io.Reader) (last string) {
	p := newRateLimiter(lineBurst, lineInterval, time.Now())
	b := bufio.NewReaderSize(pacedReader{r, p}, pieceBytes)
	var leftOut uint64
	var told time.Time
	tell := func(now time.Time) {
		if leftOut > 0 && now.Sub(told) >= leftOutEvery {
			log.Warn("said too much", "linesLeftOut", leftOut)
			leftOut, told = 0, now
		}
	}
	cut := false // inside a line of which the first piece was handled
	for {
		line, err := b.ReadSlice('\n')
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		now := time.Now()
		_, allowed := p.allow(now) // empty lines and pieces count, too
		if len(line) > 0 && !cut {
			last = sanitize.Text(string(line[:min(len(line), maxLineBytes)]))
			if allowed {
				log.Info("said", "line", last)
			} else {
				leftOut++
			}
		}
		cut = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !cut {
			told = time.Time{} // log what is left now
			tell(now)
			return last
		}
		tell(now)
	}
}
