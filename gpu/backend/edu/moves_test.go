package edu_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/edu/edutest"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// A copy is two transfers for each 2048 bytes, and nothing else.
func TestCopy(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		const n = 2*2048 + 904
		src, dst := r.span(text(n)), r.span(zeros(n+2))
		part := backend.Span{Host: dst.Host[1 : n+1], IOVA: dst.IOVA + 1}
		before := r.d.Progress()
		c := r.run(copyJob(part, src))
		require.Equal(t, outcome.Success, c.Outcome)
		require.Equal(t, 6*transfer, c.DeviceTime)
		require.Equal(t, 6, r.m.Transfers())
		require.EqualValues(t, 6, r.d.Progress()-before)
		require.Equal(t, text(n), part.Host)
		require.Equal(t, text(n), src.Host)
		require.Equal(t, []byte{0, 0}, []byte{dst.Host[0], dst.Host[n+1]}, "written beside the span")
		require.Zero(t, r.d.Counters())
		require.Empty(t, r.m.Faults())
	})
}

// A fill brings its pattern to the board once.
func TestFill(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		const n = 3*2048 + 4
		s := r.span(zeros(n + 4))
		part := backend.Span{Host: s.Host[:n], IOVA: s.IOVA}
		c := r.run(fillJob(part, 0x01020304))
		require.Equal(t, outcome.Success, c.Outcome)
		require.Equal(t, 5*transfer, c.DeviceTime)
		require.Equal(t, bytes.Repeat([]byte{4, 3, 2, 1}, n/4), part.Host)
		require.Equal(t, zeros(4), s.Host[n:])
		// A fill that does not consist of whole words is a trap, and nothing of it is done.
		for _, odd := range []backend.Span{
			{Host: s.Host[2:6], IOVA: s.IOVA + 2},
			{Host: s.Host[:6], IOVA: s.IOVA},
		} {
			require.Equal(t, outcome.Misaligned, r.run(fillJob(odd, 0)).Outcome.Trap.Kind)
		}
		require.Equal(t, bytes.Repeat([]byte{4, 3, 2, 1}, n/4), part.Host)
	})
}

// Nothing is moved for an empty span: it would end the machine.
func TestEmpty(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		s := r.span(zeros(4))
		none := backend.Span{Host: s.Host[:0], IOVA: s.IOVA}
		require.Equal(t, outcome.Success, r.run(copyJob(none, none)).Outcome)
		require.Equal(t, outcome.Success, r.run(fillJob(none, 1)).Outcome)
		require.Zero(t, r.m.Transfers())
	})
}

// The device cuts addresses to 28 bits: none beyond is ever given to it.
func TestReach(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		host := make([]byte, 8192)
		for _, iova := range []uint64{1 << 28, 1<<28 - 8191, 1 << 32, 1<<64 - 4096} {
			s := backend.Span{Host: host, IOVA: iova}
			require.ErrorIs(t, r.d.Submit(fillJob(s, 1)), gpuerr.Invalid, "%#x", iova)
			require.ErrorIs(t, r.d.Submit(copyJob(backend.Span{Host: host, IOVA: 1 << 20}, s)), gpuerr.Invalid, "%#x", iova)
		}
		require.Zero(t, r.m.Transfers())
	})
}

// A transfer that the IOMMU refused looks like any other to the device. Its job does
// not end ok before the bytes have arrived.
func TestRefusedTransfers(t *testing.T) {
	for name, c := range map[string]struct {
		trouble edutest.Trouble
		repeats int
		copied  outcome.Outcome
		filled  outcome.Outcome
	}{
		"a read":           {edutest.Trouble{RefuseReads: 1}, 1, outcome.Success, outcome.Success},
		"a write":          {edutest.Trouble{RefuseWrites: 1}, 1, outcome.Success, outcome.Success},
		"two of each":      {edutest.Trouble{RefuseReads: 2, RefuseWrites: 2}, 2, outcome.Success, outcome.Success},
		"reads for good":   {edutest.Trouble{RefuseReads: 1 << 30}, 3, deviceError, deviceError},
		"writes for good":  {edutest.Trouble{RefuseWrites: 1 << 30}, 3, deviceError, deviceError},
		"all of the first": {edutest.Trouble{RefuseReads: 3, RefuseWrites: 3}, 3, deviceError, deviceError},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
				const n = 3000
				src, dst := r.span(text(n)), r.span(zeros(n))
				r.m.SetTrouble(c.trouble)
				require.Equal(t, c.copied, r.run(copyJob(dst, src)).Outcome)
				require.EqualValues(t, c.repeats, r.d.Counters().Repeats)
				require.NotEmpty(t, r.m.Faults())
				if c.copied.Kind == outcome.OK {
					require.Equal(t, text(n), dst.Host)
				}
				r.m.SetTrouble(c.trouble)
				require.Equal(t, c.filled, r.run(fillJob(dst, 0xa5a5a5a5)).Outcome)
				if c.filled.Kind == outcome.OK {
					require.Equal(t, bytes.Repeat([]byte{0xa5}, n), dst.Host)
				}
				r.m.SetTrouble(edutest.Trouble{})
				require.Equal(t, outcome.Success, r.run(copyJob(dst, src)).Outcome, "the device goes on")
				require.Equal(t, text(n), dst.Host)
			})
		})
	}
}

// Memory that was unmapped under a job, which the core never does, is no success.
func TestUnmappedDestination(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		src := r.span(text(64))
		b, err := r.m.Grants().DMA.Alloc(t.Context(), 4096)
		require.NoError(t, err)
		dst := backend.Span{Host: make([]byte, 64), IOVA: uint64(b.IOVA())}
		require.NoError(t, b.Free())
		require.Equal(t, deviceError, r.run(copyJob(dst, src)).Outcome)
		require.Len(t, r.m.Faults(), 3)
		require.Equal(t, edutest.Fault{IOVA: b.IOVA(), Write: true}, r.m.Faults()[0])
	})
}

// A client that writes to the source of a copy under way gets bytes of some time, and an ok.
func TestSourceThatChanges(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		src, dst := r.span(text(2048)), r.span(zeros(2048))
		job := r.submit(copyJob(dst, src))
		time.Sleep(transfer / 2) // the driver has looked, the device has not
		for i := range 100 {
			src.Host[i] ^= 0xff
		}
		require.Equal(t, outcome.Success, r.await(job).Outcome)
		require.Equal(t, src.Host, dst.Host)
		require.Zero(t, r.d.Counters().Repeats)
	})
}

// Any two ranges, however they lie: as memmove.
func TestCopyLikeMemmove(t *testing.T) {
	bubble(t, edutest.Options{}, func(t *testing.T, r *rig) {
		const size = 3 * 4096
		all := r.span(zeros(size))
		random := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			n := random.IntN(3*2048 + 1)
			from, to := random.IntN(size-n+1), random.IntN(size-n+1)
			if random.IntN(2) == 0 { // nearly the same range
				to = min(from+random.IntN(4), size-n)
			}
			want := text(size)
			copy(all.Host, want)
			copy(want[to:to+n], want[from:from+n])
			require.Equal(t, outcome.Success, r.run(copyJob(
				backend.Span{Host: all.Host[to : to+n], IOVA: all.IOVA + uint64(to)},
				backend.Span{Host: all.Host[from : from+n], IOVA: all.IOVA + uint64(from)})).Outcome)
			require.True(t, bytes.Equal(want, all.Host), "%d bytes from %d to %d", n, from, to)
		}
	})
}

func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}
