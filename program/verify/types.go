package verify

import (
	"math"
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

type kind uint8

const (
	kVoid kind = 1 + iota
	kBool
	kInt
	kFloat
	kVector
	kMatrix
	kArray
	kRuntimeArray
	kStruct
	kPointer
	kFunction
)

// typ is a declared type. Types name only earlier types, so they form a graph
// without cycles, and everything below is filled bottom-up.
type typ struct {
	in      *spirv.Inst
	kind    kind
	signed  bool   // kInt
	width   uint8  // bits of kInt, kFloat, and of the components of a vector or matrix
	n       uint32 // components of a vector, columns of a matrix, elements of an array
	elem    *typ   // of vector, matrix (a column), array, pointer (pointee), function (result)
	members []*typ // of struct; of function: parameters
	class   spirv.StorageClass
	length  spirv.ID // constant of an array's length

	bytes    uint64 // in memory without explicit layout, naturally aligned; saturates at huge
	align    uint32
	depth    int
	bits     uint8 // widths in it, one bit each: see has*
	dynamic  bool  // its size depends on the length of the dynamic array
	launch   bool  // its size depends on that, or on the workgroup's size
	layout   *layout
	matrices bool         // it is or has a matrix
	leaf     program.Type // the scalar type of all its parts, "" if there is no single one
}

// huge is more bytes than anything may have.
const huge = 1 << 40

const (
	has8 = 1 << iota
	hasI16
	hasF16
	hasI64
	hasF64
	hasBool
	hasRuntime
	hasPointer

	has16 = hasI16 | hasF16
)

func (t *typ) id() spirv.ID { return t.in.Result }

// scalar is the type of a vector's components, or the type itself.
func (t *typ) scalar() *typ {
	if t.kind == kVector {
		return t.elem
	}
	return t
}

// lanes is the number of components: 1 for a scalar, 0 for a type that is neither
// scalar nor vector.
func (t *typ) lanes() uint32 {
	switch t.kind {
	case kBool, kInt, kFloat:
		return 1
	case kVector:
		return t.n
	}
	return 0
}

func (t *typ) is(k kind) bool       { return t != nil && t.lanes() > 0 && t.scalar().kind == k }
func (t *typ) isScalar(k kind) bool { return t != nil && t.kind == k }
func (t *typ) isVector(k kind) bool { return t != nil && t.kind == kVector && t.elem.kind == k }
func (t *typ) composite() bool {
	return t != nil && (t.kind == kVector || t.kind == kMatrix || t.kind == kArray || t.kind == kStruct)
}

// value reports whether instructions can have results of the type.
func (t *typ) value() bool {
	return t != nil && t.kind != kVoid && t.kind != kFunction && t.kind != kRuntimeArray && t.bits&hasRuntime == 0 &&
		(t.kind == kPointer || t.bits&hasPointer == 0)
}

// declare adds the type that in declares.
func (v *verifier) declare(in *spirv.Inst) *program.Refusal {
	t := typ{in: in}
	var r *program.Refusal
	switch in.Op {
	case spirv.OpTypeVoid:
		t.kind = kVoid

	case spirv.OpTypeBool:
		t.kind, t.bytes, t.align, t.bits = kBool, 4, 4, hasBool
	case spirv.OpTypeInt, spirv.OpTypeFloat:
		r = v.declareNumber(in, &t)

	case spirv.OpTypeVector:
		r = v.declareVector(in, &t)
	case spirv.OpTypeMatrix:
		r = v.declareMatrix(in, &t)
	case spirv.OpTypeArray, spirv.OpTypeRuntimeArray:
		r = v.declareArray(in, &t)

	case spirv.OpTypeStruct:
		r = v.declareStruct(in, &t)
	case spirv.OpTypePointer:
		r = v.declarePointer(in, &t)

	case spirv.OpTypeFunction:
		r = v.declareFunction(in, &t)
	default:
		return v.refuse(CodeType, in, "outside the profile")
	}

	if r != nil {
		return r
	}
	if t.depth > v.lim.TypeDepth {
		return v.refuse(CodeDeep, in, "types nested deeper than %d", v.lim.TypeDepth)
	}
	if t.kind != kArray && t.kind != kRuntimeArray && t.kind != kStruct && t.kind != kPointer && v.declared(in) {
		return v.refuse(CodeDeclaration, in, "the type is declared before")
	}

	t.leaf = t.findLeaf()
	t.matrices = t.kind == kMatrix || t.kind != kPointer && t.kind != kFunction &&
		(t.elem != nil && t.elem.matrices || slices.ContainsFunc(t.members, func(m *typ) bool { return m.matrices }))
	v.types = append(v.types, t) // never beyond its capacity: pointers into it stay
	v.ids[in.Result] = idInfo{what: isType, typ: &v.types[len(v.types)-1]}
	return nil
}

func (v *verifier) declareNumber(in *spirv.Inst, t *typ) *program.Refusal {
	width := uint32(in.Arg(0))
	t.kind, t.width = kInt, uint8(width)
	needs := map[uint32]spirv.Capability{8: spirv.CapabilityInt8, 16: spirv.CapabilityInt16, 64: spirv.CapabilityInt64}
	if in.Op == spirv.OpTypeFloat {
		t.kind = kFloat
		needs = map[uint32]spirv.Capability{16: spirv.CapabilityFloat16, 64: spirv.CapabilityFloat64}
	} else if sign := in.Arg(1); sign > 1 {
		return v.refuse(CodeDeclaration, in, "signedness %d", sign)
	} else {
		t.signed = sign == 1
	}

	need, ok := needs[width]
	if !ok && width != 32 {
		return v.refuse(CodeType, in, "%d bits are outside the profile", width)
	}

	switch {
	case width == 8 && (v.caps[need] || v.caps[spirv.CapabilityStorageBuffer8BitAccess] || v.caps[spirv.CapabilityStoragePushConstant8]):
		t.bits |= has8
	case width == 16 && (v.caps[need] || v.caps[spirv.CapabilityStorageBuffer16BitAccess] || v.caps[spirv.CapabilityStoragePushConstant16] || v.caps[spirv.CapabilityStorageInputOutput16]):
		if t.bits |= hasI16; t.kind == kFloat {
			t.bits = hasF16
		}
	case width == 64 && v.caps[need] && t.kind == kFloat:
		t.bits |= hasF64
	case width == 64 && v.caps[need]:
		t.bits |= hasI64
	case width != 32:
		return v.refuse(CodeNeeds, in, "%d bits need capability %v", width, need)
	}

	t.bytes, t.align = uint64(width/8), width/8
	return nil
}

func (v *verifier) declareVector(in *spirv.Inst, t *typ) *program.Refusal {
	e, n := v.typeAt(in.Arg(0)), uint32(in.Arg(1))
	if e == nil || e.kind != kBool && e.kind != kInt && e.kind != kFloat {
		return v.refuse(CodeDeclaration, in, "components of %%%d, which is no scalar type", in.Arg(0))
	}
	if n < 2 || n > 4 {
		return v.refuse(CodeType, in, "%d components; the profile has 2 to 4", n)
	}
	t.kind, t.elem, t.n, t.width, t.bits = kVector, e, n, e.width, e.bits
	t.bytes, t.align, t.depth = e.bytes*uint64(n), e.align, 0
	return nil
}

func (v *verifier) declareMatrix(in *spirv.Inst, t *typ) *program.Refusal {
	e, n := v.typeAt(in.Arg(0)), uint32(in.Arg(1))
	if !e.isVector(kFloat) || n < 2 || n > 4 {
		return v.refuse(CodeDeclaration, in, "%d columns of %%%d; a matrix has 2 to 4 vectors of floats", n, in.Arg(0))
	}
	t.kind, t.elem, t.n, t.width, t.bits = kMatrix, e, n, e.width, e.bits
	t.bytes, t.align = e.bytes*uint64(n), e.align
	return nil
}

func (v *verifier) declareArray(in *spirv.Inst, t *typ) *program.Refusal {
	e := v.typeAt(in.Arg(0))
	if e == nil || e.kind == kVoid || e.kind == kFunction {
		return v.refuse(CodeDeclaration, in, "elements of %%%d, which is no type of values", in.Arg(0))
	}
	if e.bits&hasRuntime != 0 && (e.kind != kStruct || in.Op == spirv.OpTypeRuntimeArray) {
		return v.refuse(CodeDeclaration, in, "elements without a size") // other than an array of buffers
	}
	if e.bits&hasPointer != 0 {
		return v.refuse(CodePointer, in, "an array of pointers")
	}

	t.elem, t.bits, t.align, t.depth = e, e.bits, e.align, e.depth+1
	if in.Op == spirv.OpTypeRuntimeArray {
		t.kind, t.bytes, t.bits = kRuntimeArray, 0, e.bits|hasRuntime
		t.dynamic, t.launch = e.dynamic, e.launch
		return nil
	}

	t.kind, t.length = kArray, in.Arg(1)
	c := v.constant(t.length)
	if c == nil || c.typ.kind != kInt || c.form != scalarForm {
		return v.refuse(CodeDeclaration, in, "length %%%d is no integer constant", t.length)
	}
	t.dynamic = c.deps&depShared != 0 || e.dynamic
	t.launch = t.dynamic || c.deps&depBlock != 0 || e.launch
	if c.deps&depShared != 0 && t.length != v.roles.dynamic {
		return v.refuse(CodeSpecID, in, "the length is computed from that of the dynamic array, and must be it")
	}

	n := c.bits
	if c.typ.signed && c.typ.width < 64 && n>>(c.typ.width-1)&1 != 0 || n == 0 || n>>63 != 0 {
		return v.refuse(CodeDeclaration, in, "a length of %d", int64(n))
	}
	if n > math.MaxInt32 {
		return v.refuse(CodeLarge, in, "%d elements", n)
	}

	t.n = uint32(n)
	t.bytes = huge
	if e.bytes == 0 || n <= huge/e.bytes {
		t.bytes = e.bytes * n
	}

	return nil
}

func (v *verifier) declareStruct(in *spirv.Inst, t *typ) *program.Refusal {
	if t.kind, t.align = kStruct, 1; len(in.Args) == 0 {
		return v.refuse(CodeType, in, "a struct without members")
	}

	t.members = make([]*typ, len(in.Args))
	for i := range in.Args {
		e := v.typeAt(in.Arg(i))
		if e == nil || e.kind == kVoid || e.kind == kFunction {
			return v.refuse(CodeDeclaration, in, "member %d of %%%d, which is no type of values", i, in.Arg(i))
		}
		if e.bits&hasPointer != 0 {
			return v.refuse(CodePointer, in, "member %d is a pointer", i)
		}
		if e.bits&hasRuntime != 0 && (e.kind != kRuntimeArray || i != len(in.Args)-1) {
			return v.refuse(CodeDeclaration, in, "member %d has no size and is not an array at the end", i)
		}

		t.members[i] = e
		t.bits |= e.bits
		t.dynamic, t.launch = t.dynamic || e.dynamic, t.launch || e.launch
		t.align = max(t.align, e.align)
		t.depth = max(t.depth, e.depth+1)
		t.bytes = min(huge, roundUp(t.bytes, e.align)+e.bytes)
	}

	t.bytes = min(huge, roundUp(t.bytes, t.align))
	return nil
}

func (v *verifier) declarePointer(in *spirv.Inst, t *typ) *program.Refusal {
	class, e := spirv.StorageClass(in.Arg(0)), v.typeAt(in.Arg(1))
	switch class {
	case spirv.StorageClassFunction, spirv.StorageClassPrivate, spirv.StorageClassWorkgroup, spirv.StorageClassUniform,
		spirv.StorageClassPushConstant, spirv.StorageClassInput:
	case spirv.StorageClassStorageBuffer:
		if v.m.Version < version13 && !v.exts[extStorage] {
			return v.refuse(CodeNeeds, in, "storage class StorageBuffer needs SPIR-V 1.3 or extension %s", extStorage)
		}
	case spirv.StorageClassPhysicalStorageBuffer:
		return v.refuse(CodeHostMemory, in, "physical addresses: memory is reached by bindings only")
	case spirv.StorageClassCodeSectionINTEL:
		return v.refuse(CodeDispatch, in, "function pointers")
	case spirv.StorageClassGeneric:
		return v.refuse(CodeHeap, in, "generic pointers")
	default:
		return v.refuse(CodeClass, in, "storage class %v is outside the profile", class)
	}

	if e == nil || e.kind == kVoid {
		return v.refuse(CodeDeclaration, in, "a pointer to %%%d, which is no type of values", in.Arg(1))
	}
	if e.kind == kFunction {
		return v.refuse(CodeDispatch, in, "a pointer to a function")
	}
	if e.bits&hasPointer != 0 && (class != spirv.StorageClassFunction && class != spirv.StorageClassPrivate || !v.choosable(e)) {
		return v.refuse(CodePointer, in, "a pointer to a pointer")
	}

	t.kind, t.class, t.elem, t.bits, t.depth = kPointer, class, e, hasPointer, e.depth
	t.bytes, t.align = 8, 8
	return nil
}

func (v *verifier) declareFunction(in *spirv.Inst, t *typ) *program.Refusal {
	t.kind, t.elem = kFunction, v.typeAt(in.Arg(0))
	if t.elem == nil || t.elem.kind != kVoid && !t.elem.value() {
		return v.refuse(CodeDeclaration, in, "a result of %%%d, which is no type of values", in.Arg(0))
	}
	if t.elem.kind == kPointer && !v.choosable(t.elem) {
		return v.refuse(CodePointer, in, "a function that returns a pointer")
	}

	t.members = make([]*typ, len(in.Args)-1)
	for i := range t.members {
		e := v.typeAt(in.Arg(i + 1))
		if !e.value() {
			return v.refuse(CodeDeclaration, in, "parameter %d of %%%d, which is no type of values", i, in.Arg(i+1))
		}
		t.members[i] = e
	}

	return nil
}

// roundUp is the next multiple of align from n up.
func roundUp(n uint64, align uint32) uint64 {
	a := uint64(max(align, 1))
	return (n + a - 1) / a * a
}
