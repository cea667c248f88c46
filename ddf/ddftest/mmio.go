package ddftest

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

var mmioTests = []test{
	{"EveryRegisterReads", testReads},
	{"OffsetsAreBounded", testOffsets},
	{"ReadOnlyRefusesWrites", testReadOnly},
	{"WritesAreSeen", testWrites},
	{"OnlyDoorbellsRing", testDoorbells},
	{"DeviceChangesAreSeen", testPoke},
	{"WritesGoWhereTheyShould", testPeek},
	{"GoneReadsAllOnes", testGone},
	{"CloseWaitsForAccesses", testCloseUnderAccess},
	{"UseAfterClose", testMmioClose},
}

// windows calls f for each window.
func windows(t *testing.T, h Harness, f func(t *testing.T, bar int, w ddf.DeviceMmio)) {
	hook(t, "window", len(h.Grants.Mmio) > 0)
	for bar, w := range h.Grants.Mmio {
		f(t, bar, w)
	}
}

func testReads(t *testing.T, h Harness) {
	windows(t, h, func(t *testing.T, bar int, w ddf.DeviceMmio) {
		require.NotZero(t, w.Size())
		for _, off := range []uint64{0, w.Size() - 4} {
			_, err := w.Read32(off)
			require.NoError(t, err, "BAR %d", bar)
		}
	})
}

func testOffsets(t *testing.T, h Harness) {
	windows(t, h, func(t *testing.T, _ int, w ddf.DeviceMmio) {
		for _, off := range []uint64{1, 2, 3, w.Size(), w.Size() - 1, w.Size() - 2, w.Size() + 4, math.MaxUint64, math.MaxUint64 - 3} {
			_, err := w.Read32(off)
			require.ErrorIs(t, err, gpuerr.Invalid, "Read32(%#x)", off)
			require.Error(t, w.Write32(off, 1), "Write32(%#x)", off)
			require.Error(t, w.Ring(off, 1), "Ring(%#x)", off)
		}
	})
}

func testReadOnly(t *testing.T, h Harness) {
	hook(t, "ReadOnly", len(h.ReadOnly) > 0)
	for _, bar := range h.ReadOnly {
		w := h.Grants.Mmio[bar]
		require.NotNil(t, w)
		before, err := w.Read32(0)
		require.NoError(t, err)
		require.ErrorIs(t, w.Write32(0, ^before), gpuerr.Denied)
		after, err := w.Read32(0)
		require.NoError(t, err)
		require.Equal(t, before, after, "a refused write had an effect")
	}
}

func testWrites(t *testing.T, h Harness) {
	hook(t, "Poke", h.Poke != nil) // without it the registers are a real device's: leave them alone
	windows(t, h, func(t *testing.T, bar int, w ddf.DeviceMmio) {
		if slices.Contains(h.ReadOnly, bar) {
			return
		}
		require.NoError(t, w.Write32(8, 0x12345678))
		got, err := w.Read32(8)
		require.NoError(t, err)
		require.Equal(t, uint32(0x12345678), got)
	})
}

func testDoorbells(t *testing.T, h Harness) {
	hook(t, "Doorbells", len(h.Doorbells) > 0)
	for bar, allowed := range h.Doorbells {
		w := h.Grants.Mmio[bar]
		require.NotNil(t, w)
		for _, off := range allowed {
			require.NoError(t, w.Ring(off, 5), "doorbell %#x of BAR %d", off, bar)
		}
		refused := 0
		for off := uint64(0); off < w.Size() && refused < 64; off += 4 {
			if !slices.Contains(allowed, off) {
				require.ErrorIs(t, w.Ring(off, 0xbad), gpuerr.Denied, "offset %#x of BAR %d", off, bar)
				refused++
			}
		}
	}
}

func testPoke(t *testing.T, h Harness) {
	hook(t, "Poke", h.Poke != nil)
	windows(t, h, func(t *testing.T, bar int, w ddf.DeviceMmio) {
		for _, v := range []uint32{1, 0xdeadbeef, 0} {
			h.Poke(bar, 4, v)
			got, err := w.Read32(4)
			require.NoError(t, err)
			require.Equal(t, v, got)
		}
	})
}

// The first and the last register of a window are those of the device, wherever in the
// BAR the window lies, and rings arrive also where nothing else can be written.
func testPeek(t *testing.T, h Harness) {
	hook(t, "Peek", h.Peek != nil)
	windows(t, h, func(t *testing.T, bar int, w ddf.DeviceMmio) {
		if slices.Contains(h.ReadOnly, bar) {
			for i, off := range h.Doorbells[bar] {
				require.NoError(t, w.Ring(off, uint32(0xb00+i)))
				require.EqualValues(t, 0xb00+i, h.Peek(bar, off), "doorbell %#x of BAR %d", off, bar)
			}
			return
		}
		for i, off := range []uint64{0, w.Size() - 4} {
			require.NoError(t, w.Write32(off, uint32(0xc00+i)))
			require.EqualValues(t, 0xc00+i, h.Peek(bar, off), "offset %#x of BAR %d", off, bar)
		}
	})
}

// Accesses to registers while the window is closed happen before or after it, without other
// effects.
func testCloseUnderAccess(t *testing.T, h Harness) {
	windows(t, h, func(t *testing.T, bar int, w ddf.DeviceMmio) {
		var wg sync.WaitGroup
		began := make(chan struct{}, 4)
		for range cap(began) {
			wg.Go(func() {
				for first := true; ; first = false {
					_, err := w.Read32(0)
					if first {
						began <- struct{}{}
					}
					if err != nil {
						if !slices.Contains([]gpuerr.Code{gpuerr.Closed, gpuerr.Stale, gpuerr.Revoked}, gpuerr.CodeOf(err)) {
							t.Errorf("BAR %d: Read32 of a window that is closed: %v", bar, err)
						}
						return
					}
				}
			})
		}
		for range cap(began) {
			<-began
		}
		require.NoError(t, w.Close())
		wg.Wait()
	})
}

func testGone(t *testing.T, h Harness) {
	hook(t, "Gone", h.Gone != nil)
	h.Gone()
	windows(t, h, func(t *testing.T, bar int, w ddf.DeviceMmio) {
		got, err := w.Read32(0)
		require.NoError(t, err)
		require.Equal(t, uint32(math.MaxUint32), got)
		if !slices.Contains(h.ReadOnly, bar) {
			require.NoError(t, w.Write32(0, 1), "writes to a device that is gone are lost, not refused")
		}
	})
}

func testMmioClose(t *testing.T, h Harness) {
	windows(t, h, func(t *testing.T, bar int, w ddf.DeviceMmio) {
		require.NoError(t, w.Close())
		require.NoError(t, w.Close(), "Close is idempotent")
		_, err := w.Read32(0)
		requireEnded(t, err)
		requireEnded(t, w.Write32(0, 1))
		requireEnded(t, w.Ring(0, 1))
	})
}

// requireEnded requires the error of something that was closed or taken back.
func requireEnded(t *testing.T, err error) {
	t.Helper()
	require.Contains(t, []gpuerr.Code{gpuerr.Closed, gpuerr.Stale, gpuerr.Revoked}, gpuerr.CodeOf(err), "%v", err)
}
