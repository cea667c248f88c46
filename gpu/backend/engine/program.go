package engine

import (
	"context"
	"slices"
	"sync"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/library"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// code is a program of the device: admitted and instrumented. An engine compiles it when it is
// first launched in a workgroup and with an amount of shared memory.
type code struct {
	of           *Backend
	verified     *verify.Program
	instrumented *instrument.Program
	loaded       bool
	variants     map[shape]*variant // guarded by Backend.mu
}

// shape is what a program is compiled for.
type shape struct {
	block  program.Dim3
	shared uint32 // bytes of the dynamic array
}

// variant is a program in one shape. It has its name in all engines.
type variant struct {
	code  *code
	shape shape
	id    wire.PipelineID
	// A launch of so many workgroups took so long: the last one. Guarded by Backend.mu.
	groups uint64
	nanos  int64
}

// Info implements backend.Program.
func (c *code) Info() *backend.ProgramInfo { return &c.verified.Info }

// admitted are the programs of the library, verified and instrumented when they are first asked
// for. They do not change, and all devices share them.
var admitted = sync.OnceValue(func() map[string]func() (*code, error) {
	all := map[string]func() (*code, error){}
	for _, name := range library.Names() {
		all[name] = sync.OnceValues(func() (*code, error) {
			bundle, _ := library.Bundle(name)
			return admit(bundle)
		})
	}
	return all
})

func admit(bundle []byte) (*code, error) {
	v, err := verify.Admit(bundle, verify.DefaultLimits())
	if err != nil {
		return nil, err
	}
	i, err := instrument.Instrument(v)
	if err != nil {
		return nil, err
	}
	return &code{verified: v, instrumented: i}, nil
}

// opened are the built-in programs that were opened.
type opened struct {
	mu sync.Mutex
	// +checklocks:mu
	byName map[string]*code
	// +checklocks:mu
	names []string // that the device can run; nil: not known yet
}

// Programs implements backend.Backend: those of the library that the device can run.
func (b *Backend) Programs() []string {
	b.opened.mu.Lock()
	defer b.opened.mu.Unlock()
	if b.opened.names == nil {
		b.opened.names = []string{}
		for _, name := range library.Names() {
			if c, err := admitted()[name](); err == nil && b.fits(c) == nil {
				b.opened.names = append(b.opened.names, name)
			}
		}
	}
	return slices.Clone(b.opened.names)
}

// Builtin implements backend.Backend.
func (b *Backend) Builtin(name string) (backend.Program, error) {
	get, ok := admitted()[name]
	if !ok {
		return nil, gpuerr.New(gpuerr.NoProgram, "the device has no program %.64q", name)
	}
	b.opened.mu.Lock()
	defer b.opened.mu.Unlock()
	if c := b.opened.byName[name]; c != nil {
		return c, nil
	}

	shared, err := get()
	if err == nil {
		err = b.fits(shared)
	}
	if err != nil {
		return nil, err
	}
	c := &code{of: b, verified: shared.verified, instrumented: shared.instrumented, variants: map[shape]*variant{}}
	b.opened.byName[name] = c
	return c, nil
}

// Load implements backend.Backend.
func (b *Backend) Load(ctx context.Context, bundle []byte) (backend.Program, error) {
	c, err := admit(bundle)
	if err != nil {
		return nil, err
	}
	if err := b.fits(c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, gpuerr.New(gpuerr.Busy, "the program was not loaded in time: %v", ctx.Err())
	}
	c.of, c.loaded, c.variants = b, true, map[shape]*variant{}
	return c, nil
}

// codeLacks is the code of a program that needs more than the device has: the launch could not
// be (docs/errors.md).
const codeLacks = "P-GPU-5003"

// fits refuses a program that the device cannot run.
func (b *Backend) fits(c *code) error {
	info, d := &c.verified.Info, &b.device
	for _, f := range info.Features {
		if !slices.Contains(d.Features, f) {
			return program.Refuse(codeLacks, "", 0, "the device has no %s; describe it for what it has", f)
		}
	}
	push := c.instrumented.EntryOff + 4
	switch {
	case uint32(len(info.Bindings)) > b.maxBindings():
		return program.Refuse(codeLacks, "", 0, "the program has %d bindings, the device %d", len(info.Bindings), b.maxBindings())
	case push > d.MaxPushBytes:
		return program.Refuse(codeLacks, "", 0, "the program takes %d inline bytes, the device %d", info.InlineBytes, d.MaxPushBytes-4)
	case info.SharedBytes > d.MaxSharedBytes:
		return program.Refuse(codeLacks, "", 0, "the program has %d bytes of shared memory, the device %d", info.SharedBytes, d.MaxSharedBytes)
	case !info.BlockFree && !b.takesBlock(info.Block):
		return program.Refuse(codeLacks, "", 0, "the program's workgroup is %v, the device takes up to %v and %d lanes", info.Block, d.MaxBlock, d.MaxThreadsPerBlock)
	}
	return nil
}

func (b *Backend) maxBindings() uint32 { return min(b.device.MaxBindings-1, program.MaxBindings) }

func (b *Backend) takesBlock(block program.Dim3) bool {
	return within(block, b.device.MaxBlock) && block.Count() <= uint64(b.device.MaxThreadsPerBlock)
}

func within(d, most program.Dim3) bool { return d.X <= most.X && d.Y <= most.Y && d.Z <= most.Z }

// Release implements backend.Releaser.
func (c *code) Release() {
	b := c.of
	if !c.loaded {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range c.variants {
		for _, p := range b.procs {
			b.freePipelineLocked(p, v)
		}
		b.variants.give(uint32(v.id))
	}
	clear(c.variants)
}

// variantLocked is a program in a shape.
//
// +checklocks:b.mu
func (b *Backend) variantLocked(c *code, s shape) *variant {
	v := c.variants[s]
	if v == nil {
		v = &variant{code: c, shape: s, id: wire.PipelineID(b.variants.take())}
		c.variants[s] = v
	}
	return v
}

// pipeline is what an engine is told of a variant.
func (v *variant) pipeline() *wire.Pipeline {
	p, i, s := v.code.verified, v.code.instrumented, v.shape
	w := &wire.Pipeline{
		Module: i.Module, Entry: p.Info.Entry, Bindings: i.Binding, PushBytes: i.EntryOff + 4, Block: s.block, SharedBytes: uint32(p.Info.SharedFor(s.block)) + s.shared,
	}

	set := func(id spirv.ID, value uint64) {
		d, ok := p.Module.Decoration(id, spirv.DecorationSpecId)
		if ok && !slices.ContainsFunc(w.Constants, func(c program.Constant) bool { return c.ID == d.Args[2] }) {
			w.Constants = append(w.Constants, program.Constant{ID: d.Args[2], Value: value})
		}
	}
	for k, n := range [...]uint32{s.block.X, s.block.Y, s.block.Z} {
		if p.BlockIDs[k] != 0 {
			set(p.BlockIDs[k], uint64(n))
		}
	}
	if p.Dynamic != 0 { // SPIR-V has no empty array
		set(p.Dynamic, uint64(max(s.shared/max(p.Info.DynamicElementBytes, 1), 1)))
		w.SharedBytes = max(w.SharedBytes, p.Info.SharedBytes+p.Info.DynamicElementBytes)
	}
	for id, value := range p.Constants {
		set(id, value)
	}
	slices.SortFunc(w.Constants, func(a, b program.Constant) int { return int(int64(a.ID) - int64(b.ID)) })
	return w
}

var _ backend.Releaser = (*code)(nil)

// ids are names that are used again when what had them is no more.
type ids struct {
	last uint32
	free []uint32
}

func (n *ids) take() uint32 {
	if k := len(n.free); k > 0 {
		id := n.free[k-1]
		n.free = n.free[:k-1]
		return id
	}
	n.last++
	return n.last
}

func (n *ids) give(id uint32) { n.free = append(n.free, id) }
