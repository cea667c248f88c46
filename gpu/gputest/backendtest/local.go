package backendtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

var localTests = []test{
	{name: "ZeroInAndOut", run: testLocalZero, needs: []string{needsLocal}},
	{name: "Bounded", run: testLocalBounded, needs: []string{needsLocal}},
	{name: "LostWithItsGroup", run: testLocalLost, needs: []string{needsLocal, needsContexts}},
	{name: "LostWithAReset", run: testLocalReset, needs: []string{needsLocal}},
}

// local is local memory of a context, until the test's cleanups.
func (d *device) local(c *backend.Context, bytes uint64) (ddf.DMABuffer, backend.Span) {
	d.t.Helper()
	b, err := d.Backend.(backend.LocalMemory).Local(c).Alloc(d.t.Context(), bytes)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { require.NoError(d.t, b.Free()) })
	require.Negative(d.t, b.FD(), "no host file is behind it")
	require.GreaterOrEqual(d.t, b.Size(), bytes)
	return b, backend.Span{Host: b.Bytes()[:bytes:bytes], IOVA: uint64(b.IOVA())}
}

// move is a copy of a context that ends ok.
func (d *device) move(c *backend.Context, dst, src backend.Span) {
	d.t.Helper()
	job := &backend.Job{ID: d.id(), Op: backend.OpCopy, Spans: []backend.Span{dst, src}, Context: c}
	require.Equal(d.t, outcome.Success, d.run(job))
}

// content is what a span of local memory holds, as the device sees it.
func (d *device) content(c *backend.Context, s backend.Span) []byte {
	d.t.Helper()
	out := d.span(make([]byte, len(s.Host)))
	d.move(c, out, s)
	return out.Host
}

// Memory is zero when it is handed out, after a scrub, and when it is handed out again.
func testLocalZero(t *testing.T, d *device) {
	c := &backend.Context{Group: 1}
	const n = 2 * ddf.PageBytes
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(i*7 + 1)
	}

	b, s := d.local(c, n)
	sameBytes(t, make([]byte, n), d.content(c, s))
	d.move(c, s, d.span(want))
	sameBytes(t, want, d.content(c, s))

	require.NoError(t, b.Scrub(ddf.PageBytes, ddf.PageBytes))
	clear(want[ddf.PageBytes:])
	sameBytes(t, want, d.content(c, s))
	require.Error(t, b.Scrub(ddf.PageBytes, n))
	require.Error(t, b.Scrub(1, ddf.PageBytes))

	require.NoError(t, b.Free())
	require.NoError(t, b.Free(), "once more")
	next := &backend.Context{Group: 2} // which alone has it
	for range 4 {
		_, s = d.local(next, n)
		sameBytes(t, make([]byte, n), d.content(next, s))
	}
}

// A pool never gives more than there is, and what is freed is there again.
func testLocalBounded(t *testing.T, d *device) {
	c := &backend.Context{Group: 1}
	pool := d.Backend.(backend.LocalMemory).Local(c)
	limit := d.Info().LocalBytes
	require.Equal(t, limit, pool.Usage().LimitBytes)
	_, err := pool.Alloc(t.Context(), limit+1)
	require.ErrorIs(t, err, gpuerr.Quota)
	_, err = pool.Alloc(t.Context(), 0)
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = pool.Alloc(t.Context(), 1<<64-1)
	require.Error(t, err)

	b, first := d.local(c, ddf.PageBytes)
	_, second := d.local(&backend.Context{Group: 2}, ddf.PageBytes)
	require.NotEqual(t, first.IOVA, second.IOVA)
	used := pool.Usage().UsedBytes
	_, err = pool.Alloc(t.Context(), limit-used+ddf.PageBytes)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, limit-used, gpuerr.From(err).Available)
	require.NoError(t, b.Free())
	require.Less(t, pool.Usage().UsedBytes, used)
}

// A reset of a context tells the group that lost memory by it. No other group did.
func testLocalLost(t *testing.T, d *device) {
	guilty, other := &backend.Context{Group: 1}, &backend.Context{Group: 2}
	d.resetContext(guilty)
	require.Empty(t, d.sink.lostGroups(), "it had none")

	_, s := d.local(guilty, 64)
	_, o := d.local(other, 64)
	d.move(guilty, s, d.span(fillReference(1, 64)))
	d.move(other, o, d.span(fillReference(2, 64)))
	d.resetContext(guilty)
	for _, group := range d.sink.lostGroups() {
		require.EqualValues(t, 1, group)
	}
	sameBytes(t, fillReference(2, 64), d.content(other, o))
}

// A reset of the device keeps local memory, or says that it is lost.
func testLocalReset(t *testing.T, d *device) {
	c := &backend.Context{Group: 3}
	_, s := d.local(c, 64)
	d.move(c, s, d.span(fillReference(2, 64)))
	d.reset()
	if lost := d.sink.lostGroups(); len(lost) > 0 {
		require.Equal(t, []uint32{3}, lost)
		return
	}
	sameBytes(t, fillReference(2, 64), d.content(c, s))
}
