package spirvtest

import (
	"encoding/binary"
	"fmt"
	"reflect"

	"capgpu/program/spirv"
)

// Builder assembles a module. It keeps the sections apart, so that types and
// constants may be requested in the middle of a function.
type Builder struct {
	Version   uint32 // 0x00010300
	Generator uint32

	next  spirv.ID
	parts [partFunctions + 1][]uint32
	known map[string]spirv.ID // types, constants, imports and decorated twice, by their words

	inputs, globals []spirv.ID // variables

	entry  []uint32 // the function at hand, up to where its variables go
	locals []uint32
	blocks []uint32
	params []spirv.ID
	open   bool // in a function, after its first label
	fn     bool
}

type part int

const (
	partCapabilities part = iota
	partExtensions
	partImports
	partModel
	partEntries
	partModes
	partStrings
	partNames
	partAnnotations
	partGlobals
	partFunctions
)

// New is a module of SPIR-V 1.3 with capability Shader and the GLSL450 memory
// model.
func New() *Builder {
	b := Bare()
	b.Capability(spirv.CapabilityShader)
	b.Model(spirv.AddressingModelLogical, spirv.MemoryModelGLSL450)
	return b
}

// Bare is a module with a header and nothing else.
func Bare() *Builder {
	return &Builder{Version: 0x10300, next: 1, known: map[string]spirv.ID{}}
}

// Bytes is the module so far, little-endian. A function that has not ended is left
// out.
func (b *Builder) Bytes() []byte {
	words := []uint32{0x07230203, b.Version, b.Generator, uint32(b.next), 0}
	for _, p := range b.parts {
		words = append(words, p...)
	}
	out := make([]byte, 4*len(words))
	for i, w := range words {
		binary.LittleEndian.PutUint32(out[4*i:], w)
	}
	return out
}

// ID is a new id, for example for a label that is branched to before it is written.
func (b *Builder) ID() spirv.ID {
	b.next++
	return b.next - 1
}

// Words turns operands into words: ids, integers and enumerants are one word, a
// float32 its bits, a string as many as it needs, and a slice its elements.
func Words(args ...any) []uint32 {
	var out []uint32
	for _, a := range args {
		switch a := a.(type) {
		case string:
			out = append(out, text(a)...)
			continue
		case []any:
			out = append(out, Words(a...)...)
			continue
		}

		v := reflect.ValueOf(a)
		switch {
		case v.CanUint():
			out = append(out, uint32(v.Uint()))
		case v.CanInt():
			out = append(out, uint32(v.Int()))
		case v.Kind() == reflect.Float32:
			out = append(out, floatBits(float32(v.Float())))
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				out = append(out, Words(v.Index(i).Interface())...)
			}
		default:
			panic(fmt.Sprintf("spirvtest: %T is no operand", a))
		}
	}

	return out
}

func text(s string) []uint32 {
	out := make([]uint32, len(s)/4+1)
	for i := range len(s) {
		out[i/4] |= uint32(s[i]) << (8 * (i % 4))
	}
	return out
}

func inst(op spirv.Opcode, words []uint32) []uint32 {
	return append([]uint32{uint32(len(words)+1)<<16 | uint32(op)}, words...)
}

func (b *Builder) emit(p part, op spirv.Opcode, args ...any) {
	b.parts[p] = append(b.parts[p], inst(op, Words(args...))...)
}

// once is the id of an instruction that is needed only once. Its result comes after
// the words of head.
func (b *Builder) once(p part, op spirv.Opcode, head []uint32, tail ...any) spirv.ID {
	words := Words(tail...)
	key := fmt.Sprint(op, head, words)
	if id, ok := b.known[key]; ok {
		return id
	}
	id := b.ID()
	b.known[key] = id
	b.emit(p, op, head, id, words)
	return id
}

// Capability adds capabilities.
func (b *Builder) Capability(list ...spirv.Capability) {
	for _, c := range list {
		b.emit(partCapabilities, spirv.OpCapability, c)
	}
}

// Extension adds an OpExtension.
func (b *Builder) Extension(name string) { b.emit(partExtensions, spirv.OpExtension, name) }

// Import is the id of an extended set.
func (b *Builder) Import(name string) spirv.ID {
	return b.once(partImports, spirv.OpExtInstImport, nil, name)
}

// GLSL is the id of GLSL.std.450.
func (b *Builder) GLSL() spirv.ID { return b.Import("GLSL.std.450") }

// Model sets the OpMemoryModel.
func (b *Builder) Model(a spirv.AddressingModel, m spirv.MemoryModel) {
	b.parts[partModel] = nil
	b.emit(partModel, spirv.OpMemoryModel, a, m)
}

// Compute makes fn an entry point, with a literal workgroup unless x is 0. Its
// interface is every input so far, and from version 1.4 every global variable.
func (b *Builder) Compute(fn spirv.ID, name string, x, y, z uint32) {
	vars := b.inputs
	if b.Version >= 0x10400 {
		vars = b.globals
	}
	b.emit(partEntries, spirv.OpEntryPoint, spirv.ExecutionModelGLCompute, fn, name, vars)
	if x != 0 {
		b.Mode(fn, spirv.ExecutionModeLocalSize, x, y, z)
	}
}

// Entry adds an OpEntryPoint.
func (b *Builder) Entry(m spirv.ExecutionModel, fn spirv.ID, name string, vars ...spirv.ID) {
	b.emit(partEntries, spirv.OpEntryPoint, m, fn, name, vars)
}

// Mode adds an OpExecutionMode.
func (b *Builder) Mode(fn spirv.ID, m spirv.ExecutionMode, args ...any) {
	b.emit(partModes, spirv.OpExecutionMode, fn, m, args)
}

// File is an OpString.
func (b *Builder) File(name string) spirv.ID {
	return b.once(partStrings, spirv.OpString, nil, name)
}

// Source adds an OpSource.
func (b *Builder) Source(language uint32) { b.emit(partStrings, spirv.OpSource, language, 1) }

// Name adds an OpName, and returns id.
func (b *Builder) Name(id spirv.ID, name string) spirv.ID {
	b.emit(partNames, spirv.OpName, id, name)
	return id
}

// MemberName adds an OpMemberName.
func (b *Builder) MemberName(id spirv.ID, i int, name string) {
	b.emit(partNames, spirv.OpMemberName, id, i, name)
}

// Decorate adds an OpDecorate, and returns id.
func (b *Builder) Decorate(id spirv.ID, d spirv.Decoration, args ...any) spirv.ID {
	b.emit(partAnnotations, spirv.OpDecorate, id, d, args)
	return id
}

// MemberDecorate adds an OpMemberDecorate.
func (b *Builder) MemberDecorate(id spirv.ID, i int, d spirv.Decoration, args ...any) {
	b.emit(partAnnotations, spirv.OpMemberDecorate, id, i, d, args)
}

// Annotate adds any instruction to the annotations.
func (b *Builder) Annotate(op spirv.Opcode, args ...any) { b.emit(partAnnotations, op, args...) }

// Declare adds any instruction to the globals; its result, if it has one, is among
// args.
func (b *Builder) Declare(op spirv.Opcode, args ...any) { b.emit(partGlobals, op, args...) }
