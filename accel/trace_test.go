package accel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel"
)

// TestTrace: the lines of a script are the same each time, and the JSON has the same in it.
func TestTrace(t *testing.T) {
	trace := accel.NewTrace()
	g, ctx := open(t, accel.Options{Trace: trace}), testContext(t)
	p, d := alloc[uint32, accel.Staging](t, g, 4), alloc[uint32, accel.Device](t, g, 4)
	s, err := accel.NewStream[accel.PinnedHost](ctx, g)
	require.NoError(t, err)
	fill := kernel(t, g, "fill_u32")

	copied, err := accel.Copy(s, d, p)
	require.NoError(t, err)
	require.NoError(t, g.Default().Wait(copied))
	filled, err := g.Default().Launch(accel.Launch{Kernel: fill, Args: []accel.Argument{accel.Arg(d), accel.Value(uint32(8))}})
	require.NoError(t, err)
	_, err = g.Default().Record()
	require.NoError(t, err)
	require.NoError(t, filled.Synchronize(ctx))
	require.NoError(t, s.Synchronize(ctx))
	_, err = s.Launch(accel.Launch{Kernel: fill})
	require.Error(t, err)
	_, err = s.Launch(accel.Launch{})
	require.Error(t, err)
	require.Error(t, s.Wait(nil))
	require.NoError(t, g.Default().Synchronize(ctx))
	gone, stop := context.WithCancel(ctx)
	stop()
	hang, err := s.Launch(accel.Launch{Kernel: kernel(t, g, "spin")})
	require.NoError(t, err)
	require.Error(t, hang.Synchronize(gone))

	require.Equal(t, []string{
		"enqueue_copy stream=1 bytes=16 event=1",
		"wait_event stream=0 event=1",
		"enqueue_kernel stream=0 kernel=fill_u32 event=2",
		"record_event stream=0 event=3",
		"wait_event stream=none event=2",
		"wait_event stream=none event=1",
		"enqueue_kernel stream=1 kernel=fill_u32 event=none error=ACCEL_ENQUEUE_FAILED",
		"enqueue_kernel stream=1 kernel=none event=none error=ACCEL_ENQUEUE_FAILED",
		"wait_event stream=1 event=none error=ACCEL_INVALID_EVENT",
		"wait_event stream=none event=3",
		"enqueue_kernel stream=1 kernel=spin event=4",
		"wait_event stream=none event=none error=CANCELLED",
	}, trace.Lines())

	var out bytes.Buffer
	require.NoError(t, trace.WriteStreams(&out))
	var streams struct {
		Schema  string           `json:"schema"`
		Fields  []string         `json:"fields"`
		Streams []map[string]any `json:"streams"`
		Log     []map[string]any `json:"log"`
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &streams))
	require.Equal(t, "accelerator.streams/v1", streams.Schema)
	require.Equal(t, []string{"stream_id", "device_id", "op", "event", "bytes", "kernel"}, streams.Fields)
	require.Equal(t, []map[string]any{
		{"stream_id": 0.0, "device_id": 0.0, "memspace": "Device", "events": []any{
			map[string]any{"event_id": 2.0, "kind": "enqueue_kernel"}, map[string]any{"event_id": 3.0, "kind": "record_event"},
		}},
		{"stream_id": 1.0, "device_id": 0.0, "memspace": "Staging", "events": []any{
			map[string]any{"event_id": 1.0, "kind": "enqueue_copy"}, map[string]any{"event_id": 4.0, "kind": "enqueue_kernel"},
		}},
	}, streams.Streams)
	require.Len(t, streams.Log, 12)
	require.Equal(t, map[string]any{"stream_id": 1.0, "device_id": 0.0, "op": "enqueue_copy", "bytes": 16.0, "event": 1.0}, streams.Log[0])
	require.Equal(t, map[string]any{"device_id": 0.0, "op": "wait_event", "event": 2.0}, streams.Log[4])
	require.Equal(t, map[string]any{"stream_id": 1.0, "device_id": 0.0, "op": "enqueue_kernel", "kernel": "fill_u32", "error": "ACCEL_ENQUEUE_FAILED"}, streams.Log[6])
}

// TestPerf: an empty trace is a whole document, and work on two streams has its times.
func TestPerf(t *testing.T) {
	trace := accel.NewTrace()
	require.Empty(t, perf(t, trace).Runs)

	g, ctx := open(t, accel.Options{Trace: trace}), testContext(t)
	s1, s2, fill := stream(t, g), stream(t, g), kernel(t, g, "fill_u32")
	a, b := alloc[uint32, accel.Unified](t, g, 1<<18), alloc[uint32, accel.Unified](t, g, 1<<18)
	for i := range uint32(8) {
		_, err := s1.Launch(fillWith(fill, a, i))
		require.NoError(t, err)
		_, err = s2.Launch(fillWith(fill, b, i))
		require.NoError(t, err)
	}
	require.NoError(t, s1.Synchronize(ctx))
	require.NoError(t, s2.Synchronize(ctx))
	doc := perf(t, trace)
	require.Equal(t, "0.1.0", doc.Version)
	require.Contains(t, doc.Target, "-unknown-linux")
	require.Len(t, doc.Runs, 1)
	run := doc.Runs[0].Accelerator
	require.Len(t, run.Streams, 2)
	require.Equal(t, run.Streams[0].Busy+run.Streams[1].Busy, run.Busy+run.Overlap, "two streams: their times are what is busy, and again what overlaps")
	require.LessOrEqual(t, run.Busy, run.Wall)
	require.InDelta(t, float64(run.Busy)/float64(run.Wall), run.Utilisation, 1e-9)

	next, err := g.Renew(ctx)
	require.NoError(t, err)
	defer next.Close(ctx)
	u := alloc[uint32, accel.Unified](t, next, 4)
	require.NoError(t, next.Launch(ctx, fillWith(kernel(t, next, "fill_u32"), u, 1)))
	require.Len(t, perf(t, trace).Runs, 2, "a run of its own")
	lines := trace.Lines()
	require.Equal(t, "enqueue_kernel stream=0 kernel=fill_u32 event=17", lines[len(lines)-2], "numbers go on")
}

type perfDoc struct {
	Version, Target string
	Runs            []struct {
		Accelerator struct {
			Wall        int64 `json:"wall_ns"`
			Busy        int64 `json:"busy_ns"`
			Overlap     int64 `json:"overlap_ns"`
			Utilisation float64
			Streams     []struct {
				ID   uint32 `json:"stream_id"`
				Busy int64  `json:"busy_ns"`
			}
		}
	}
}

func perf(t *testing.T, trace *accel.Trace) (doc perfDoc) {
	var out bytes.Buffer
	require.NoError(t, trace.WritePerf(&out))
	require.NoError(t, json.Unmarshal(out.Bytes(), &doc))
	require.NotNil(t, doc.Runs)
	return doc
}
