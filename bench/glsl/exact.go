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
)

var (
	integerArithmetic = []uint32{126, 128, 130, 132, 134, 135, 137, 138, 139}
	// The first instructions that cannot stand before the decorations: types and
	// constants (19 to 52), OpUndef, OpVariable, OpFunction.
	afterDecorations = func(op uint32) bool { return op == 1 || op >= 19 && op <= opFunction || op == 59 }
)

// Exact marks every float operation of a module NoContraction, so that compilers
// neither fuse nor reorder nor simplify it: what GLSL's "precise" does, but also
// for what feeds conditions, conversions and stores.
func Exact(module []byte) ([]byte, error) {
	if len(module) < 4*headerWords || len(module)%4 != 0 || binary.LittleEndian.Uint32(module) != spirvMagic {
		return nil, errors.New("not a SPIR-V module")
	}
	words := make([]uint32, len(module)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(module[4*i:])
	}
	at := 0 // where decorations end
	var decorations []uint32
	for i := headerWords; i < len(words); {
		n, op := int(words[i]>>16), words[i]&0xFFFF
		if n == 0 || i+n > len(words) {
			return nil, errors.New("an instruction goes past the end of the module")
		}
		if at == 0 && afterDecorations(op) {
			at = i
		}
		arithmetic := op >= opFNegate && op <= opFMod && !slices.Contains(integerArithmetic, op)
		if (arithmetic || op >= opVectorTimesScalar && op <= opDot) && n > 2 {
			decorations = append(decorations, 3<<16|opDecorate, words[i+2], decorationNoContraction)
		}
		i += n
	}
	words = slices.Insert(words, at, decorations...)
	out := make([]byte, 0, 4*len(words))
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out, nil
}
