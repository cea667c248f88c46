package manager

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/sandbox"
)

func TestForwardLines(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	in := "first\n\nsecond " + strings.Repeat("x", 3*pieceBytes) + " its end\nth\xffird\nno newline"
	last := forwardLines(log, strings.NewReader(in))
	require.Equal(t, "no newline", last)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4, "an empty line is left out, a long one cut")
	require.Contains(t, lines[0], "line=first")
	require.Less(t, len(lines[1]), maxLineBytes+200)
	require.NotContains(t, out.String(), "its end")
	require.Contains(t, lines[2], "th\\xffird")
}

// TestForwardFlood: of a child's flood some lines are logged and the rest counted, and the
// child waits on its pipe. Its last line is found.
func TestForwardFlood(t *testing.T) {
	const count = 500
	for name, c := range map[string]struct {
		piece string
		lines int // non-empty ones before the last
	}{
		"lines":          {strings.Repeat("flood\n", pieceBytes/6), count * (pieceBytes / 6)},
		"empty lines":    {strings.Repeat("\n", pieceBytes), 0},
		"no end of line": {strings.Repeat("x", pieceBytes), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				log := slog.New(slog.NewTextHandler(&out, nil))
				r, w := io.Pipe()
				last := make(chan string)
				go func() { last <- forwardLines(log, r) }()
				began := time.Now()
				for range count {
					_, err := io.WriteString(w, c.piece)
					require.NoError(t, err)
				}
				took := time.Since(began)
				_, err := io.WriteString(w, "\npanic: last words\n")
				require.NoError(t, err)
				require.NoError(t, w.Close())
				require.Equal(t, "panic: last words", <-last)

				rate := float64(count*pieceBytes) / took.Seconds()
				require.Less(t, rate, float64(2<<20), "bytes a second; it took %v", took)
				said := strings.Count(out.String(), "msg=said")
				require.LessOrEqual(t, said, lineBurst+int(took/lineInterval)+2)
				told := regexp.MustCompile(`linesLeftOut=(\d+)`).FindAllStringSubmatch(out.String(), -1)
				require.LessOrEqual(t, len(told), int(took/leftOutEvery)+3)
				sum := said
				for _, m := range told {
					n, err := strconv.Atoi(m[1])
					require.NoError(t, err)
					sum += n
				}
				require.Equal(t, c.lines+1, sum, "each line is logged or counted")
			})
		})
	}
}

// A child that writes no faster than the limit is not slowed down.
func TestForwardAtEase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		began := time.Now()
		forwardLines(slog.New(slog.NewTextHandler(&out, nil)), strings.NewReader(strings.Repeat("line\n", lineBurst-1)))
		require.Zero(t, time.Since(began))
		require.Equal(t, lineBurst-1, strings.Count(out.String(), "line=line"))
		require.NotContains(t, out.String(), "linesLeftOut")
	})
}

func TestChild(t *testing.T) {
	jailer, err := sandbox.New(sandbox.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, jailer.Close()) }()
	s := newSpawner(jailer)
	defer s.Close()
	how := confinement{name: "test", profile: sandbox.Driver}
	log := slog.New(slog.DiscardHandler)
	start := func(script string, files ...*os.File) *child {
		c, err := s.start(log, "test", how, "/bin/sh", []string{"-c", script}, files...)
		require.NoError(t, err)
		return c
	}

	c := start("echo last words >&2; exit 4")
	<-c.exited
	require.EqualError(t, c.err, "exit status 4: last words")

	c = start("exit 0")
	<-c.exited
	require.EqualError(t, c.err, "exited by itself")

	c = start("sleep 1000")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.endWithin(ctx)
	require.EqualError(t, c.err, "signal: killed")
	c.kill() // no effect on a dead process

	// A grandchild that holds the pipe does not delay the manager.
	began := time.Now()
	c = start("sleep 40 & echo gone >&2; exit 1")
	<-c.exited
	require.Less(t, time.Since(began), 30*time.Second)

	_, err = s.start(log, "test", how, "/does/not/exist", nil)
	require.ErrorContains(t, err, "start test")
}
