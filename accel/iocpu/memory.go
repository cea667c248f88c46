package iocpu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"

	"capgpu/accel"
	"capgpu/client"
	"capgpu/gpuerr"
)

// The memories of a PE.
const (
	hbm = "hbm"
	tcm = "tcm"
)

// pe is one PE: a session with two buffers. A trap poisons it alone, and leaves its memory to be read.
type pe struct {
	gpu      *accel.GPU
	hbm, tcm *accel.Buffer[byte, accel.Unified]
	kernels  map[string]*accel.Kernel // by name, or by the digest of their bytes
}

func (e *Endpoint) newPE(ctx context.Context, device uint32) (*pe, error) {
	g, err := accel.Open(ctx, e.conn, accel.Options{Index: device, SurviveHang: true})
	if err != nil {
		return nil, err
	}
	p := &pe{gpu: g, kernels: map[string]*accel.Kernel{}}
	if p.hbm, err = accel.AllocRaw(ctx, g, e.topology.HBM, client.Storage); err == nil {
		p.tcm, err = accel.AllocRaw(ctx, g, e.topology.TCM, client.Storage)
	}
	if err != nil {
		return nil, errors.Join(err, p.close(ctx))
	}
	return p, nil
}

func (p *pe) close(ctx context.Context) error {
	err := p.gpu.Close(ctx)
	for _, b := range []*accel.Buffer[byte, accel.Unified]{p.hbm, p.tcm} {
		if b != nil {
			_ = b.Free(ctx) // unmaps; the memory went with the session
		}
	}
	return err
}

// at finds a PE of the target.
func (e *Endpoint) at(target uint64, p Place) (*pe, error) {
	if p.Sip != target {
		return nil, gpuerr.New(gpuerr.Invalid, "%ssip: %d is not the target device's, which is %d", p.Field, p.Sip, target)
	}
	sip := e.topology.Sips[target]
	if p.Cube >= sip.Cubes {
		return nil, gpuerr.New(gpuerr.NoDevice, "%scube: sip %d has %d cubes", p.Field, p.Sip, sip.Cubes)
	}
	if p.PE >= sip.PEsOfCube {
		return nil, gpuerr.New(gpuerr.NoDevice, "%spe: a cube of sip %d has %d", p.Field, p.Sip, sip.PEsOfCube)
	}
	return e.pes[p.Sip][p.Cube*sip.PEsOfCube+p.PE], nil
}

// span is a range of a PE's memory.
type span struct {
	kind   string
	buffer *accel.Buffer[byte, accel.Unified]
	off, n uint64
}

// span finds the memory that holds all of a range.
func (e *Endpoint) span(p *pe, field, kind string, pa, n uint64) (span, error) {
	if kind != "TCM" && n <= e.topology.HBM && pa <= e.topology.HBM-n {
		return span{hbm, p.hbm, pa, n}, nil
	}
	if base := e.topology.TCMBase; kind != "HBM" && n <= e.topology.TCM && pa >= base && pa-base <= e.topology.TCM-n {
		return span{tcm, p.tcm, pa - base, n}, nil
	}
	return span{}, gpuerr.New(gpuerr.Invalid, "%s: no memory (%s) of the PE holds all of %d bytes at %d", field, kind, n, pa)
}

// bytes is the memory itself.
func (s span) bytes() ([]byte, error) {
	all, err := accel.Slice(s.buffer)
	if err != nil {
		return nil, err
	}
	return all[s.off : s.off+s.n], nil
}

func (e *Endpoint) write(target uint64, w *Write) ([]Hop, error) {
	p, err := e.at(target, w.Dst)
	if err != nil {
		return nil, err
	}
	s, err := e.span(p, "dst_pa", w.Kind, w.PA, w.Bytes)
	if err != nil {
		return nil, err
	}
	mem, err := s.bytes()
	if err != nil {
		return nil, err
	}
	if w.Buffer == "" {
		for n := copy(mem, w.Pattern); n < len(mem); n *= 2 {
			copy(mem[n:], mem[:n])
		}
		return e.topology.Costs.memory(w.Dst, s.kind, w.Bytes, 0, 0), nil
	}
	if err := e.fetch(w.Buffer, mem); err != nil {
		return nil, err
	}
	return e.topology.Costs.memory(w.Dst, s.kind, w.Bytes, w.Bytes, 0), nil
}

// fetch fills memory from a file of the host's, or leaves it as it is.
func (e *Endpoint) fetch(name string, mem []byte) error {
	if e.buffers == nil {
		return gpuerr.New(gpuerr.Invalid, "host_buffer_ref: this endpoint has no buffers")
	}
	st, err := fs.Stat(e.buffers, name) // a pipe would make Open wait
	if err != nil || !st.Mode().IsRegular() || uint64(st.Size()) < uint64(len(mem)) {
		return gpuerr.New(gpuerr.Invalid, "host_buffer_ref: there is no file %.80q of at least %d bytes", name, len(mem))
	}
	f, err := e.buffers.Open(name)
	if err != nil {
		return gpuerr.New(gpuerr.IO, "host_buffer_ref: %.80q cannot be opened", name)
	}
	defer f.Close()
	if _, err := io.ReadFull(f, mem); err != nil {
		return gpuerr.New(gpuerr.IO, "host_buffer_ref: %q cannot be read", name)
	}
	return nil
}

func (e *Endpoint) read(target uint64, r *Read) (hops []Hop, digest string, err error) {
	p, err := e.at(target, r.Src)
	if err != nil {
		return nil, "", err
	}
	s, err := e.span(p, "src_pa", "AUTO", r.PA, r.Bytes)
	if err != nil {
		return nil, "", err
	}
	if r.Discard {
		return e.topology.Costs.memory(r.Src, s.kind, r.Bytes, 0, 0), "", nil
	}
	mem, err := s.bytes()
	if err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(mem)
	return e.topology.Costs.memory(r.Src, s.kind, r.Bytes, 0, r.Bytes), hex.EncodeToString(sum[:]), nil
}
