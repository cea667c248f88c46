package verify

import (
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// variable is a variable outside functions.
type variable struct {
	id   spirv.ID
	typ  *typ // what it holds
	in   *spirv.Inst
	used bool // by a function that the entry point reaches
}

// buffer is a binding of a storage or uniform buffer, with its first variable.
type buffer struct {
	variable
	views       []spirv.ID     // its other variables
	use         program.Access // by the code
	access      program.Access // allowed by the decorations
	orders      uint16         // sorts of atomic operations on it, see atomicOrder
	bits        uint8          // widths in it: see has*
	description program.Binding
}

// globals checks types, constants and variables, in the order of the module: an
// object does not exist before its definition.
func (v *verifier) globals() *program.Refusal {
	v.types = make([]typ, 0, v.count(isType))
	v.consts = make([]constant, 0, v.count(isConstant))
	v.uniq = make(map[uint64]*spirv.Inst, cap(v.types))
	for i := range v.m.Globals {
		in := &v.m.Globals[i]
		var r *program.Refusal
		switch class(in.Op) {
		case isType:
			r = v.declare(in)

		case isConstant, isUndef:
			r = v.declareConstant(in)
		case isVariable:
			r = v.declareVariable(in)

		default:
			switch in.Op {
			case spirv.OpNop, spirv.OpLine, spirv.OpNoLine:
			case spirv.OpExtInst:
				if s := v.info(in.Arg(0)); s.what != isImport || in.Arg(0) == v.glsl {
					r = v.refuse(CodeOrder, in, "an extended instruction outside functions")
				}
			case spirv.OpConstantFunctionPointerINTEL:
				r = v.refuse(CodeDispatch, in, "a function pointer")
			default:
				r = v.refuse(CodeOpcode, in, "outside the profile")
			}
		}

		if r != nil {
			return r
		}
	}

	if r := v.manifestConstants(); r != nil {
		return r
	}

	return v.placeBuffers()
}

// class is the kind of a global instruction's result.
func class(op spirv.Opcode) idKind {
	switch {
	case op >= spirv.OpTypeVoid && op <= spirv.OpTypeForwardPointer:
		return isType
	case op >= spirv.OpConstantTrue && op <= spirv.OpSpecConstantOp:
		return isConstant
	case op == spirv.OpUndef:
		return isUndef
	case op == spirv.OpVariable:
		return isVariable
	}
	return isNothing
}

func (v *verifier) count(what idKind) (n int) {
	for i := range v.m.Globals {
		if class(v.m.Globals[i].Op) == what {
			n++
		}
	}
	return n
}

// declared reports whether a type with the same words was declared before, and
// records this one. Two different types with the same hash are not distinguished,
// which lets a repeated one pass. That is harmless, because types are compared by
// id.
func (v *verifier) declared(in *spirv.Inst) bool {
	h := uint64(14695981039346656037)
	mix := func(w uint32) { h = (h ^ uint64(w)) * 1099511628211; h ^= h >> 29 }
	mix(uint32(in.Op))
	for _, w := range in.Args {
		mix(w)
	}
	before, ok := v.uniq[h]
	if !ok {
		v.uniq[h] = in
		return false
	}
	return before.Op == in.Op && slices.Equal(before.Args, in.Args)
}

func (v *verifier) declareVariable(in *spirv.Inst) *program.Refusal {
	t := v.typeAt(in.Type)
	if t == nil || t.kind != kPointer {
		return v.refuse(CodeVariable, in, "%%%d is no pointer type", in.Type)
	}
	if class := spirv.StorageClass(in.Arg(0)); class != t.class {
		return v.refuse(CodeVariable, in, "storage class %v, and %v in its type", class, t.class)
	}

	x := variable{id: in.Result, typ: t.elem, in: in}
	v.ids[in.Result] = idInfo{what: isVariable, typ: t, root: in.Result, num: -1}
	if t.elem.bits&hasRuntime != 0 && t.class != spirv.StorageClassStorageBuffer && t.class != spirv.StorageClassUniform {
		return v.refuse(CodeVariable, in, "a variable without a size")
	}

	if len(in.Args) > 1 {
		init := v.info(in.Arg(1))
		null := t.class == spirv.StorageClassWorkgroup && init.what == isConstant && v.consts[init.num].in.Op == spirv.OpConstantNull
		if t.class != spirv.StorageClassPrivate && !null {
			return v.refuse(CodeVariable, in, "an initializer in storage class %v; shared memory may begin as OpConstantNull", t.class)
		}
		if init.what != isConstant || init.typ != t.elem {
			return v.refuse(CodeVariable, in, "initializer %%%d is no constant of its type", in.Arg(1))
		}
	}

	switch {
	case t.elem.dynamic && t.class != spirv.StorageClassWorkgroup:
		return v.refuse(CodeSpecID, in, "the dynamic array's length outside shared memory")
	case t.elem.launch && t.class != spirv.StorageClassWorkgroup && t.class != spirv.StorageClassPrivate:
		return v.refuse(CodeSpecID, in, "the length of an array in storage class %v depends on the launch's block", t.class)
	}
	if r := v.narrow(in, t); r != nil {
		return r
	}

	if t.class == spirv.StorageClassWorkgroup && len(in.Args) > 1 && t.elem.dynamic {
		return v.refuse(CodeSpecID, in, "a dynamic array with an initializer")
	}

	switch t.class {
	case spirv.StorageClassPrivate:
		v.iface.private = min(huge, v.iface.private+roundUp(t.elem.bytes, 4))
	case spirv.StorageClassWorkgroup:
		v.ids[in.Result].num = int32(len(v.iface.shared))
		v.iface.shared = append(v.iface.shared, x)
	case spirv.StorageClassInput:
		return v.builtIn(in, t.elem)
	case spirv.StorageClassStorageBuffer, spirv.StorageClassUniform:
		return v.declareBuffer(x, t.class)
	case spirv.StorageClassPushConstant:
		return v.declareInline(x)
	default:
		return v.refuse(CodeVariable, in, "storage class %v outside a function", t.class)
	}

	return nil
}

var narrowNeeds = []struct {
	bit   uint8
	needs spirv.Capability
}{{has8, spirv.CapabilityInt8}, {hasI16, spirv.CapabilityInt16}, {hasF16, spirv.CapabilityFloat16}}

// narrow checks that a variable outside buffers may have 8 and 16 bits: the storage
// capabilities are only for buffers.
func (v *verifier) narrow(in *spirv.Inst, t *typ) *program.Refusal {
	if t.class == spirv.StorageClassStorageBuffer || t.class == spirv.StorageClassUniform || t.class == spirv.StorageClassPushConstant {
		return nil // they have capabilities of their own
	}
	for _, n := range narrowNeeds {
		if t.elem.bits&n.bit != 0 && !v.caps[n.needs] {
			return v.refuse(CodeNeeds, in, "a variable of 8 or 16 bits outside buffers needs capability %v", n.needs)
		}
	}
	return nil
}

func (v *verifier) declareInline(x variable) *program.Refusal {
	in, s := x.in, x.typ
	if v.iface.inline != 0 {
		return v.refuse(CodeInline, in, "a second block of push constants")
	}
	if s.kind != kStruct || v.dec(s.id(), spirv.DecorationBlock) == nil {
		return v.refuse(CodeLayout, in, "push constants that are no Block")
	}
	if s.bits&(hasBool|hasPointer) != 0 {
		return v.refuse(CodeCapture, in, "a bool in push constants; a kernel is handed integers and floats")
	}
	if s.bits&has16 != 0 && !v.caps[spirv.CapabilityStoragePushConstant16] || s.bits&has8 != 0 && !v.caps[spirv.CapabilityStoragePushConstant8] {
		return v.refuse(CodeNeeds, in, "8 or 16 bits in push constants need capability StoragePushConstant8 or StoragePushConstant16")
	}
	if r := v.layoutOf(s); r != nil {
		return r
	}
	if s.layout.bytes > uint64(v.lim.InlineBytes) {
		return v.refuse(CodeInline, in, "%d bytes of push constants; the limit is %d", s.layout.bytes, v.lim.InlineBytes)
	}

	v.iface.inline = in.Result
	return nil
}

// builtIns are the inputs of the profile: how many 32-bit integers each has, and
// the capability that it needs.
var builtIns = map[spirv.BuiltIn]struct {
	n     uint32
	needs spirv.Capability
}{
	spirv.BuiltInNumWorkgroups:             {3, spirv.CapabilityShader},
	spirv.BuiltInWorkgroupId:               {3, spirv.CapabilityShader},
	spirv.BuiltInLocalInvocationId:         {3, spirv.CapabilityShader},
	spirv.BuiltInGlobalInvocationId:        {3, spirv.CapabilityShader},
	spirv.BuiltInLocalInvocationIndex:      {1, spirv.CapabilityShader},
	spirv.BuiltInSubgroupSize:              {1, spirv.CapabilityGroupNonUniform},
	spirv.BuiltInSubgroupLocalInvocationId: {1, spirv.CapabilityGroupNonUniform},
	spirv.BuiltInNumSubgroups:              {1, spirv.CapabilityGroupNonUniform},
	spirv.BuiltInSubgroupId:                {1, spirv.CapabilityGroupNonUniform},
	spirv.BuiltInSubgroupEqMask:            {4, spirv.CapabilityGroupNonUniformBallot},
	spirv.BuiltInSubgroupGeMask:            {4, spirv.CapabilityGroupNonUniformBallot},
	spirv.BuiltInSubgroupGtMask:            {4, spirv.CapabilityGroupNonUniformBallot},
	spirv.BuiltInSubgroupLeMask:            {4, spirv.CapabilityGroupNonUniformBallot},
	spirv.BuiltInSubgroupLtMask:            {4, spirv.CapabilityGroupNonUniformBallot},
}

func (v *verifier) builtIn(in *spirv.Inst, t *typ) *program.Refusal {
	d := v.dec(in.Result, spirv.DecorationBuiltIn)
	if d == nil {
		return v.refuse(CodeInterface, in, "an input that is no built-in")
	}

	b := spirv.BuiltIn(d.Arg(2))
	rule, ok := builtIns[b]
	if !ok {
		return v.refuse(CodeBuiltIn, in, "built-in %v is outside the profile", b)
	}
	if !v.caps[rule.needs] {
		return v.refuse(CodeNeeds, in, "built-in %v needs capability %v", b, rule.needs)
	}
	if !t.is(kInt) || t.scalar().width != 32 || t.lanes() != rule.n {
		return v.refuse(CodeVariable, in, "built-in %v has %d 32-bit integers", b, rule.n)
	}

	v.ids[in.Result].num = int32(b)
	return nil
}
