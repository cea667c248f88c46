package zing

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"

	"capgpu/accel"
	"capgpu/client"
)

// The capabilities.
const (
	kindAccel = "accel"
	kindExt   = "accel.ext"
	capName   = "default"

	capFlags = 1 | 4 | 8 // can_open, may_block, produces_handles

	defaultQueue = "default"

	hflagsRecord = 1 | 4     // readable, endable
	hflagsBuffer = 1 | 2 | 4 // writable too
)

// The modes of cap.accel.v1.
const (
	modeQuery  = 1
	modeBuffer = 2
	modeSubmit = 3
	modeSync   = 4
)

// backendSPIRV is the backend of every device that loads programs: docs/zing.md says what a module is, and
// how arguments are bound. No device runs CUDA, so cuda is not advertised.
const backendSPIRV = "spirv"

// limits are advertised by CAPS_DESCRIBE and enforced.
type limits struct {
	Backends      []string `json:"backends"`
	Deterministic bool     `json:"deterministic"`
	ID            string   `json:"id"`
	MaxArgs       uint32   `json:"max_arg_count"`
	MaxBuffer     uint64   `json:"max_buffer_bytes"`
	MaxInline     uint32   `json:"max_inline_arg_bytes"`
	MaxNames      uint32   `json:"max_kernel_params"`
	MaxModule     uint32   `json:"max_module_bytes"`
	MaxQueue      int      `json:"max_queue"`
	MaxShared     uint32   `json:"max_shared_mem_bytes"`
	Registry      []string `json:"module_registry"`
}

// device is one device of the tenant.
type device struct {
	h       *Host
	info    client.DeviceInfo
	limits  client.Description // zero where it was not ready
	loads   bool               // programs, so that it is one of the backend spirv
	gpu     *accel.GPU         // nil until the guest uses it
	buffers map[*buffer]struct{}
	queue   []*submission // that no wait has covered, in order
}

// probe asks the devices of the tenant what they are.
func (h *Host) probe() error {
	devices, err := h.config.Conn.Devices(h.ctx)
	if err != nil {
		return err
	}
	h.limits = limits{Backends: []string{}, Deterministic: true, MaxArgs: 64, MaxBuffer: math.MaxUint64, MaxInline: 256, MaxNames: 512, MaxModule: client.MaxBundleBytes, MaxQueue: 64, MaxShared: math.MaxUint32}
	for _, info := range devices {
		if len(h.config.Devices) > 0 && !slices.Contains(h.config.Devices, info.Index) {
			continue
		}
		d := &device{h: h, info: info, loads: info.Facet == client.FacetFull, buffers: map[*buffer]struct{}{}}
		h.devices = append(h.devices, d)
		if !d.loads {
			continue
		}
		h.limits.Backends = []string{backendSPIRV}
		if info.State != client.Ready {
			continue
		}

		s, err := h.config.Conn.Open(h.ctx, info.Index)
		if err != nil {
			return err
		}
		d.limits, err = s.Describe(h.ctx)
		if err = errors.Join(err, s.Close(context.WithoutCancel(h.ctx))); err != nil {
			return err
		}
		h.limits.MaxBuffer = min(h.limits.MaxBuffer, d.limits.MaxBufferBytes)
		h.limits.MaxShared = min(h.limits.MaxShared, d.limits.MaxSharedBytes)
		h.limits.Deterministic = h.limits.Deterministic && d.limits.Deterministic
	}

	h.limits.Registry = []string{"preload"}
	if len(h.config.Modules) > 0 {
		h.limits.Registry = append(h.limits.Registry, "config")
	}
	if h.config.Ext {
		h.limits.Registry = append(h.limits.Registry, "extension")
	}
	return nil
}

func (h *Host) has(kind, name string) bool {
	return name == capName && (kind == kindAccel || kind == kindExt && h.config.Ext)
}

func (h *Host) list() []byte {
	kinds := []string{kindAccel}
	if h.config.Ext {
		kinds = append(kinds, kindExt)
	}
	b := appendH4(nil, uint32(len(kinds)))
	for _, kind := range kinds {
		b = appendBytes(appendH4(appendBytes(appendBytes(b, kind), capName), capFlags), "")
	}
	return b
}

func (h *Host) schema(kind string) []byte {
	var schema any = map[string]any{"id": "cap.accel.ext.v1", "backends": h.limits.Backends, "deterministic": h.limits.Deterministic, "max_module_bytes": h.limits.MaxModule}
	if kind == kindAccel {
		l := h.limits
		l.ID = "cap.accel.v1"
		schema = l
	}
	text, _ := json.Marshal(schema) // numbers and strings only
	return text
}

