package lane

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/spirv"
)

var ownNames = strings.Fields("none const phi input push arrlen load store atomic barrier fence checkzero clear splat keep muladd mulloads high unpack pack4 modf frexp low highhalf join extend convert subgroup copy")

// dump is the internal form as text, for work on the compiler.
func (f *fn) dump() string {
	var s strings.Builder
	name := func(v val) string {
		i := &f.ins[v]
		switch {
		case v == 0:
			return "-"
		case i.op == iConst:
			return fmt.Sprintf("#%d", int64(i.imm))
		case i.op == iInput:
			return fmt.Sprintf("in%d", i.imm)
		case i.vary:
			return fmt.Sprintf("v%d", v)
		}
		return fmt.Sprintf("s%d", v)
	}

	for n := range f.blocks {
		b := &f.blocks[n]
		fmt.Fprintf(&s, "block %d loop %d idom %d preds %v\n", n, b.loop, b.idom, b.preds)
		for _, v := range b.ins {
			i := &f.ins[v]
			o := ""
			switch {
			case i.op > iNone:
				o = ownNames[i.op-iNone]
			case i.op >= glslBase:
				o = spirv.GLSL(i.op - glslBase).String()
			default:
				o = spirv.Opcode(i.op).String()
			}

			fmt.Fprintf(&s, "  %s = %s", name(v), o)
			for _, a := range i.args {
				s.WriteString(" " + name(a))
			}

			if i.op == iLoad || i.op == iStore {
				m := f.mems[i.aux]
				fmt.Fprintf(&s, " [binding %d off %d terms %+v]", m.v.binding, m.off, m.terms)
			}
			if i.mask {
				s.WriteString(" masked")
			}

			s.WriteString("\n")
		}

		fmt.Fprintf(&s, "  term %d %s -> %v\n", b.term, name(b.cond), b.succs)
	}

	return s.String()
}

// TestDump prints the internal form of a kernel of the library, DUMP or vecadd_f32.
func TestDump(t *testing.T) {
	kernel := cmp.Or(os.Getenv("DUMP"), "vecadd_f32")
	data, ok := library.Bundle(kernel)
	require.True(t, ok, kernel)
	text := front(admit(t, data), Options{Block: librarytest.Block(kernel), SubgroupSize: 32}).dump()
	t.Log("\n" + text)
	require.Contains(t, text, "store")
}
