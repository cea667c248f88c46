package lane

import "capgpu/program/spirv"

// Cost is about how long a launch takes on one worker.
type Cost struct {
	group uint64 // ns for each workgroup
	lane  uint64 // 1/16 ns for each lane of it
}

const (
	launchNanos = 40 // to begin a launch
	groupNanos  = 10 // and a workgroup of it
	stepNanos   = 4  // and an instruction
)

// Nanos is about how long a launch of so many workgroups of so many lanes takes.
func (c Cost) Nanos(groups, lanes uint64) uint64 {
	return launchNanos + groups*(c.group+c.lane*lanes>>4)
}

// Steady says whether the time of every launch depends on its grid alone, not on what
// is in memory or in the arguments (but for what the processor takes longer for
// numbers that are subnormal), and about how long it is: the code has no loop, nothing
// that contends with others for a word, and nothing that Go computes in more steps for
// some numbers than for others. It is the same for every size of the workgroup.
func (k *Kernel) Steady() (Cost, bool) { return k.cost, k.steady }

// measure finds out what Steady says.
func (k *Kernel) measure(f *fn) {
	k.steady = !k.check
	for _, x := range k.blocks {
		for _, e := range x.edges {
			k.steady = k.steady && !e.back
		}
	}
	k.cost.group = groupNanos + uint64(k.shared)/16
	add := func(v val) {
		i := &f.ins[v]
		if i.dead {
			return
		}
		per, steady := i.pace()
		k.steady = k.steady && steady
		k.cost.group += stepNanos
		if i.vary || i.void {
			k.cost.lane += per
		} else {
			k.cost.group += per / 16
		}
	}
	for n := range f.blocks {
		b := &f.blocks[n]
		for _, v := range b.ins {
			add(v)
		}
	}
	for _, v := range f.launch {
		add(v)
	}
}

// pace is how many 1/16 ns an instruction takes for a lane, about, and whether that
// depends on its numbers.
func (i *ins) pace() (per uint64, steady bool) {
	if i.op >= glslBase && i.op < iNone {
		return 32, steadyGLSL[spirv.GLSL(i.op-glslBase)]
	}
	switch i.op {
	case iAtomic, op(spirv.OpFRem), op(spirv.OpFMod):
		return 64, false
	case iSubgroup:
		return 64, true
	case iLoad, iStore, iMulLoads:
		return 24, true
	case iCopy, iBarrier, iFence, iPhi:
		return 2, true
	}
	if i.wide {
		return 16, true
	}
	return 8, true
}

// steadyGLSL are the instructions of GLSL.std.450 that take the same time for all
// numbers.
var steadyGLSL = map[spirv.GLSL]bool{
	spirv.GLSLRound: true, spirv.GLSLRoundEven: true, spirv.GLSLTrunc: true, spirv.GLSLFloor: true,
	spirv.GLSLCeil: true, spirv.GLSLFract: true, spirv.GLSLFAbs: true, spirv.GLSLSAbs: true,
	spirv.GLSLFSign: true, spirv.GLSLSSign: true, spirv.GLSLRadians: true, spirv.GLSLDegrees: true,
	spirv.GLSLSqrt: true, spirv.GLSLInverseSqrt: true, spirv.GLSLStep: true, spirv.GLSLFma: true,
	spirv.GLSLFMin: true, spirv.GLSLUMin: true, spirv.GLSLSMin: true, spirv.GLSLNMin: true,
	spirv.GLSLFMax: true, spirv.GLSLUMax: true, spirv.GLSLSMax: true, spirv.GLSLNMax: true,
	spirv.GLSLFClamp: true, spirv.GLSLUClamp: true, spirv.GLSLSClamp: true, spirv.GLSLNClamp: true,
	spirv.GLSLFMix: true, spirv.GLSLSmoothStep: true,
	spirv.GLSLFindILsb: true, spirv.GLSLFindSMsb: true, spirv.GLSLFindUMsb: true,
	spirv.GLSLPackSnorm4x8: true, spirv.GLSLPackUnorm4x8: true, spirv.GLSLPackSnorm2x16: true,
	spirv.GLSLPackUnorm2x16: true, spirv.GLSLUnpackSnorm4x8: true, spirv.GLSLUnpackUnorm4x8: true,
	spirv.GLSLUnpackSnorm2x16: true, spirv.GLSLUnpackUnorm2x16: true,
}
