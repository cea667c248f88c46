package spirvtest

import (
	"fmt"
	"math"

	"capgpu/program/spirv"
)

func floatBits(f float32) uint32 { return math.Float32bits(f) }

func (b *Builder) typ(op spirv.Opcode, args ...any) spirv.ID {
	return b.once(partGlobals, op, nil, args...)
}

// Void is the type void.
func (b *Builder) Void() spirv.ID { return b.typ(spirv.OpTypeVoid) }

// Bool is the type bool.
func (b *Builder) Bool() spirv.ID { return b.typ(spirv.OpTypeBool) }

// Int is a signed integer.
func (b *Builder) Int(bits int) spirv.ID { return b.typ(spirv.OpTypeInt, bits, 1) }

// Uint is an unsigned integer.
func (b *Builder) Uint(bits int) spirv.ID { return b.typ(spirv.OpTypeInt, bits, 0) }

// Float is a float.
func (b *Builder) Float(bits int) spirv.ID { return b.typ(spirv.OpTypeFloat, bits) }

// Vec is a vector of n.
func (b *Builder) Vec(t spirv.ID, n int) spirv.ID { return b.typ(spirv.OpTypeVector, t, n) }

// Array is an array of constant length; stride 0: without a stride.
func (b *Builder) Array(t, length spirv.ID, stride uint32) spirv.ID {
	return b.strided(spirv.OpTypeArray, stride, t, length)
}

// RuntimeArray is an array with the length of the binding; stride 0: without a
// stride.
func (b *Builder) RuntimeArray(t spirv.ID, stride uint32) spirv.ID {
	return b.strided(spirv.OpTypeRuntimeArray, stride, t)
}

// strided distinguishes arrays of different strides, which have the same words.
func (b *Builder) strided(op spirv.Opcode, stride uint32, args ...any) spirv.ID {
	key := fmt.Sprint(op, Words(args...), "stride", stride)
	if id, ok := b.known[key]; ok {
		return id
	}
	id := b.ID()
	b.known[key] = id
	b.emit(partGlobals, op, id, args)
	if stride != 0 {
		b.Decorate(id, spirv.DecorationArrayStride, stride)
	}
	return id
}

// Struct is a new structure, even if there is an equal one: decorations distinguish
// them.
func (b *Builder) Struct(members ...spirv.ID) spirv.ID {
	id := b.ID()
	b.emit(partGlobals, spirv.OpTypeStruct, id, members)
	return id
}

// Block is a new structure with decoration Block and these offsets.
func (b *Builder) Block(offsets []uint32, members ...spirv.ID) spirv.ID {
	id := b.Struct(members...)
	b.Decorate(id, spirv.DecorationBlock)
	for i, off := range offsets {
		b.MemberDecorate(id, i, spirv.DecorationOffset, off)
	}
	return id
}

// Pointer is a pointer type.
func (b *Builder) Pointer(c spirv.StorageClass, t spirv.ID) spirv.ID {
	return b.typ(spirv.OpTypePointer, c, t)
}

// FuncType is a function type.
func (b *Builder) FuncType(result spirv.ID, params ...spirv.ID) spirv.ID {
	return b.typ(spirv.OpTypeFunction, result, params)
}

// Const is an OpConstant of words.
func (b *Builder) Const(t spirv.ID, words ...any) spirv.ID {
	return b.once(partGlobals, spirv.OpConstant, Words(t), words...)
}

// U32 is a constant.
func (b *Builder) U32(v uint32) spirv.ID { return b.Const(b.Uint(32), v) }

// I32 is a constant.
func (b *Builder) I32(v int32) spirv.ID { return b.Const(b.Int(32), v) }

// F32 is a constant.
func (b *Builder) F32(v float32) spirv.ID { return b.Const(b.Float(32), v) }

// U64 is a constant.
func (b *Builder) U64(v uint64) spirv.ID { return b.Const(b.Uint(64), uint32(v), uint32(v>>32)) }

// I64 is a constant.
func (b *Builder) I64(v int64) spirv.ID { return b.Const(b.Int(64), uint32(v), uint32(v>>32)) }

