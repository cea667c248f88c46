package zing

import (
	"context"
	"io"
	"maps"
	"math"
	"sync"

	"capgpu/client"
)

// Config of a Host.
type Config struct {
	Conn           *client.Conn
	Modules        map[string][]byte // the config map: SPIR-V or bundles by module id
	Devices        []uint32          // indices of those that the guest is shown; empty: all of the tenant
	Ext            bool              // cap.accel.ext.v1 is advertised
	Stdin          io.Reader         // handle 0; nil: at its end
	Stdout, Stderr io.Writer         // handles 1 and 2; nil: thrown away. Log writes to Stderr
	Record         io.Writer         // nil: no transcript
}

// Host serves one guest. Its methods are the calls of the ABI; one at a time runs.
type Host struct {
	ctx    context.Context
	cancel context.CancelFunc
	config Config
	limits limits

	mu        sync.Mutex // held for a call of the guest
	devices   []*device
	handles   map[int32]stream
	last      int32 // the highest handle that was given out
	modules   map[string]*module
	streams   map[uint32]*side
	streamIDs uint32 // the highest that was given out
	events    map[uint32]*event
	eventIDs  uint32
	specimen  *specimen // nil: neither recorded nor replayed
}

// stream is what a handle stands for. read and write answer as the ABI's calls do.
type stream interface {
	read(p []byte) int32
	write(p []byte) int32
	end()
}

// NewHost asks each device of the tenant what it is. A session is opened when the guest first uses
// a device. Close the host when the guest has ended.
func NewHost(ctx context.Context, c Config) (*Host, error) {
	h := &Host{config: c, handles: map[int32]stream{}, modules: map[string]*module{}, streams: map[uint32]*side{}, events: map[uint32]*event{}, last: 2}
	h.ctx, h.cancel = context.WithCancel(ctx)
	if err := h.probe(); err != nil {
		h.cancel()
		return nil, err
	}
	for id, bytes := range c.Modules {
		h.modules[id] = &module{bytes: bytes, fixed: true}
	}
	h.modules[library] = &module{fixed: true}
	h.handles[0], h.handles[1], h.handles[2] = standard{r: c.Stdin}, standard{w: writerOf(c.Stdout)}, standard{w: writerOf(c.Stderr)}
	if c.Record != nil {
		h.specimen = newRecorder(c.Record)
	}
	return h, nil
}

func writerOf(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

// Ctl is _ctl: it answers one request frame. resp is all its room; the result is the bytes written
// there, or -1.
func (h *Host) Ctl(req, resp []byte) int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.specimen.ctl(req, resp, func() int32 { return h.ctl(req, resp) })
}

func (h *Host) ctl(req, resp []byte) int32 {
	c, ok, err := parse(req)
	if !ok || h.handles == nil { // closed
		return -1
	}
	var result []byte
	if err == nil {
		if c.op == opOpen && len(resp) < openAnswer {
			return -1 // before anything is done
		}
		result, err = h.serve(&c)
	}
	b := answer(req, result, err)
	if len(b) > len(resp) {
		return -1
	}
	return int32(copy(resp, b))
}

func (h *Host) serve(c *call) ([]byte, error) {
	r := &reader{rest: c.payload}
	switch c.op {
	case opList:
		if err := r.end(); err != nil {
			return nil, err
		}
		return h.list(), nil

	case opDescribe:
		kind, name := r.str(), r.str()
		if err := r.end(); err != nil {
			return nil, err
		}
		if !h.has(kind, name) {
			return nil, fail("t_cap_missing", "there is no capability %s/%s", kind, name)
		}
		return appendBytes(appendH4(nil, capFlags), h.schema(kind)), nil

	case opOpen:
		kind, name, mode, params := r.str(), r.str(), r.h4(), r.bytes()
		if err := r.end(); err != nil {
			return nil, err
		}
		if !h.has(kind, name) {
			return nil, fail("t_cap_missing", "there is no capability %s/%s", kind, name)
		}
		open := h.open
		if kind == kindExt {
			open = h.openExt
		}
		if len(h.handles) >= maxHandles || h.last == math.MaxInt32 {
			return nil, fail("t_cap_denied", "a guest has at most %d handles: end some", maxHandles)
		}
		s, flags, err := open(mode, &reader{rest: params}, c.timeout)
		if err != nil {
			return nil, err
		}
		h.last++
		h.handles[h.last] = s
		return appendBytes(appendH4(appendH4(nil, uint32(h.last)), flags), ""), nil
	}
	return nil, fail("t_ctl_unknown_op", "there is no operation %d", c.op)
}

