package glsl

import (
	"encoding/binary"
	"errors"
	"slices"
)

// Numbers of the SPIR-V specification.
const (
	spirvMagic              = 0x07230203
	headerWords             = 5
	opFunction              = 54
	opDecorate              = 71
	opFNegate, opFMod       = 127, 141 // arithmetic, integer ops among it
	opVectorTimesScalar     = 142
	opDot                   = 148
	decorationNoContraction = 42
	decorationSpecID        = 1
)

var (
	integerArithmetic = []uint32{126, 128, 130, 132, 134, 135, 137, 138, 139}
	// The first instructions that cannot stand before the decorations: types and
	// constants (19 to 52), OpUndef, OpVariable, OpFunction.
	afterDecorations = func(op uint32) bool { return op == 1 || op >= 19 && op <= opFunction || op == 59 }
)

// parse returns the words of a module, and where each instruction begins.
func parse(module []byte) (words []uint32, at []int, err error) {
	if len(module) < 4*headerWords || len(module)%4 != 0 || binary.LittleEndian.Uint32(module) != spirvMagic {
		return nil, nil, errors.New("not a SPIR-V module")
	}

	words = make([]uint32, len(module)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(module[4*i:])
	}

	for i := headerWords; i < len(words); {
		n := int(words[i] >> 16)
		if n == 0 || i+n > len(words) {
			return nil, nil, errors.New("an instruction goes past the end of the module")
		}
		at = append(at, i)
		i += n
	}

	return words, at, nil
}

// SpecIDs are the numbers of the specialisation constants that a module has.
func SpecIDs(module []byte) ([]uint32, error) {
	words, at, err := parse(module)
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, i := range at {
		if words[i] == 4<<16|opDecorate && words[i+2] == decorationSpecID {
			ids = append(ids, words[i+3])
		}
	}
	return ids, nil
}

// Exact marks every float operation of a module NoContraction, so that compilers
// neither fuse nor reorder nor simplify it: the effect of GLSL's "precise", but
// also for the operands of conditions, conversions and stores.
func Exact(module []byte) ([]byte, error) {
	words, at, err := parse(module)
	if err != nil {
		return nil, err
	}

	end := len(words) // of the decorations
	var decorations []uint32
	for _, i := range at {
		op := words[i] & 0xFFFF
		if end == len(words) && afterDecorations(op) {
			end = i
		}
		arithmetic := op >= opFNegate && op <= opFMod && !slices.Contains(integerArithmetic, op)
		if (arithmetic || op >= opVectorTimesScalar && op <= opDot) && words[i]>>16 > 2 {
			decorations = append(decorations, 3<<16|opDecorate, words[i+2], decorationNoContraction)
		}
	}

	words = slices.Insert(words, end, decorations...)
	out := make([]byte, 0, 4*len(words))
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}

	return out, nil
}
