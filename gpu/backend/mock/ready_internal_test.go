package mock

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
)

// What a ready job takes is no more than is charged for it, also when its job had fewer spans
// before.
func TestReadyBytes(t *testing.T) {
	d := &Device{}
	heap := func() uint64 {
		var st runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&st)
		return st.HeapAlloc
	}
	kept := make([]*ready, 1000)
	for spans := range maxBindings + 1 {
		job := &backend.Job{Spans: make([]backend.Span, spans)}
		clear(kept)
		before := heap()
		for i := range kept {
			kept[i] = &ready{dev: d}
			for n := range job.Spans {
				kept[i].reset(&backend.Job{Spans: job.Spans[:n]})
			}
			kept[i].reset(job)
		}
		took := (heap() - before) / uint64(len(kept))
		require.LessOrEqual(t, took, backend.ReadyBytes(uint64(spans)), "%d spans", spans)
		require.Greater(t, took, backend.ReadyBytes(uint64(spans))/2, "%d spans", spans)
	}
	runtime.KeepAlive(kept)
}