// maxHandles bounds the open handles of a guest, which cost memory of this process.
const maxHandles = 1 << 16

// Read is req_read: up to len(p) bytes, 0 at the end, -1 for what is no readable handle.
func (h *Host) Read(handle int32, p []byte) int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.specimen.read(handle, p, func() int32 {
		s := h.handles[handle]
		if s == nil {
			return -1
		}
		if len(p) == 0 {
			return 0
		}
		return s.read(p)
	})
}

// Write is res_write: all of p, or nothing and -1.
func (h *Host) Write(handle int32, p []byte) int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.specimen.write(handle, p, func() int32 {
		s := h.handles[handle]
		if s == nil {
			return -1
		}
		if len(p) == 0 {
			return 0
		}
		return s.write(p)
	})
}

// End is res_end: the handle is invalid from now on. It never fails.
func (h *Host) End(handle int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.specimen.end(handle, func() {
		if s := h.handles[handle]; s != nil {
			s.end()
			delete(h.handles, handle)
		}
	})
}

// Log writes a line of the guest's log.
func (h *Host) Log(topic, msg []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := append(append(append(append([]byte{}, topic...), ": "...), msg...), '\n')
	_, _ = writerOf(h.config.Stderr).Write(line) // a log has nobody to tell
}

// Err is why a transcript cannot be written, or where a replay differs; nil otherwise.
func (h *Host) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.specimen == nil {
		return nil
	}
	return h.specimen.err
}

// Close ends the guest's sessions, and with them its buffers and its work. A call that waits ends
// first.
func (h *Host) Close() error {
	h.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles = nil
	var first error
	for _, d := range h.devices {
		if d.gpu == nil {
			continue
		}
		for b := range maps.Keys(d.buffers) {
			_ = b.memory.Free(context.WithoutCancel(h.ctx)) // those that are borrowed end with the session
		}
		if err := d.gpu.Close(context.WithoutCancel(h.ctx)); first == nil {
			first = err
		}
		for b := range maps.Keys(d.buffers) {
			_ = b.memory.Free(context.WithoutCancel(h.ctx)) // unmaps
		}
		d.gpu = nil
	}
	return first
}

// standard is a standard stream.
type standard struct {
	r io.Reader
	w io.Writer
}

func (s standard) read(p []byte) int32 {
	if s.w != nil {
		return -1
	}
	if s.r == nil {
		return 0
	}
	n, err := s.r.Read(p[:min(len(p), maxCount)])
	if n == 0 && err != nil && err != io.EOF {
		return -1
	}
	return int32(n)
}

func (s standard) write(p []byte) int32 {
	if s.w == nil || len(p) > maxCount {
		return -1
	}
	if _, err := s.w.Write(p); err != nil {
		return -1
	}
	return int32(len(p))
}

func (s standard) end() {}

// maxCount is the most bytes of one call: the result is an int32.
const maxCount = 1<<31 - 1

// record is a stream that tells one record.
type record struct {
	rest []byte
	wait func() []byte // not nil: what makes rest, when the guest asks
}

func (r *record) read(p []byte) int32 {
	if r.wait != nil {
		r.rest, r.wait = r.wait(), nil
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return int32(n)
}

func (r *record) write([]byte) int32 { return -1 }
func (r *record) end()               {}
