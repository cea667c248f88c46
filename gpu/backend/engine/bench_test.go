package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine"
	"capgpu/gpu/backend/engine/enginetest"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/host/lanedevice"
	"capgpu/gpu/backend/engine/wire"
)

// ended is a sink that passes completions on.
type ended chan backend.Completion

func (e ended) Complete(c backend.Completion) { e <- c }
func (e ended) DeviceGone(string)             {}

// BenchmarkJob is the time from Submit to Complete of a fill of 4 KiB by a process, and of the
// same driven in this process: by itself, and as a list of 64 that was recorded.
func BenchmarkJob(b *testing.B) {
	entries := func(n int, memory wire.MemoryID) (all []wire.Entry) {
		for range n {
			all = append(all, wire.Entry{Op: wire.OpFill, Spans: []wire.Span{{Memory: memory, Length: 4096}}})
		}
		return all
	}
	b.Run("device", func(b *testing.B) {
		for name, n := range map[string]int{"single": 1, "list": 64} {
			b.Run(name, func(b *testing.B) {
				d := lanedevice.New(lanedevice.Options{})
				defer d.Close()
				m, err := d.Import(make([]byte, 4096))
				require.NoError(b, err)
				var all []host.Entry
				for _, e := range entries(n, 1) {
					all = append(all, host.Entry{Entry: &e, Memory: []host.Memory{m}})
				}
				l, err := d.Record(all)
				require.NoError(b, err)
				for b.Loop() {
					if n == 1 {
						require.NoError(b, l.Free())
						l, _ = d.Record(all)
					}
					if d.Submit(l) != nil {
						b.Fatal("refused")
					}
					if _, err := d.Wait(); err != nil {
						b.Fatal(err)
					}
				}
				require.NoError(b, l.Free())
			})
		}
	})

	b.Run("process", func(b *testing.B) {
		for name, n := range map[string]int{"single": 1, "list": 64} {
			b.Run(name, func(b *testing.B) {
				m := enginetest.NewMapping(b, enginetest.Start(b, 2, nil), engine.Options{})
				done := make(ended, 1)
				require.NoError(b, m.Start(done))
				defer m.Close()
				span := m.Alloc(b, 4096)
				job := &backend.Job{Op: backend.OpFill, Spans: []backend.Span{span}}
				if n > 1 {
					job = &backend.Job{Op: backend.OpList, Recording: 1}
					for range n {
						job.List = append(job.List, backend.Job{Op: backend.OpFill, Spans: []backend.Span{span}})
					}
				}
				require.NoError(b, m.Submit(job))
				<-done
				for b.Loop() {
					job.ID++
					if err := m.Backend.Submit(job); err != nil {
						b.Fatal(err)
					}
					<-done
				}
			})
		}
	})
}
