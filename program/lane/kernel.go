package lane

import (
	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// Kernel is a program compiled for one workgroup and subgroup size. It does not
// change and may have any number of workers.
type Kernel struct {
	block  program.Dim3
	lanes  int
	subs   int
	check  bool
	module *spirv.Module
	launch []step // run once, before the first workgroup
	blocks []xblock
	count  [banks]int32
	consts []fixedWord
	inputs [inCount]int32 // register; -1: not used
	shared int            // bytes
	zeros  [][2]uint32    // parts of it that begin as zeros
	priv   [2]int         // slots
	masks  int
	inline int  // used bytes of the push constant block
	piece  int  // granularity of the checker, in bytes
	fences bool // there are fences of storage buffers
	cost   Cost
	steady bool
}

type fixedWord struct {
	reg  int32
	wide bool
	bits uint64
}

// The memories of accesses: bindings by their number, and
const (
	slotShared = program.MaxBindings + iota
	slotInline
	slotCount
)

// noBinding is Trap.Binding of memory without a binding.
const noBinding = outcome.NoBinding

// xblock is a block ready to run.
type xblock struct {
	code  []step
	term  termKind
	cond  int32
	wide  bool // cond is 64 bits
	vary  bool // cond is a vector
	edges []xedge
	gone  bool // nothing is left there but to return
	cases []uint64
	to    []int32 // edge of each case, [0] of the default
	inst  *spirv.Inst
}

// xedge is an edge to another block, with the assignments to its phis.
type xedge struct {
	to     int32
	back   bool
	copies []step
}

// Compile prepares an admitted program for launches with the given options. The
// error is a *program.Refusal.
func Compile(p *verify.Program, o Options) (k *Kernel, err error) {
	if err := o.check(p); err != nil {
		return nil, err
	}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			k, err = nil, e.err
		case error:
			k, err = nil, program.Refuse("SPV-2903", "", 0, "the lane engine cannot compile this module: %v", e)
		default:
			panic(e)
		}
	}()

	f := front(p, o)
	k = f.emit(f.allocate(), o)
	k.module = p.Module
	k.inline = int(p.Info.InlineBytes)
	if n := k.CodeBytes(); n > maxCodeBytes {
		return nil, program.Refuse("SPV-2900", "", 0, "compiled, the program has %d bytes, more than %d", n, maxCodeBytes)
	}
	if n := k.MemoryBytes(); n > maxWorkerBytes {
		return nil, program.Refuse("E-GPU-4012", "", 0, "a workgroup of %d lanes needs %d bytes for registers and local variables, more than %d", k.lanes, n, maxWorkerBytes)
	}

	return k, nil
}

// front is every stage before registers: the program in internal form.
func front(p *verify.Program, o Options) *fn {
	l := newLowerer(p, o)
	f := l.run()
	f.limit *= 8 // later stages add copies and address arithmetic
	f.arrange(l.order)
	f.clean()
	f.drop()
	f.uniformity()
	f.keepValues()
	if !o.Check {
		f.findAffine()
	}

	f.fuse()
	f.splats()
	f.share()
	f.hoist()
	f.foldTerms()
	f.drop()
	f.perLaunch()
	if !o.Check {
		f.fuseLoads()
	}

	return f
}
