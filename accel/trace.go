package accel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// The operations of a trace, as the accelerator runtime model names them.
const (
	opKernel = "enqueue_kernel"
	opCopy   = "enqueue_copy"
	opRecord = "record_event"
	opWait   = "wait_event"
)

// Trace keeps what is done on the streams of one GPU, and of those that Renew makes of it: for
// tests of an order, and for tools. It grows with each operation. A nil Trace keeps nothing.
type Trace struct {
	mu sync.Mutex
	// +checklocks:mu
	claimed bool
	// +checklocks:mu
	log []traced
	// +checklocks:mu
	streams []streamInfo
}

// traced is one operation.
type traced struct {
	Stream *uint32 `json:"stream_id,omitempty"` // nil: a wait by this process
	Device uint32  `json:"device_id"`
	Op     string  `json:"op"`
	Event  uint32  `json:"event,omitempty"`
	Bytes  uint64  `json:"bytes,omitempty"`
	Kernel string  `json:"kernel,omitempty"`
	Error  string  `json:"error,omitempty"`

	mark *mark // of an operation that made an event
}

// streamInfo is what planners are told of a stream.
type streamInfo struct {
	Stream uint32      `json:"stream_id"`
	Device uint32      `json:"device_id"`
	Space  string      `json:"memspace"`
	Events []eventInfo `json:"events"`
}

type eventInfo struct {
	Event uint32 `json:"event_id"`
	Kind  string `json:"kind"`
}

// NewTrace makes a trace, for Options.
func NewTrace() *Trace { return &Trace{} }

// Lines are the operations in the order of the calls, in the form of the runtime model's mock
// drivers: "enqueue_kernel stream=0 kernel=vec_add event=1". An attempt that failed has event=none,
// and its code at the end; a wait by this process has stream=none.
func (t *Trace) Lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := make([]string, len(t.log))
	for i := range t.log {
		lines[i] = t.log[i].line()
	}
	return lines
}

func (o *traced) line() string {
	var b strings.Builder
	b.WriteString(o.Op)
	if b.WriteString(" stream="); o.Stream != nil {
		b.WriteString(strconv.FormatUint(uint64(*o.Stream), 10))
	} else {
		b.WriteString("none")
	}

	switch o.Op {
	case opKernel:
		fmt.Fprintf(&b, " kernel=%s", cmp.Or(o.Kernel, "none"))
	case opCopy:
		fmt.Fprintf(&b, " bytes=%d", o.Bytes)
	}
	if b.WriteString(" event="); o.Event != 0 {
		b.WriteString(strconv.FormatUint(uint64(o.Event), 10))
	} else {
		b.WriteString("none")
	}
	if o.Error != "" {
		b.WriteString(" error=" + o.Error)
	}
	return b.String()
}

// WriteStreams writes the trace as JSON of the schema accelerator.streams/v1. By convention it goes
// to profiling/accelerator/streams.json.
func (t *Trace) WriteStreams(w io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return writeJSON(w, map[string]any{
		"schema":  "accelerator.streams/v1",
		"fields":  []string{"stream_id", "device_id", "op", "event", "bytes", "kernel"},
		"streams": append([]streamInfo{}, t.streams...),
		"log":     append([]traced{}, t.log...),
	})
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// claim takes the trace for one GPU.
func (t *Trace) claim() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claimed {
		return refuse(EnqueueFailed, "Open", "Trace: another GPU that is open uses it")
	}
	t.claimed = true
	return nil
}

func (t *Trace) release() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.claimed = false
}

// stream notes a stream; the default one of a renewed GPU is there already.
func (t *Trace) stream(id, device uint32, space string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, known := range t.streams {
		if known.Stream == id {
			return
		}
	}
	t.streams = append(t.streams, streamInfo{Stream: id, Device: device, Space: space, Events: []eventInfo{}})
}

// add notes an operation on a stream. The caller may hold g.mu.
func (t *Trace) add(s *stream, o traced, m *mark, err error) {
	if t == nil {
		return
	}
	o.Stream, o.Device, o.mark = &s.id, s.g.options.Index, m
	if err != nil {
		o.Event, o.Error = 0, codeOf(err)
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, o)
	if m == nil || err != nil || o.Op == opWait {
		return
	}
	for i := range t.streams {
		if t.streams[i].Stream == s.id {
			t.streams[i].Events = append(t.streams[i].Events, eventInfo{o.Event, o.Op})
		}
	}
}

// wait notes a wait by this process.
func (t *Trace) wait(s *stream, event uint32, err error) {
	if t == nil {
		return
	}
	o := traced{Op: opWait, Device: s.g.options.Index, Event: event}
	if err != nil {
		o.Event, o.Error = 0, codeOf(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, o)
}

// codeOf is the code of an error, or that of a wait that its context ended.
func codeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return string(e.Code)
	}
	return "CANCELLED"
}
