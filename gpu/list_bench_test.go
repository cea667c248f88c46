package gpu

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/ring"
)

// BenchmarkReplay is what a launch of a list costs, with the way there and back: 70
// small launches, of which none or all have a patch.
func BenchmarkReplay(b *testing.B) {
	const launches, waves = 70, 4
	for _, patched := range []int{0, launches} {
		b.Run(fmt.Sprintf("patches=%d", patched), func(b *testing.B) {
			dev, err := mock.New(mock.Options{})
			require.NoError(b, err)
			r := newRig(b, withBackend(dev))
			s := r.open("alice")
			q := r.queue(s, 16, 1<<16)
			a, p := buf(b, s, 4096), prog(b, s, "fill_u32")
			var rec recorder
			for range launches {
				rec.launch(p, words(7), piece(a, 0, 64))
			}
			l := rec.record(b, s)
			var patches []ring.Patch
			for i := range patched {
				patches = append(patches, ring.InlinePatch(uint16(i), 0, words(9)))
			}
			var done [waves]ring.Completion
			b.ReportAllocs()
			for b.Loop() {
				for range waves {
					e := ring.ReplayEntry(1, uint64(l), 0)
					require.NoError(b, q.ring.PushReplay(&e, patches))
				}
				require.NoError(b, q.ring.Flush())
				for n := 0; n < waves; {
					got, err := q.ring.Wait(context.Background(), done[n:])
					require.NoError(b, err)
					n += got
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*waves*launches), "ns/launch")
		})
	}
}

// BenchmarkReplayAlone is how long one replay of 50 launches takes while its client waits
// for it, as for the next token of a model, and how much of that is not the device's time.
func BenchmarkReplayAlone(b *testing.B) {
	const launches, cols = 50, 64
	for _, rows := range []uint32{4, 172, 1376} {
		for _, ahead := range []int{1, 6} {
			b.Run(fmt.Sprintf("rows=%d/ahead=%d", rows, ahead), func(b *testing.B) {
				dev, err := mock.New(mock.Options{})
				require.NoError(b, err)
				r := newRig(b, withBackend(dev))
				s := r.open("alice")
				q := r.queue(s, 16, 1<<12)
				p := prog(b, s, "matvec_f32")
				m, x, y := buf(b, s, uint64(rows*cols*4)), buf(b, s, cols*4), buf(b, s, uint64(rows*4))
				var rec recorder
				for range launches {
					rec.launch(p, words(rows, cols), piece(m, 0, uint64(rows*cols*4)), piece(x, 0, cols*4), piece(y, 0, uint64(rows*4)))
				}
				l := rec.record(b, s)
				var done [16]ring.Completion
				device := uint64(0)
				b.ReportAllocs()
				for b.Loop() {
					for range ahead {
						e := ring.ReplayEntry(1, uint64(l), 0)
						require.NoError(b, q.ring.PushReplay(&e, nil))
						require.NoError(b, q.ring.Flush())
					}
					for n := 0; n < ahead; {
						got, err := q.ring.Wait(b.Context(), done[n:ahead])
						require.NoError(b, err)
						for _, c := range done[n : n+got] {
							device += c.DeviceNanos
						}
						n += got
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds()-int64(device))/float64(b.N*ahead), "over-ns/replay")
			})
		}
	}
}
