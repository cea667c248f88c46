package vfio_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/vfio"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/iommu"
)

// mapped is memory that the device reaches at iova.
func mapped(t testing.TB, f *vfio.Function, iova iommu.IOVA) []byte {
	t.Helper()
	m, err := shm.Create("vfio-test", 4096)
	require.NoError(t, err)
	b, err := m.Map(0, 4096, true)
	require.NoError(t, err)
	require.NoError(t, f.Domain().Map(iova, b, iommu.ReadWrite))
	t.Cleanup(func() {
		require.NoError(t, f.Domain().Unmap(iova, 4096))
		require.NoError(t, shm.Unmap(b))
		require.NoError(t, m.Close())
	})
	return b
}

func startDMA(t testing.TB, f *vfio.Function, src, dst uint64, n, cmd uint32) {
	t.Helper()
	for _, r := range []struct {
		off uint64
		v   uint32
	}{{eduDMASrc, uint32(src)}, {eduDMADst, uint32(dst)}, {eduDMACount, n}, {eduDMACmd, eduStart | cmd}} {
		store(t, f, r.off, r.v)
	}
}

func dma(t testing.TB, f *vfio.Function, e *shm.Interrupt, src, dst uint64, n, cmd uint32) {
	t.Helper()
	startDMA(t, f, src, dst, n, cmd|eduIRQOnDMA)
	comes(t, e)
	store(t, f, eduAck, 0x100)
	require.Zero(t, load(t, f, eduDMACmd)&eduStart)
}

func TestHardwareDMA(t *testing.T) {
	f := edu(t, hardware(t)[0])
	e := event(t, f)
	const at, stray, n = 0x200000, 0x900000, 2048
	b := mapped(t, f, at)
	copy(b, bytes.Repeat([]byte("device"), 400))
	want := slices.Clone(b[:n])
	dma(t, f, e, at, eduBuffer, n, 0)
	dma(t, f, e, eduBuffer, at+n, n, eduToRAM)
	require.Equal(t, want, b[n:2*n])

	// A write to where nothing is mapped changes nothing, and harms nothing.
	before := slices.Clone(b)
	dma(t, f, e, eduBuffer, stray, n, eduToRAM)
	require.Equal(t, before, b)
	dma(t, f, e, eduBuffer, at, n, eduToRAM)
	require.Equal(t, want, b[:n], "the device works on")
}

// TestHardwareQuiesce: a DMA under way when the function is stopped writes nothing
// once Quiesce has returned, not in the next epoch either.
func TestHardwareQuiesce(t *testing.T) {
	f := edu(t, hardware(t)[0])
	const at, n = 0x200000, 2048
	b := mapped(t, f, at)
	for i := range b[:n] {
		b[i] = 0xa5
	}
	dma(t, f, event(t, f), at, eduBuffer, n, 0)
	clear(b)
	startDMA(t, f, eduBuffer, at, n, eduToRAM)
	how, err := f.Quiesce()
	require.NoError(t, err)
	t.Logf("stopped: %s", how)
	require.Equal(t, "bus mastering off, reset: bus", how)
	at0 := slices.Clone(b)
	reset, err := f.Begin()
	require.NoError(t, err)
	require.Equal(t, "bus", reset)
	require.Zero(t, load(t, f, eduDMACmd)&eduStart, "what was under way is over before the next epoch")
	require.Equal(t, at0, b)
	_, err = f.Begin()
	require.ErrorIs(t, err, gpuerr.Internal)
	for range 2 {
		_, err = f.Quiesce()
		require.NoError(t, err)
	}
	require.Equal(t, uint32(0x010000ed), load(t, f, eduID), "registers can be read between epochs")
}
