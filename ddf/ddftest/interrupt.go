package ddftest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

var interruptTests = []test{
	{"WaitEndsWithItsContext", testWaitContext},
	{"MaskUnmaskAck", testMaskCalls},
	{"RaisesMerge", testMerge},
	{"WaiterWakes", testWakes},
	{"MaskHoldsBackAndKeeps", testMask},
	{"VectorsAreApart", testVectorsApart},
	{"DeadlineLosesNothing", testDeadline},
	{"ManyAreNoStorm", testMany},
	{"StormIsMasked", testStorm},
}

// moment is how long a test watches that nothing happens. A device too slow for
// it makes the test pass wrongly, never fail wrongly.
const moment = 20 * time.Millisecond

func vector(t *testing.T, h Harness, i int) ddf.Interrupt {
	t.Helper()
	hook(t, "vector", len(h.Grants.Interrupts) > i)
	return h.Grants.Interrupts[i]
}

// silent requires that no interrupt is delivered.
func silent(t *testing.T, v ddf.Interrupt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), moment)
	defer cancel()
	n, err := v.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "got %d interrupts", n)
}

// take requires interrupts and acknowledges them.
func take(t *testing.T, v ddf.Interrupt) uint64 {
	t.Helper()
	n, err := v.Wait(within(t))
	require.NoError(t, err)
	require.NotZero(t, n)
	require.NoError(t, v.Ack())
	return n
}

func testWaitContext(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(moment, cancel)
	_, err := v.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func testMaskCalls(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	for range 2 {
		require.NoError(t, v.Mask())
		require.NoError(t, v.Mask(), "masking twice is masking once")
		require.NoError(t, v.Unmask())
		require.NoError(t, v.Ack(), "there is nothing to acknowledge, which is no error")
	}
}

// Interrupts without a waiter merge: into a count, or on a real bus into fewer.
func testMerge(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	hook(t, "Raise", h.Raise != nil)
	for range 5 {
		h.Raise(0)
	}

	total := take(t, v)
	for total < 5 {
		ctx, cancel := context.WithTimeout(t.Context(), moment)
		n, err := v.Wait(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		require.NoError(t, v.Ack())
		total += n
	}

	require.LessOrEqual(t, total, uint64(5))
	if h.RaiseMany != nil { // this one counts
		require.EqualValues(t, 5, total)
	}

	silent(t, v)
}

func testWakes(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	hook(t, "Raise", h.Raise != nil)
	got := make(chan uint64, 1)
	ctx := within(t)
	go func() {
		defer close(got)
		if n, err := v.Wait(ctx); err == nil {
			got <- n
		}
	}()
	h.Raise(0)
	require.EqualValues(t, 1, <-got)
	require.NoError(t, v.Ack())
	silent(t, v)
}

func testMask(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	hook(t, "Raise", h.Raise != nil)
	require.NoError(t, v.Mask())
	h.Raise(0)
	h.Raise(0)
	silent(t, v)
	require.NoError(t, v.Unmask())
	require.NotZero(t, take(t, v), "an interrupt raised under the mask is delivered after it")
	silent(t, v)
	h.Raise(0)
	require.EqualValues(t, 1, take(t, v))
}

func testVectorsApart(t *testing.T, h Harness) {
	first, second := vector(t, h, 0), vector(t, h, 1)
	hook(t, "Raise", h.Raise != nil)
	h.Raise(1)
	require.EqualValues(t, 1, take(t, second))
	silent(t, first)
}

// A wait that ends early takes nothing with it.
func testDeadline(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	hook(t, "Raise", h.Raise != nil)
	for range 3 {
		silent(t, v)
	}

	h.Raise(0)
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	total := uint64(0)
	if n, err := v.Wait(over); err == nil { // either is right, but it must not be lost
		require.NoError(t, v.Ack())
		total = n
	}

	if total == 0 {
		total = take(t, v)
	}

	require.EqualValues(t, 1, total)
	silent(t, v)
}

// busy is how many interrupts a device that is well sends in a second.
const busy = 100_000

func testMany(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	hook(t, "RaiseMany", h.RaiseMany != nil)
	for range 3 {
		h.RaiseMany(0, busy)
		require.EqualValues(t, busy, take(t, v))
	}
	silent(t, v)
}

func testStorm(t *testing.T, h Harness) {
	v := vector(t, h, 0)
	hook(t, "RaiseMany", h.RaiseMany != nil)
	h.RaiseMany(0, ddf.StormLimit+1)
	for range 2 { // and it stays so
		_, err := v.Wait(within(t))
		require.ErrorIs(t, err, ddf.ErrStorm)
		require.ErrorIs(t, err, gpuerr.Busy)
		h.Raise(0) // the vector is masked: no waiter is woken
	}

	require.NoError(t, v.Unmask())
	total := uint64(0)
	for total < ddf.StormLimit+3 { // all interrupts are counted
		total += take(t, v)
	}

	require.EqualValues(t, ddf.StormLimit+3, total)
	h.Raise(0)
	require.EqualValues(t, 1, take(t, v), "it works again")
	silent(t, v)
}

var revokeTests = []test{
	{"EverythingAnswersRevoked", testRevoked},
	{"WaitersWake", testRevokeWakes},
}

func testRevoked(t *testing.T, h Harness) {
	hook(t, "Revoke", h.Revoke != nil)
	g := h.Grants
	b := alloc(t, h, ddf.PageBytes)
	host := b.Bytes()
	host[0] = 1
	h.Revoke()
	_, err := g.DMA.Alloc(within(t), ddf.PageBytes)
	require.ErrorIs(t, err, gpuerr.Revoked)
	require.ErrorIs(t, b.Scrub(0, ddf.PageBytes), gpuerr.Revoked)
	host[1] = 2 // a late access of the driver is harmless until it frees
	for bar, w := range g.Mmio {
		_, err := w.Read32(0)
		require.ErrorIs(t, err, gpuerr.Revoked, "BAR %d", bar)
		require.ErrorIs(t, w.Write32(0, 1), gpuerr.Revoked)
		require.ErrorIs(t, w.Ring(0, 1), gpuerr.Revoked)
		require.NoError(t, w.Close())
	}

	for _, v := range g.Interrupts {
		_, err := v.Wait(within(t))
		require.ErrorIs(t, err, gpuerr.Revoked)
		require.ErrorIs(t, v.Mask(), gpuerr.Revoked)
		require.ErrorIs(t, v.Unmask(), gpuerr.Revoked)
		require.ErrorIs(t, v.Ack(), gpuerr.Revoked)
	}

	require.ErrorIs(t, g.Audit.Append("late", ""), gpuerr.Revoked)
	_, err = g.Audit.Snapshot(0, 1)
	require.ErrorIs(t, err, gpuerr.Revoked)
	_, err = g.Audit.Verify()
	require.ErrorIs(t, err, gpuerr.Revoked)
	if err := b.Free(); err != nil { // the manager may be gone
		require.ErrorIs(t, err, gpuerr.Revoked)
	}

	require.Empty(t, b.Bytes(), "Free gives the mapping up, revoked or not")
}

func testRevokeWakes(t *testing.T, h Harness) {
	hook(t, "Revoke", h.Revoke != nil)
	v := vector(t, h, 0)
	ended := make(chan error, 1)
	ctx := within(t)
	go func() {
		_, err := v.Wait(ctx)
		ended <- err
	}()
	h.Revoke()
	require.ErrorIs(t, <-ended, gpuerr.Revoked)
}
