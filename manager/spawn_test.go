package manager

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForwardLines(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	in := "first\n\nsecond " + strings.Repeat("x", 3*maxLineBytes) + " its end\nth\xffird\nno newline"
	last := forwardLines(log, strings.NewReader(in))
	require.Equal(t, "no newline", last)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 4, "an empty line is left out, a long one cut")
	require.Contains(t, lines[0], "line=first")
	require.Less(t, len(lines[1]), maxLineBytes+200)
	require.NotContains(t, out.String(), "its end")
	require.Contains(t, lines[2], "th\\xffird")
}

func TestChild(t *testing.T) {
	s := newSpawner()
	defer s.Close()
	log := slog.New(slog.DiscardHandler)
	start := func(script string, files ...*os.File) *child {
		c, err := s.start(log, "test", "/bin/sh", []string{"-c", script}, files...)
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
	c.kill() // of a dead process: nothing

	// A grandchild that holds the pipe does not hold us up.
	began := time.Now()
	c = start("sleep 5 & echo gone >&2; exit 1")
	<-c.exited
	require.Less(t, time.Since(began), 4*time.Second)

	_, err := s.start(log, "test", "/does/not/exist", nil)
	require.ErrorContains(t, err, "start test")
}
