// Package spirv reads SPIR-V modules (Khronos SPIR-V specification, unified 1).
package spirv

import (
	"fmt"
	"strings"
)

//go:generate sh -c "go run ./gen > zgrammar.go.new && mv zgrammar.go.new zgrammar.go"

// Opcode is the number of a core instruction.
type Opcode uint16

// String is the name in the specification, "OpIAdd".
func (o Opcode) String() string {
	if i, ok := opInfos[o]; ok {
		return i.Name
	}
	return fmt.Sprintf("Op%d", uint16(o))
}

// Info is the grammar of an instruction; nil if the specification has none of
// this number.
func (o Opcode) Info() *OpInfo { return opInfos[o] }

// GLSL is the number of an instruction of the extended set GLSL.std.450.
type GLSL uint32

// String is the name in the specification, "FClamp".
func (g GLSL) String() string {
	if i, ok := glslInfos[g]; ok {
		return i.Name
	}
	return fmt.Sprintf("GLSL%d", uint32(g))
}

// Info is the grammar of an extended instruction; nil if there is none.
func (g GLSL) Info() *OpInfo { return glslInfos[g] }

// OpInfo is the grammar of one instruction.
type OpInfo struct {
	Name     string
	Class    string    // "Arithmetic", "Control-Flow", …
	Operands []Operand // result type and result included
}

// Operand is one place of an instruction. An optional operand is there once or
// not at all, a variadic one any number of times; both come last.
type Operand struct {
	Kind     OperandKind
	Optional bool
	Variadic bool
}

// OperandKind says what an operand is.
type OperandKind uint8

// String is the name in the specification, "IdRef".
func (k OperandKind) String() string {
	if i, ok := kindInfos[k]; ok {
		return i.name
	}
	return fmt.Sprintf("Kind%d", uint8(k))
}

type category uint8

const (
	categoryValueEnum category = iota
	categoryBitEnum
	categoryId
	categoryLiteral
	categoryComposite
)

type kindInfo struct {
	name     string
	category category
	bases    []OperandKind // of a composite
	values   map[uint32]enumerant
}

type enumerant struct {
	name   string
	params []Operand // operands that follow
}

// text names a value of an enumeration: "Uniform", or "Aligned|Volatile".
func (k OperandKind) text(v uint32) string {
	info := kindInfos[k]
	if e, ok := info.values[v]; ok {
		return e.name
	}
	if info.category == categoryValueEnum {
		return fmt.Sprintf("%s(%d)", info.name, v)
	}
	var names []string
	for bit := uint32(1); bit != 0 && v != 0; bit <<= 1 {
		if v&bit == 0 {
			continue
		}
		v &^= bit
		if e, ok := info.values[bit]; ok {
			names = append(names, e.name)
		} else {
			names = append(names, fmt.Sprintf("%#x", bit))
		}
	}
	return strings.Join(names, "|")
}
