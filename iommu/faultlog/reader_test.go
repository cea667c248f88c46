package faultlog

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// fakeLog returns its steps, one record or error a read.
type fakeLog struct{ steps []any }

func (l *fakeLog) read(b []byte) (int, error) {
	if len(l.steps) == 0 {
		return 0, unix.EAGAIN
	}
	step := l.steps[0]
	l.steps = l.steps[1:]
	if err, ok := step.(error); ok {
		return 0, err
	}
	return copy(b, step.(string)), nil
}

func (l *fakeLog) wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (l *fakeLog) Close() error { return nil }

func TestSync(t *testing.T) {
	const dmar = "DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0x900000 [fault reason 0x05] PTE Write access is not set\n"
	with := func(micros, lost uint64) Fault {
		return Fault{Address: "0000:01:00.0", AnySegment: true, IOVA: 0x900000, Write: true, Reason: "PTE Write access is not set", Micros: micros, Lost: lost, Overrun: lost > 0}
	}
	rec := func(prio, seq int, text string) string {
		return fmt.Sprintf("%d,%d,%d,-;%s", prio, seq, seq*1000, text)
	}
	log := &fakeLog{steps: []any{
		unix.EPIPE, // overrun before the first record
		rec(3, 101, dmar),
		rec(6, 102, "something else\n"),
		rec(11, 103, dmar), // forged by a process
		unix.EINTR,
		rec(6, 104, dmar), // of any level
		"garbage",
		unix.EPIPE, // overrun
		rec(3, 110, dmar),
		rec(4, 111, "dmar_fault: 34 callbacks suppressed\n"),
		rec(3, 112, dmar),
		rec(3, 115, "another line after an overrun\n"),
	}}
	var got []Fault
	r := newReader(log, func(f Fault) { got = append(got, f) })
	require.NoError(t, r.Sync())
	require.Equal(t, []Fault{with(101000, 1), with(104000, 0), with(110000, 5), {Lost: 12}, with(112000, 0), {Lost: 2, Overrun: true}}, got)

	log.steps = []any{rec(3, 116, dmar)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.Run(ctx), context.DeadlineExceeded)
	require.Equal(t, with(116000, 0), got[len(got)-1])

	log.steps = []any{unix.EIO}
	require.ErrorIs(t, r.Run(t.Context()), unix.EIO)
}

func TestOpenFails(t *testing.T) {
	_, err := Open(func(Fault) {}, Options{Path: "/nonexistent"})
	require.ErrorIs(t, err, gpuerr.IO)
	_, err = Open(func(Fault) {}, Options{Path: os.DevNull})
	require.ErrorIs(t, err, gpuerr.IO, "a file that cannot be waited for")
}

// TestGuestLog: a process's lines in the real log are read and not believed, and a waiting
// Run ends with its context and with Close.
func TestGuestLog(t *testing.T) {
	faults := 0
	r, err := Open(func(Fault) { faults++ }, Options{})
	if err != nil {
		t.Skipf("SKIPPED, the kernel's log cannot be read here: %v", err)
	}
	defer r.Close()
	n, err := r.log.read(make([]byte, recordBytes))
	require.ErrorIs(t, err, unix.EAGAIN, "%d bytes: it starts at the end", n)

	out, err := os.OpenFile(Path, os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("SKIPPED, the kernel's log cannot be written here: %v", err)
	}
	defer out.Close()
	ended := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- r.Run(ctx) }()
	for _, l := range lines[:2] {
		for _, prio := range []string{"", "<3>", "<0>", "<11>"} { // facility 0 becomes 1 in the kernel
			_, err := out.WriteString(prio + l.text + "\n")
			require.NoError(t, err)
		}
	}
	require.NoError(t, r.Sync(), "while Run waits")
	r.mu.Lock()
	require.True(t, r.started, "the records were read")
	r.mu.Unlock()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, faults)

	go func() { ended <- r.Run(context.Background()) }()
	require.NoError(t, r.Close())
	require.ErrorIs(t, <-ended, gpuerr.Closed)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Sync(), gpuerr.Closed)
}

func take(r *Reader, b []byte) (Fault, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeLocked(b)
}
