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
	if i := o.Info(); i != nil {
		return i.Name
	}
	return fmt.Sprintf("Op%d", uint16(o))
}

// Info is the grammar of an instruction; nil if the specification has none of
// this number.
func (o Opcode) Info() *OpInfo {
	if int(o) < len(opInfos) {
		return opInfos[o]
	}
	return nil
}

// GLSL is the number of an instruction of the extended set GLSL.std.450.
type GLSL uint32

// String is the name in the specification, "FClamp".
func (g GLSL) String() string {
	if i := g.Info(); i != nil {
		return i.Name
	}
	return fmt.Sprintf("GLSL%d", uint32(g))
}

// Info is the grammar of an extended instruction; nil if there is none.
func (g GLSL) Info() *OpInfo {
	if uint64(g) < uint64(len(glslInfos)) {
		return glslInfos[g]
	}
	return nil
}

// OpInfo is the grammar of one instruction.
type OpInfo struct {
	Name     string
	Class    string    // "Arithmetic", "Control-Flow", …
	Operands []Operand // result type and result included

	hasType, hasResult bool
	results            uint8 // how many of Operands are result type and result
	section            section
}

// Operand is one operand of an instruction. An optional operand appears once or not
// at all, a variadic one any number of times; both come last.
type Operand struct {
	Kind     OperandKind
	Optional bool
	Variadic bool
}

// OperandKind is the kind of an operand.
type OperandKind uint8

// String is the name in the specification, "IdRef".
func (k OperandKind) String() string {
	if info := k.info(); info.name != "" {
		return info.name
	}
	return fmt.Sprintf("Kind%d", uint8(k))
}

func (k OperandKind) info() *kindInfo {
	if int(k) < len(kindInfos) {
		return &kindInfos[k]
	}
	return &kindInfos[0]
}

type category uint8

const (
	categoryValueEnum category = iota + 1
	categoryBitEnum
	categoryId
	categoryLiteral
	categoryComposite
)

type kindInfo struct {
	name     string
	category category
	bases    []OperandKind // of a composite
	values   []enumerant   // ascending
}

type enumerant struct {
	value  uint32
	name   string
	params []Operand // operands that follow
}

// find is the enumerant of value v; nil if the grammar has none.
func (k *kindInfo) find(v uint32) *enumerant {
	// Most enumerations are dense from 0 on, up to the beginning of the extensions.
	if uint64(v) < uint64(len(k.values)) && k.values[v].value == v {
		return &k.values[v]
	}

	low, high := 0, len(k.values)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if k.values[mid].value < v {
			low = mid + 1
		} else {
			high = mid
		}
	}

	if low < len(k.values) && k.values[low].value == v {
		return &k.values[low]
	}

	return nil
}

// text names a value of an enumeration: "Uniform", or "Aligned|Volatile".
func (k OperandKind) text(v uint32) string {
	info := k.info()
	if e := info.find(v); e != nil {
		return e.name
	}
	if info.category == categoryValueEnum {
		return fmt.Sprintf("%s(%d)", info.name, v)
	}
	if v == 0 {
		return "None"
	}

	var names []string
	for bit := uint32(1); bit != 0 && v != 0; bit <<= 1 {
		if v&bit == 0 {
			continue
		}
		v &^= bit
		if e := info.find(bit); e != nil {
			names = append(names, e.name)
		} else {
			names = append(names, fmt.Sprintf("%#x", bit))
		}
	}

	return strings.Join(names, "|")
}

// section is the section of an instruction in a module (specification, 2.4).
// Sections are in this order.
type section uint8

const (
	sectionCapabilities section = iota
	sectionExtensions
	sectionImports
	sectionMemoryModel
	sectionEntryPoints
	sectionModes
	sectionSources
	sectionNames
	sectionProcessed
	sectionAnnotations
	sectionGlobals
	sectionFunctions
	numSections

	sectionBody         // in a block
	sectionGlobalOrBody // among the globals or in a block
	sectionLine         // OpLine, OpNoLine: with either, or between
)

// String names a section in a refusal.
func (s section) String() string {
	return [...]string{
		"capabilities", "extensions", "imports", "the memory model", "entry points", "execution modes",
		"strings and sources", "names", "OpModuleProcessed", "annotations", "types, constants and variables",
		"functions", "", "a block", "globals or a block", "lines",
	}[s]
}
