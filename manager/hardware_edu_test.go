package manager

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/ddfrpc"
	"capgpu/ddf/vfio"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/edu"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/gpu/gputest/backendtest"
	"capgpu/gpuerr"
	"capgpu/internal/pci"
	"capgpu/iommu"
	"capgpu/ledger"
	"capgpu/outcome"
)

// The tests of this file cover the whole path of a hardware driver: its side of the grant
// link, the manager's side, vfio, and QEMU's edu function.

// eduFunction claims the first function of CAPGPU_HW and opens it, or skips.
func eduFunction(t *testing.T) (*vfio.Function, *iommu.Space) {
	t.Helper()
	names := os.Getenv("CAPGPU_HW")
	if names == "" {
		t.Skip("SKIPPED: needs an edu function behind an IOMMU; name its PCI address in CAPGPU_HW, or run it in the guest (go run ./qemu/cmd/guest-run)")
	}
	a, err := pci.ParseAddress(strings.Split(names, ",")[0])
	require.NoError(t, err)
	c, err := pci.NewClaimer(&pci.Bus{}, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	_, err = c.Claim(a)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := c.Release(a)
		require.NoError(t, err)
	})
	f, err := vfio.Open(vfio.Options{Address: a, Windows: []ddf.WindowSpec{{Bar: 0, Bytes: 4096, Writable: true}}, Vectors: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f, iommu.NewSpace(iommu.Clip(f.Domain().Ranges(), pci.DMABits(edu.VendorID, edu.DeviceID)))
}

// epochOf begins an epoch of the function and takes its grants as a driver does.
func epochOf(t *testing.T, f *vfio.Function, space *iommu.Space) *ddfrpc.Link {
	t.Helper()
	_, err := f.Begin()
	require.NoError(t, err)
	limits := ledger.NoLimits()
	limits[ledger.DeviceMemory] = 16 << 20
	limits[ledger.IOVAEntries] = 512
	g := grantOf(t, limits, f, space)
	return dialGrants(t, g)
}

// The back end passes its suite on the device as it does on the model.
func TestHardwareBackendConforms(t *testing.T) {
	f, space := eduFunction(t)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		l := epochOf(t, f, space)
		d, err := edu.New(l.GrantSet())
		require.NoError(t, err)
		return backendtest.Harness{
			Backend:   d,
			Alloc:     func(t *testing.T, bytes int) backend.Span { return edutest.Span(t, l.GrantSet().DMA, bytes) },
			HoldBytes: 128 << 10,
			MaxBytes:  2048,
			MaxRounds: 1,
		}
	}, edutest.Inapplicable...)
}

// eduSink passes completions to the test.
type eduSink struct {
	done chan backend.Completion
	gone chan string
}

func (s eduSink) Complete(c backend.Completion) { s.done <- c }
func (s eduSink) DeviceGone(reason string)      { s.gone <- reason }

// Work of several steps, the factorial unit, and an access that the IOMMU refuses.
func TestHardwareEdu(t *testing.T) {
	f, space := eduFunction(t)
	l := epochOf(t, f, space)
	set := l.GrantSet()
	d, err := edu.New(set)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	sink := eduSink{make(chan backend.Completion, 16), make(chan string, 1)}
	require.NoError(t, d.Start(sink))
	id := backend.JobID(0)
	run := func(job *backend.Job) outcome.Outcome {
		t.Helper()
		id++
		job.ID = id
		require.NoError(t, d.Submit(job))
		select {
		case c := <-sink.done:
			return c.Outcome
		case <-time.After(30 * time.Second):
			require.FailNow(t, "no completion")
		}
		return outcome.Outcome{}
	}

	src, dst := edutest.Span(t, set.DMA, 5000), edutest.Span(t, set.DMA, 5000)
	for i := range src.Host {
		src.Host[i] = byte(i*7 + i>>8)
	}
	require.Equal(t, outcome.Success, run(&backend.Job{Op: backend.OpCopy, Spans: []backend.Span{dst, src}}))
	require.Equal(t, src.Host, dst.Host)

	p, err := d.Builtin("edu.factorial")
	require.NoError(t, err)
	in, out := edutest.Span(t, set.DMA, 4*20), edutest.Span(t, set.DMA, 4*20)
	want := uint32(1)
	for i := range uint32(20) {
		binary.LittleEndian.PutUint32(in.Host[4*i:], i)
	}
	grid, block := p.Info().NaturalGrid([]uint64{80, 80})
	require.Equal(t, outcome.Success, run(&backend.Job{Op: backend.OpLaunch, Program: p, Spans: []backend.Span{in, out}, Grid: grid, Block: block}))
	for i := range uint32(20) {
		want *= max(i, 1)
		require.Equal(t, want, binary.LittleEndian.Uint32(out.Host[4*i:]), "%d!", i)
	}
	require.Zero(t, d.Counters().Repeats)

	// Memory that the driver had and freed: the IOMMU refuses, the device reports completion,
	// and the job fails.
	b, err := set.DMA.Alloc(t.Context(), 4096)
	require.NoError(t, err)
	stale := backend.Span{Host: make([]byte, 64), IOVA: uint64(b.IOVA())}
	require.NoError(t, b.Free())
	first := backend.Span{Host: src.Host[:64], IOVA: src.IOVA}
	require.Equal(t, outcome.DeviceError, run(&backend.Job{Op: backend.OpCopy, Spans: []backend.Span{stale, first}}).Cause)
	require.EqualValues(t, 3, d.Counters().Repeats)
	require.Equal(t, outcome.Success, run(&backend.Job{Op: backend.OpFill, Spans: []backend.Span{dst}, Pattern: 5}), "the device goes on")

	// The function is taken from its driver in the middle of a transfer.
	id++
	require.NoError(t, d.Submit(&backend.Job{ID: id, Op: backend.OpFill, Spans: []backend.Span{dst}}))
	require.NoError(t, l.Close())
	select {
	case reason := <-sink.gone:
		require.Contains(t, reason, "does not answer")
	case <-time.After(5 * time.Second):
		require.FailNow(t, "nobody said that the grants are gone")
	}
	require.ErrorIs(t, d.Submit(&backend.Job{ID: id + 1, Op: backend.OpFill, Spans: []backend.Span{dst}}), gpuerr.DeviceLost)
}
