package lane

import (
	"math"
	"math/bits"

	"capgpu/program/spirv"
)

// Cost approximates the time of a launch on one worker.
type Cost struct {
	group uint64 // ns for each workgroup
	lane  uint64 // 1/16 ns for each lane of it
}

const (
	launchNanos = 40 // to begin a launch
	groupNanos  = 10 // and a workgroup of it
	stepNanos   = 4  // and an instruction
)

// Nanos approximates the time of a launch of this many workgroups of this many
// lanes.
func (c Cost) Nanos(groups, lanes uint64) uint64 {
	high, inLanes := bits.Mul64(c.lane, lanes)
	over, n := bits.Mul64(groups, c.group+inLanes>>4)
	if high|over != 0 || n > math.MaxInt64 {
		return math.MaxInt64
	}
	return launchNanos + n
}

// Steady reports whether the time of every launch depends only on its grid, not on
// the contents of memory or the arguments (except for subnormal numbers, and for
// memory outside the processor's caches), and approximates it. The code then has no
// loop, no contention for a word, and nothing that Go computes in a varying number
// of steps. The result is for the size for which the kernel was compiled: in
// another size other code may be left out.
func (k *Kernel) Steady() (Cost, bool) { return k.cost, k.steady }

// measure computes the result of Steady.
func (k *Kernel) measure(f *fn) {
	k.steady = !k.check
	for n := range k.blocks {
		k.ends(&k.blocks[n], len(k.blocks)-n)
	}
	k.cost.group += groupNanos + uint64(k.shared)/16
	for n := range f.blocks {
		for _, v := range f.blocks[n].ins {
			k.adds(f, &f.ins[v])
		}
	}
	for _, v := range f.launch {
		k.adds(f, &f.ins[v])
	}
}

// adds counts an instruction.
func (k *Kernel) adds(f *fn, i *ins) {
	if i.dead {
		return
	}
	per, steady := f.pace(i)
	k.steady = k.steady && steady
	k.cost.group += stepNanos
	if i.vary || i.void {
		k.cost.lane += per
	} else {
		k.cost.group += per / 16
	}
}

// ends counts the end of a block with this many blocks after it. If lanes diverge,
// their masks are scanned for each way, and waiting lanes are searched in the
// blocks that follow.
func (k *Kernel) ends(x *xblock, following int) {
	ways := uint64(len(x.edges))
	k.cost.group += stepNanos
	if x.vary && ways > 1 {
		k.cost.group += ways*stepNanos + uint64(following)/8
		k.cost.lane += ways * wayPace
		if x.term == termSwitch {
			k.cost.lane += ways*wayPace + uint64(bits.Len(uint(len(x.cases))))*choosePace
		}
	}
	for _, e := range x.edges {
		k.steady = k.steady && !e.back
		k.cost.group += stepNanos * uint64(len(e.copies))
		k.cost.lane += copyPace * uint64(len(e.copies))
	}
}

// In 1/16 ns for each lane.
const (
	copyPace   = 4  // of a value where blocks meet
	wayPace    = 8  // a way out of a block
	choosePace = 64 // to halve the cases of a switch
	slotPace   = 8  // a word of private memory that is cleared
)

// pace approximates the 1/16 ns that an instruction takes for a lane, and reports
// whether that is independent of its operands.
func (f *fn) pace(i *ins) (per uint64, steady bool) {
	if i.op >= glslBase && i.op < iNone {
		set := spirv.GLSL(i.op - glslBase)
		if set >= spirv.GLSLPackSnorm4x8 && set <= spirv.GLSLPackDouble2x32 {
			return 96, steadyGLSL[set]
		}
		return 32, steadyGLSL[set]
	}

	switch i.op {
	case iModf, iFrexp:
		return 112, true

	case iPack4:
		return 160, true
	case iUnpack:
		return 32, true

	case iAtomic, iAtomicAt, op(spirv.OpFRem), op(spirv.OpFMod):
		return 64, false
	case iSubgroup, iLoadAt, iStoreAt:
		return 64, true

	case iLoad, iStore:
		return f.accessPace(i), true
	case iMulLoads: // in neighbouring lanes
		return 24, true

	case iClearVar:
		v := f.vars[i.aux]
		if v.wide {
			return 2 * slotPace * uint64(v.bytes), true
		}
		return slotPace * uint64(v.bytes), true

	case iCopy, iBarrier, iFence, iPhi:
		return 2, true
	}

	if i.wide {
		return 16, true
	}

	return 8, true
}

// accessPace is pace for an access. An access with lanes that are far apart misses
// the processor's caches more often, and goes lane by lane.
func (f *fn) accessPace(i *ins) uint64 {
	m := &f.mems[i.aux]
	if m.v.class == classPrivate {
		return 48
	}
	for k := range m.terms {
		if t := &m.terms[k]; t.affine && t.stride >= 64 || !t.affine && f.varying(i.args[t.at]) {
			return 64
		}
	}
	return 24
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