// F64 is a constant.
func (b *Builder) F64(v float64) spirv.ID {
	bits := math.Float64bits(v)
	return b.Const(b.Float(64), uint32(bits), uint32(bits>>32))
}

// BoolConst is true or false.
func (b *Builder) BoolConst(v bool) spirv.ID {
	op := spirv.OpConstantFalse
	if v {
		op = spirv.OpConstantTrue
	}
	return b.once(partGlobals, op, Words(b.Bool()))
}

// Null is an OpConstantNull.
func (b *Builder) Null(t spirv.ID) spirv.ID {
	return b.once(partGlobals, spirv.OpConstantNull, Words(t))
}

// Composite is an OpConstantComposite.
func (b *Builder) Composite(t spirv.ID, parts ...spirv.ID) spirv.ID {
	return b.once(partGlobals, spirv.OpConstantComposite, Words(t), parts)
}

// Spec is a new OpSpecConstant of words with a SpecId.
func (b *Builder) Spec(specID uint32, t spirv.ID, words ...any) spirv.ID {
	id := b.ID()
	b.emit(partGlobals, spirv.OpSpecConstant, t, id, words)
	return b.Decorate(id, spirv.DecorationSpecId, specID)
}

// SpecBool is a new OpSpecConstantTrue or False with a SpecId.
func (b *Builder) SpecBool(specID uint32, v bool) spirv.ID {
	op := spirv.OpSpecConstantFalse
	if v {
		op = spirv.OpSpecConstantTrue
	}
	id := b.ID()
	b.emit(partGlobals, op, b.Bool(), id)
	return b.Decorate(id, spirv.DecorationSpecId, specID)
}

// SpecComposite is a new OpSpecConstantComposite.
func (b *Builder) SpecComposite(t spirv.ID, parts ...spirv.ID) spirv.ID {
	id := b.ID()
	b.emit(partGlobals, spirv.OpSpecConstantComposite, t, id, parts)
	return id
}

// SpecOp is a new OpSpecConstantOp.
func (b *Builder) SpecOp(t spirv.ID, op spirv.Opcode, args ...any) spirv.ID {
	id := b.ID()
	b.emit(partGlobals, spirv.OpSpecConstantOp, t, id, op, args)
	return id
}

// Global is a new variable outside of functions.
func (b *Builder) Global(c spirv.StorageClass, t spirv.ID, init ...spirv.ID) spirv.ID {
	pointer := b.Pointer(c, t)
	id := b.ID()
	b.emit(partGlobals, spirv.OpVariable, pointer, id, c, init)
	b.globals = append(b.globals, id)
	return id
}

// Shared is a new variable in workgroup memory.
func (b *Builder) Shared(t spirv.ID) spirv.ID { return b.Global(spirv.StorageClassWorkgroup, t) }

// Input is a new built-in variable.
func (b *Builder) Input(t spirv.ID, builtin spirv.BuiltIn) spirv.ID {
	id := b.Global(spirv.StorageClassInput, t)
	b.inputs = append(b.inputs, id)
	return b.Decorate(id, spirv.DecorationBuiltIn, builtin)
}

// Buffer is a new storage buffer in set 0: a block of one runtime array.
func (b *Builder) Buffer(binding uint32, elem spirv.ID, stride uint32) spirv.ID {
	return b.BufferOf(binding, b.Block([]uint32{0}, b.RuntimeArray(elem, stride)))
}

// BufferOf is a new storage buffer in set 0 of a block.
func (b *Builder) BufferOf(binding uint32, block spirv.ID) spirv.ID {
	id := b.Global(spirv.StorageClassStorageBuffer, block)
	b.Decorate(id, spirv.DecorationDescriptorSet, 0)
	return b.Decorate(id, spirv.DecorationBinding, binding)
}

// Push is a new push constant block.
func (b *Builder) Push(offsets []uint32, members ...spirv.ID) spirv.ID {
	return b.Global(spirv.StorageClassPushConstant, b.Block(offsets, members...))
}
