package manager

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"time"

	"capgpu/internal/sanitize"
)

// What of a child's output goes to the log, which has a pace of its own (pacedlog.go): so
// many lines in a row, and then one in each interval. A child that says more is read slowly, so that it waits for us on its
// full pipe, and not we for it: it costs this process next to nothing.
const (
	lineBurst    = 200
	lineInterval = 20 * time.Millisecond
	leftOutEvery = time.Second // how often is told how many lines were left out
)

const (
	maxLineBytes = 2048     // of a line that is logged
	pieceBytes   = 16 << 10 // a longer line is several, of which only the first is logged
)

// pacedReader waits before it reads more than the pace allows to log.
type pacedReader struct {
	io.Reader
	limiter *rateLimiter
}

func (r pacedReader) Read(b []byte) (int, error) {
	time.Sleep(r.limiter.wait(time.Now()))
	return r.Reader.Read(b)
}

// forwardLines logs the lines of r, each cut to maxLineBytes, as many as the pace
// allows. It reads to the end whatever comes, and returns the last line, logged or
// not, made plain.
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
	cut := false // inside a line of which the start is dealt with already
	for {
		line, err := b.ReadSlice('\n')
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		now := time.Now()
		_, allowed := p.allow(now) // empty lines and pieces are read at the same pace
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
			told = time.Time{} // what is left is told now
			tell(now)
			return last
		}
		tell(now)
	}
}
