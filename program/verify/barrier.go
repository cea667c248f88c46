package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

func controlBarrier(v *verifier, in *spirv.Inst, _ *typ) *program.Refusal {
	execution, r := v.scope(in, 0)
	if r != nil {
		return r
	}
	if execution != spirv.ScopeWorkgroup && execution != spirv.ScopeSubgroup {
		return v.refuse(CodeScope, in, "a barrier of scope %v; the profile has Workgroup and Subgroup", execution)
	}
	memory, r := v.scope(in, 1)
	if r != nil {
		return r
	}
	return v.semantics(in, 2, memory)
}

func memoryBarrier(v *verifier, in *spirv.Inst, _ *typ) *program.Refusal {
	scope, r := v.scope(in, 0)
	if r != nil {
		return r
	}
	return v.semantics(in, 1, scope)
}

const (
	orders = spirv.MemorySemanticsAcquire | spirv.MemorySemanticsRelease | spirv.MemorySemanticsAcquireRelease | spirv.MemorySemanticsSequentiallyConsistent
	// memories are the kinds of memory in semantics. Vulkan compilers name kinds
	// that a kernel does not have; those are ignored.
	memories = spirv.MemorySemanticsUniformMemory | spirv.MemorySemanticsWorkgroupMemory | spirv.MemorySemanticsImageMemory | spirv.MemorySemanticsOutputMemory
	ignored  = spirv.MemorySemanticsSubgroupMemory | spirv.MemorySemanticsCrossWorkgroupMemory | spirv.MemorySemanticsAtomicCounterMemory
	modelled = spirv.MemorySemanticsOutputMemory | spirv.MemorySemanticsMakeAvailable | spirv.MemorySemanticsMakeVisible
)

// semantics checks memory semantics: an OpConstant with at most one order, and none
// in the scope of one lane.
func (v *verifier) semantics(in *spirv.Inst, i int, scope spirv.Scope) *program.Refusal {
	if t := v.arg(in, i); !t.isScalar(kInt) || t.width != 32 {
		return v.badOperand(in, i, "memory semantics: a 32-bit integer")
	}

	n, ok := v.literal(in.Arg(i))
	if !ok {
		return v.badOperand(in, i, "memory semantics: an OpConstant")
	}

	s := spirv.MemorySemantics(n)
	bad := func(why string) *program.Refusal {
		return v.refuse(CodeSemantics, in, "memory semantics %#x: %s", n, why)
	}

	order := s & orders
	switch {
	case s&^(orders|memories|ignored|modelled|spirv.MemorySemanticsVolatile) != 0:
		return bad("unknown bits")

	case scope == spirv.ScopeInvocation && s != 0:
		return bad("in the scope of one lane there is nothing to order")
	case order&(order-1) != 0:
		return bad("more than one order")

	case order == spirv.MemorySemanticsSequentiallyConsistent:
		return bad("sequential consistency, which Vulkan does not have")
	case s&modelled != 0 && !v.vulkan:
		return bad("for the memory model Vulkan")

	case s&spirv.MemorySemanticsMakeAvailable != 0 && order != spirv.MemorySemanticsRelease && order != spirv.MemorySemanticsAcquireRelease,
		s&spirv.MemorySemanticsMakeVisible != 0 && order != spirv.MemorySemanticsAcquire && order != spirv.MemorySemanticsAcquireRelease:
		return bad("an availability or visibility without its order")

	case s&spirv.MemorySemanticsVolatile != 0 && (!v.vulkan || in.Op == spirv.OpControlBarrier || in.Op == spirv.OpMemoryBarrier):
		return bad("volatile")
	case s&(spirv.MemorySemanticsMakeAvailable|spirv.MemorySemanticsMakeVisible) != 0 && s&memories == 0:
		return bad("an availability or visibility of no memory")
	}

	switch in.Op {
	case spirv.OpMemoryBarrier:
		if order == 0 {
			return bad("a fence without an order")
		}
		fallthrough

	case spirv.OpControlBarrier:
		if s&memories != 0 && order == 0 || in.Op == spirv.OpMemoryBarrier && s&memories == 0 {
			return bad("an order and a kind of memory belong together")
		}

	case spirv.OpAtomicLoad:
		if order == spirv.MemorySemanticsRelease || order == spirv.MemorySemanticsAcquireRelease {
			return bad("a load that releases")
		}

	case spirv.OpAtomicStore:
		if order == spirv.MemorySemanticsAcquire || order == spirv.MemorySemanticsAcquireRelease {
			return bad("a store that acquires")
		}

	case spirv.OpAtomicCompareExchange:
		if i == 3 && (order == spirv.MemorySemanticsRelease || order == spirv.MemorySemanticsAcquireRelease) {
			return bad("a comparison that fails and releases")
		}
	}

	return nil
}

// scope is a memory scope: an OpConstant.
func (v *verifier) scope(in *spirv.Inst, i int) (spirv.Scope, *program.Refusal) {
	if t := v.arg(in, i); !t.isScalar(kInt) || t.width != 32 {
		return 0, v.badOperand(in, i, "a scope: a 32-bit integer")
	}

	n, ok := v.literal(in.Arg(i))
	if !ok {
		return 0, v.badOperand(in, i, "a scope: an OpConstant")
	}

	switch s := spirv.Scope(n); s {
	case spirv.ScopeCrossDevice, spirv.ScopeWorkgroup, spirv.ScopeSubgroup, spirv.ScopeInvocation:
		return s, nil
	case spirv.ScopeDevice:
		if v.vulkan && !v.caps[spirv.CapabilityVulkanMemoryModelDeviceScope] {
			return 0, v.refuse(CodeNeeds, in, "scope Device needs capability VulkanMemoryModelDeviceScope")
		}
		return s, nil
	case spirv.ScopeQueueFamily:
		if v.vulkan {
			return s, nil
		}
	}

	return 0, v.refuse(CodeScope, in, "scope %v is outside the profile", spirv.Scope(n))
}
