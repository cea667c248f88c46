package ddfrpc

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/ddftest"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// One window is mapped from the middle of the device's file, the other is reached by
// calls.
var testWindows = []ddf.WindowSpec{
	{Bar: 0, Offset: 3 * 4096, Bytes: 8192, Writable: true, Doorbells: []uint64{0x100, 0x1ffc}},
	{Bar: 2, Offset: 4096, Bytes: 4096, Doorbells: []uint64{0x40}},
}

// The grants of a hardware driver pass the suite, except the audit log, which this server
// lacks, whether they came with one answer or with many.
func TestHardwareConforms(t *testing.T) {
	t.Run("at once", func(t *testing.T) { conform(t, false) })
	t.Run("one by one", func(t *testing.T) { conform(t, true) })
}

func conform(t *testing.T, older bool) {
	ddftest.RunHarness(t, func(t *testing.T) ddftest.Harness {
		if strings.Contains(t.Name(), "/Audit/") || strings.HasSuffix(t.Name(), "EverythingAnswersRevoked") {
			t.Skip("package manager has the audit log, over the same link")
		}
		h, theirs := serve(t, testWindows...)
		h.older = older
		l := dial(t, theirs)
		return ddftest.Harness{
			Grants:    l.GrantSet(),
			Raise:     func(i int) { h.vectors[i].raise(t, 1) },
			RaiseMany: func(i int, n uint64) { h.vectors[i].raise(t, n) },
			Poke:      func(bar int, off uint64, v uint32) { require.NoError(t, h.store(h.window(bar), off, v)) },
			Peek: func(bar int, off uint64) uint32 {
				v, err := h.load(h.window(bar), off)
				require.NoError(t, err)
				return v
			},
			Gone: func() { h.unplug(t) },
			Revoke: func() {
				h.revoke()
				<-l.Done()
			},
			Mapped: h.fn.Pool().Mapped,
			DeviceReads: func(t *testing.T, iova ddf.IOVA, bytes uint64) (seen []byte) {
				require.True(t, h.fn.Pool().DMA(iova, bytes, func(memory []byte) { seen = slices.Clone(memory) }))
				return seen
			},
			Pinned:    true,
			Doorbells: map[int][]uint64{0: {0x100, 0x1ffc}, 2: {0x40}},
			ReadOnly:  []int{2},
		}
	})
}

// The device's descriptor is not kept: with it the driver could do more than the
// window allows.
func TestDeviceDescriptorIsNotKept(t *testing.T) {
	for _, older := range []bool{false, true} {
		deviceDescriptorIsNotKept(t, older)
	}
}

func deviceDescriptorIsNotKept(t *testing.T, older bool) {
	h, theirs := serve(t, testWindows...)
	h.older = older
	l := dial(t, theirs)
	require.NoError(t, l.GrantSet().Mmio[0].Write32(4, 7))
	// An answer may be read before the server has closed the descriptors that it sent with
	// it, but not before it has closed those of earlier answers.
	_, err := l.GrantSet().Mmio[2].Read32(0)
	require.NoError(t, err)
	holders := 0
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == h.file.Name() {
			holders++
		}
	}
	require.Equal(t, 1, holders, "the manager's own, which is in this process")
}

// The manager's description of a window is still bounded, and the window's descriptor does
// not stay behind.
func TestWindowsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		spec          ddf.WindowSpec
		bytes, offset uint64
	}{
		"no bytes":       {spec: ddf.WindowSpec{Bytes: 0, Writable: true}},
		"half registers": {spec: ddf.WindowSpec{Bytes: 4098, Writable: true}, bytes: 4098},
		"huge":           {spec: ddf.WindowSpec{Bytes: 1 << 60}, bytes: 1 << 60},
		"less is mapped": {spec: ddf.WindowSpec{Bytes: 8192, Writable: true}, bytes: 4096},
		"more is mapped": {spec: ddf.WindowSpec{Bytes: 4096, Writable: true}, bytes: 8192},
		"odd offset":     {spec: ddf.WindowSpec{Bytes: 4096, Writable: true}, bytes: 4096, offset: 100},
		"offset wraps":   {spec: ddf.WindowSpec{Bytes: 4096, Writable: true}, bytes: 4096, offset: math.MaxUint64 &^ 4095},
	} {
		for _, older := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, older=%t", name, older), func(t *testing.T) {
				leakcheck.Check(t)
				// The file of the server is made for one that can be.
				h, theirs := serve(t, ddf.WindowSpec{Bytes: 4096})
				h.older = older
				h.windows[0] = window{spec: c.spec, bytes: c.bytes, offset: c.offset}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := Dial(ctx, theirs)
				require.ErrorIs(t, err, gpuerr.Protocol)
				require.ErrorContains(t, err, "window of BAR 0")
			})
		}
	}
}

// An answer that contradicts itself is refused, and nothing of it stays behind.
func TestAnswersThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		windows, vectors int // more than there are
		says             string
	}{
		"a window too few":  {-1, 0, "1 windows came with a grant of 2"},
		"a window too many": {1, 0, "3 windows came with a grant of 2"},
		"vectors too many":  {0, 2, "3 vectors came with a grant of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			h, theirs := serve(t, testWindows...)
			h.moreWindows, h.moreVectors = c.windows, c.vectors
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err := Dial(ctx, theirs)
			require.ErrorIs(t, err, gpuerr.Protocol)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A device that is unplugged under an access answers all ones, and loses writes.
func TestUnplugged(t *testing.T) {
	h, theirs := serve(t, testWindows...)
	g := dial(t, theirs).GrantSet()
	require.NoError(t, g.Mmio[0].Write32(0, 5))
	h.unplug(t)
	for range 2 {
		for bar, w := range g.Mmio {
			v, err := w.Read32(0)
			require.NoError(t, err)
			require.EqualValues(t, allOnes, v, "BAR %d", bar)
		}
		require.NoError(t, g.Mmio[0].Write32(0, 6))
		require.NoError(t, g.Mmio[0].Ring(0x100, 6))
		require.NoError(t, g.Mmio[2].Ring(0x40, 6))
	}
	require.NoError(t, h.file.Truncate(1<<20)) // another one in its place
	v, err := g.Mmio[0].Read32(0)
	require.NoError(t, err)
	require.Zero(t, v, "writes to a device that is gone are lost")
}

// A register that is read by calls is read, also while the manager has no room.
func TestReadsInsist(t *testing.T) {
	h, theirs := serve(t, testWindows...)
	g := dial(t, theirs).GrantSet()
	require.NoError(t, h.store(h.window(2), 12, 99))
	h.mu.Lock()
	h.refuse = 3
	h.mu.Unlock()
	v, err := g.Mmio[2].Read32(12)
	require.NoError(t, err)
	require.EqualValues(t, 99, v)
}