// open is CAPS_OPEN of cap.accel.v1.
func (h *Host) open(mode uint32, r *reader, timeout uint32) (stream, uint32, error) {
	backend := r.str()
	switch mode {
	case modeQuery:
		if err := r.end(); err != nil {
			return nil, 0, err
		}
		if !slices.Contains(h.limits.Backends, backend) {
			return nil, 0, errBackend(backend)
		}
		return &record{rest: h.query()}, hflagsRecord, nil

	case modeBuffer:
		id, bytes, flags := r.str(), r.h8(), r.h4()
		if err := r.end(); err != nil {
			return nil, 0, err
		}
		s, err := h.buffer(backend, id, bytes, flags)
		return s, hflagsBuffer, err

	case modeSubmit:
		s, err := h.submit(backend, r)
		return s, hflagsRecord, err

	case modeSync:
		id, queue := r.str(), r.str()
		if err := r.end(); err != nil {
			return nil, 0, err
		}
		s, err := h.sync(backend, id, queue, timeout)
		return s, hflagsRecord, err
	}
	return nil, 0, badParams("there is no mode %d", mode)
}

func errBackend(name string) error {
	return fail("t_accel_no_device", "there is no backend %q", name)
}

func (h *Host) query() []byte {
	var n uint32
	var list []byte
	for _, d := range h.devices {
		if !d.loads {
			continue
		}
		n++
		list = appendBytes(list, strconv.FormatUint(uint64(d.info.Index), 10))
		list = appendBytes(list, d.info.Name)
		list = appendH8(list, d.info.MemoryBytes)
		list = appendH4(list, d.limits.ComputeUnits)
		list = appendH4(list, 4) // unified: all devices share memory with the host
	}
	return append(appendH4(nil, n), list...)
}

// device finds a device by its decimal index, and opens its session when the guest first uses it.
func (h *Host) device(backend, id string) (*device, error) {
	if !slices.Contains(h.limits.Backends, backend) {
		return nil, errBackend(backend)
	}
	for _, d := range h.devices {
		if !d.loads || strconv.FormatUint(uint64(d.info.Index), 10) != id {
			continue
		}
		if d.gpu != nil {
			return d, nil
		}
		g, err := accel.Open(h.ctx, h.config.Conn, accel.Options{Index: d.info.Index, SurviveHang: true})
		if err != nil {
			return nil, err
		}
		d.gpu = g
		return d, nil
	}
	return nil, fail("t_accel_no_device", "there is no device %q", id)
}

// buffer is memory of a device. Its places for reading and for writing move with what is read and
// written, and go back to the beginning when work names it.
type buffer struct {
	d                *device
	memory           *accel.Buffer[byte, accel.Unified]
	usage            client.Usage
	reading, writing int
	last             *submission // that uses it; nil: none that was not waited for
	ended            bool
}

func (h *Host) buffer(backend, id string, bytes uint64, flags uint32) (stream, error) {
	if flags&^7 != 0 || flags&3 == 3 {
		return nil, badParams("flags are %#x: bits 0 (read_only) to 2 (pinned_host), and not both of 0 and 1", flags)
	}
	if bytes == 0 || bytes > h.limits.MaxBuffer {
		return nil, badParams("%d bytes; a buffer has 1 to %d", bytes, h.limits.MaxBuffer)
	}
	d, err := h.device(backend, id)
	if err != nil {
		return nil, err
	}
	usage := map[uint32]client.Usage{0: client.Storage, 1: client.Upload, 2: client.Readback}[flags&3]
	memory, err := accel.AllocRaw(h.ctx, d.gpu, bytes, usage)
	if err != nil {
		return nil, err
	}
	b := &buffer{d: d, memory: memory, usage: usage}
	d.buffers[b] = struct{}{}
	return b, nil
}

// bytes are the buffer's, once the work that uses it has ended, however it did.
func (b *buffer) bytes() []byte {
	b.settle()
	mem, err := accel.Slice(b.memory)
	if err != nil {
		return nil
	}
	return mem
}

func (b *buffer) settle() {
	if b.last != nil {
		b.last.wait()
		b.last = nil
	}
}

func (b *buffer) read(p []byte) int32 {
	mem := b.bytes()
	if mem == nil {
		return -1
	}
	n := copy(p[:min(len(p), maxCount)], mem[b.reading:])
	b.reading += n
	return int32(n)
}

func (b *buffer) write(p []byte) int32 {
	mem := b.bytes()
	if mem == nil || len(p) > min(maxCount, len(mem)-b.writing) {
		return -1
	}
	b.writing += copy(mem[b.writing:], p)
	return int32(len(p))
}

func (b *buffer) end() {
	b.settle()
	b.ended = true
	if b.memory.Free(context.WithoutCancel(b.d.h.ctx)) == nil {
		delete(b.d.buffers, b) // else it ends with the session
	}
}
