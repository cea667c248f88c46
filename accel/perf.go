package accel

import (
	"cmp"
	"io"
	"runtime"
	"slices"
	"time"
)

// span is when a piece of work ran, by the clock of its driver.
type span struct {
	end  time.Duration // since the driver opened the device
	busy time.Duration // of device time
}

// overlap is how well the streams of one run used the device.
type overlap struct {
	WallNanos    int64        `json:"wall_ns"`    // from the first begin to the last end
	BusyNanos    int64        `json:"busy_ns"`    // at least one stream had work running
	OverlapNanos int64        `json:"overlap_ns"` // at least two had
	Utilisation  float64      `json:"utilisation"`
	Streams      []streamBusy `json:"streams"`
}

type streamBusy struct {
	Stream    uint32 `json:"stream_id"`
	BusyNanos int64  `json:"busy_ns"`
}

// WritePerf writes the overlap statistics as JSON in the frame of perf.json: one run for each GPU
// that used the trace, in their order. Only work that was seen to end ok counts.
func (t *Trace) WritePerf(w io.Writer) error {
	type run struct {
		Profile     string         `json:"profile"`
		Metrics     []struct{}     `json:"metrics"`
		Log         map[string]any `json:"run_log"`
		Accelerator overlap        `json:"accelerator"`
	}
	runs := []run{}
	for _, work := range t.work() {
		runs = append(runs, run{
			Profile:     "default",
			Metrics:     []struct{}{},
			Log:         map[string]any{"version": "0.1", "rng_streams": []struct{}{}},
			Accelerator: measure(work),
		})
	}
	return writeJSON(w, map[string]any{"version": "0.1.0", "target": target(), "runs": runs})
}

// target is the triple of this program, in the words of perf.json.
func target() string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return cmp.Or(arch, runtime.GOARCH) + "-unknown-" + runtime.GOOS
}

// ran is a piece of work that ran, in a stream.
type ran struct {
	stream uint32
	span
}

// work is what ran, for each GPU.
func (t *Trace) work() [][]ran {
	t.mu.Lock()
	log := slices.Clone(t.log)
	t.mu.Unlock()

	var all [][]ran
	place := map[*GPU]int{}
	for _, o := range log {
		m := o.mark
		if m == nil {
			continue
		}
		g := m.s.g
		i, known := place[g]
		if !known {
			i = len(all)
			place[g], all = i, append(all, nil)
		}

		g.mu.Lock()
		if m.done && m.err == nil && m.busy > 0 {
			all[i] = append(all[i], ran{m.s.id, m.span})
		}
		g.mu.Unlock()
	}
	return all
}

// measure adds up what ran. In a stream, where one piece of work comes after the other, none begins
// before the one before it ended.
func measure(work []ran) overlap {
	o := overlap{Streams: []streamBusy{}}
	type edge struct {
		at   time.Duration
		step int // 1: work begins, -1: it ends
	}
	var edges []edge
	last := map[uint32]time.Duration{} // end of the work before, by stream
	for _, r := range work {
		begin := max(r.end-r.busy, last[r.stream])
		last[r.stream] = r.end
		edges = append(edges, edge{begin, 1}, edge{r.end, -1})

		i := slices.IndexFunc(o.Streams, func(s streamBusy) bool { return s.Stream == r.stream })
		if i < 0 {
			i, o.Streams = len(o.Streams), append(o.Streams, streamBusy{Stream: r.stream})
		}
		o.Streams[i].BusyNanos += int64(r.end - begin)
	}
	if len(edges) == 0 {
		return o
	}

	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.step - b.step // an end before a begin
	})
	slices.SortFunc(o.Streams, func(a, b streamBusy) int { return int(a.Stream) - int(b.Stream) })
	running := 0
	for i, e := range edges {
		if i > 0 {
			took := int64(e.at - edges[i-1].at)
			if running > 0 {
				o.BusyNanos += took
			}
			if running > 1 {
				o.OverlapNanos += took
			}
		}
		running += e.step
	}
	o.WallNanos = int64(edges[len(edges)-1].at - edges[0].at)
	if o.WallNanos > 0 {
		o.Utilisation = float64(o.BusyNanos) / float64(o.WallNanos)
	}
	return o
}
