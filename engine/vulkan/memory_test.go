package vulkan

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
)

// opened is a device of the tests in this package.
func opened(t testing.TB) *Device {
	t.Helper()
	if !Ready() {
		t.Skip("SKIPPED: no Mesa lavapipe of 25 or newer is here; \"make oracle\" unpacks one")
	}
	d, err := open(Options{Local: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// New local memory is zero also where memory was given back as it was.
func TestNewMemoryIsZero(t *testing.T) {
	d := opened(t)
	const size = 1 << 20
	for range 3 {
		b, err := d.newBlock(size, watchedMemory)
		require.NoError(t, err)
		copy(b.mapped, bytes.Repeat([]byte{0xEE}, size))
		d.freeBlock(&b)
	}

	m, err := d.alloc(size)
	require.NoError(t, err)
	b, err := d.newBlock(size, watchedMemory)
	require.NoError(t, err)
	seen := &memory{d: d, block: b}
	l, err := d.record([]host.Entry{{
		Entry:  &wire.Entry{Op: wire.OpCopy, Spans: []wire.Span{{Length: size}, {Length: size}}},
		Memory: []host.Memory{seen, m},
	}})
	require.NoError(t, err)
	require.NoError(t, d.Submit(l))
	r, err := d.Wait()
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Begun)
	require.True(t, bytes.Equal(make([]byte, size), b.mapped))

	for _, f := range []interface{ Free() error }{l, m, seen} {
		require.NoError(t, f.Free())
	}
}

// A list needs no more objects of the device when others were freed before.
func TestObjectsAreUsedAgain(t *testing.T) {
	d := opened(t)
	m, err := d.alloc(4096)
	require.NoError(t, err)
	entries := make([]host.Entry, 100)
	for i := range entries {
		entries[i] = host.Entry{Entry: &wire.Entry{Op: wire.OpFill, Spans: []wire.Span{{Length: 4096}}}, Memory: []host.Memory{m}}
	}
	kept := 0
	for i := range 50 {
		l, err := d.record(entries)
		require.NoError(t, err)
		require.NoError(t, l.Free())
		if i == 0 {
			kept = len(d.undo)
		}
	}
	require.Len(t, d.undo, kept)
	require.Equal(t, maxSlots-1, d.slots.left)
	require.NoError(t, m.Free())
}
