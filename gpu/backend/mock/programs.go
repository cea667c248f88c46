package mock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/native"
	"capgpu/program/verify"
)

// code is a program of the device: admitted, and proven to compile.
type code struct {
	program *verify.Program
	body    *native.Body // the fast way, if there is one
	spins   bool         // it is spin, which waits instead of burning the host's CPU

	steady bool // on the lane engine, where cost is about what it takes
	cost   lane.Cost

	dev  *Device     // of one that was loaded
	kept atomic.Bool // it has variants; the engine says so

	// The engine's from the first launch on: what it is compiled for.
	first    *lane.Kernel // for the default workgroup; nil: not kept, or among the variants
	variants []*variant
}

// Info implements backend.Program.
func (c *code) Info() *backend.ProgramInfo { return &c.program.Info }

// builtins are the programs of the library, admitted when they are first asked
// for. An admitted program does not change, and all devices share it.
var builtins = sync.OnceValue(func() map[string]func() (*verify.Program, error) {
	all := map[string]func() (*verify.Program, error){}
	for _, name := range library.Names() {
		all[name] = sync.OnceValues(func() (*verify.Program, error) {
			bundle, _ := library.Bundle(name)
			return verify.Admit(bundle, verify.DefaultLimits())
		})
	}
	return all
})

// builtinKernels are what programs of the library are compiled to, by form. A kernel
// does not change either; only those that somebody opened are here.
var builtinKernels sync.Map // kernelOf → *lane.Kernel

// kernelOf names a kernel: a program of the library for a subgroup.
type kernelOf struct {
	name     string
	subgroup int
}

// Programs implements backend.Backend.
func (d *Device) Programs() []string { return library.Names() }

// Builtin implements backend.Backend.
func (d *Device) Builtin(name string) (backend.Program, error) {
	admit, ok := builtins()[name]
	if !ok {
		return nil, gpuerr.New(gpuerr.NoProgram, "the mock device has no program %.64q", name)
	}
	d.opened.mu.Lock()
	defer d.opened.mu.Unlock()
	if c := d.opened.byName[name]; c != nil {
		return c, nil
	}
	p, err := admit()
	if err != nil {
		return nil, err
	}
	key := kernelOf{name, d.subgroup}
	kernel, ok := builtinKernels.Load(key)
	if !ok {
		if kernel, err = lane.Compile(p, lane.Options{SubgroupSize: d.subgroup}); err != nil {
			return nil, err
		}
		kernel, _ = builtinKernels.LoadOrStore(key, kernel)
	}
	c := d.codeOf(p, kernel.(*lane.Kernel))
	spin, _ := library.Digest("spin")
	c.spins = p.Info.Digest == spin
	d.opened.byName[name] = c
	return c, nil
}

// Load implements backend.Backend.
func (d *Device) Load(ctx context.Context, bundle []byte) (backend.Program, error) {
	p, err := verify.Admit(bundle, verify.DefaultLimits())
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, gaveUp(ctx)
	}
	var stop atomic.Uint32
	defer context.AfterFunc(ctx, func() { stop.Store(1) })()
	c, err := d.compile(p, &stop)
	switch {
	case errors.Is(err, lane.ErrStopped):
		return nil, gaveUp(ctx)
	case err != nil:
		return nil, err // not a nil *code in an interface
	}
	c.dev = d
	return c, nil
}

func gaveUp(ctx context.Context) error {
	return gpuerr.New(gpuerr.Busy, "the program was not loaded in time: %v", ctx.Err())
}

// compile finds out what a launch would meet.
func (d *Device) compile(p *verify.Program, stop *atomic.Uint32) (*code, error) {
	kernel, err := lane.Compile(p, lane.Options{SubgroupSize: d.subgroup, Stop: stop})
	if err != nil {
		return nil, err
	}
	return d.codeOf(p, kernel), nil
}

func (d *Device) codeOf(p *verify.Program, kernel *lane.Kernel) *code {
	c := &code{program: p}
	c.cost, c.steady = kernel.Steady()
	if kernel.CodeBytes() <= maxFirstBytes+maxFirstFactor*4*len(p.Module.Words) {
		c.first = kernel
	}
	if !d.laneOnly {
		c.body, _ = native.Lookup(p.Info.Digest)
	}
	return c
}

// Release implements backend.Releaser. The kept form of a program is the engine's: it finds
// a note when it next looks for work, which is now. A program without a kept form needs no
// note, so that notes are as few as kept forms.
func (c *code) Release() {
	d := c.dev
	if d == nil || !c.kept.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == live {
		d.released = append(d.released, c)
		signal(d.work)
	}
}

var _ backend.Releaser = (*code)(nil)
