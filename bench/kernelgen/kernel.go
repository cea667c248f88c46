package kernelgen

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Options choose features beyond 32-bit values.
type Options struct {
	Subgroup bool // subgroup operations; results hold for one subgroup size
	Shuffle  bool // shuffles among them
	Wide     bool // 64-bit integers and floats
	Narrow   bool // 8- and 16-bit values in buffers
	// Survey, if not 0, makes a kernel with some of all operations, one after the
	// other, with arguments from buffers. The choice continues from number to
	// number; Surveys numbers cover all.
	Survey int
}

// Kernel is a random kernel, and a launch of it.
type Kernel struct {
	Seed      uint64
	Options   Options
	Block     [3]uint32
	BlockFree bool // the workgroup is taken from specialisation constants 0, 1, 2
	Grid      [3]uint32
	Constants []Constant // of a launch, besides the workgroup
	Inline    []byte
	Bindings  [][]byte // contents before the launch

	head   string // version, extensions, structs, buffers
	decls  *block // global variables and functions
	main   *block
	shared []sharedArray
	types  []*typ // structs, and arrays
}

// Constant is the value of a specialisation constant of 32 bits.
type Constant struct{ ID, Value uint32 }

type sharedArray struct {
	array string
	t     *typ
}

// Approximate is the binding with floats that are compared with a tolerance.
const Approximate = 3

// One invocation's part of the output.
const (
	outWords    = 64
	approxWords = 12
)

// Tolerance of the floats in Approximate, absolute and relative.
const Tolerance = 2e-3

var blocks = [][3]uint32{
	{1, 1, 1}, {7, 1, 1}, {8, 1, 1}, {13, 1, 1}, {32, 1, 1}, {33, 1, 1}, {64, 1, 1}, {100, 1, 1}, {128, 1, 1}, {8, 4, 1}, {5, 3, 2}, {16, 2, 2},
}

// Subgroups go along x and are full, so that every engine numbers them alike.
var subgroupBlocks = [][3]uint32{{8, 1, 1}, {16, 1, 1}, {64, 1, 1}, {40, 1, 1}, {128, 1, 1}}

// Generate makes the kernel of a seed.
func Generate(seed uint64, o Options) *Kernel {
	k := &Kernel{Seed: seed, Options: o, decls: &block{}, main: &block{}}
	g := &gen{Rand: rand.New(rand.NewPCG(seed, 0x6b65726e656c)), o: o, k: k, arr: map[string]*typ{}, size: 1}
	k.Block = pick(g, blocks)
	if o.Subgroup || o.Shuffle {
		k.Block = pick(g, subgroupBlocks)
	}

	k.BlockFree = g.chance(3)
	k.Grid = [3]uint32{1 + g.Uint32N(3), 1 + g.Uint32N(2), 1}
	if g.chance(4) {
		k.Grid[2] = 2
	}

	structs := g.makeTypes()
	g.makeHead(structs)
	g.makeBuffers(structs[0])
	k.types = structs
	defer func() {
		for _, name := range slices.Sorted(maps.Keys(g.arr)) {
			k.types = append(k.types, g.arr[name])
		}
	}()

	if o.Survey != 0 {
		g.mutableGlobals(structs[0])
		g.survey()
		return k
	}

	g.makeGlobals()
	if g.chance(5) {
		g.size = 3
	}

	for range g.IntN(2 + g.size) {
		budget := 5 + 2*g.size
		g.makeFunction(&budget)
	}

	g.makeMain(structs[0])
	return k
}

// WithBlock is the kernel launched with another workgroup; only if it is free.
func (k *Kernel) WithBlock(block [3]uint32) *Kernel {
	other := *k
	other.Block = block
	other.sizeBindings()
	return &other
}

// OtherBlock is another workgroup that suits the kernel.
func (k *Kernel) OtherBlock() [3]uint32 {
	from := blocks
	if k.Options.Subgroup || k.Options.Shuffle {
		from = subgroupBlocks
	}
	other := from[k.Seed%uint64(len(from))]
	if other == k.Block {
		other = from[(k.Seed+1)%uint64(len(from))]
	}
	return other
}

// Source is the kernel in GLSL.
func (k *Kernel) Source() string {
	var w printer
	w.WriteString(k.head)
	w.block(k.decls, "")
	w.WriteString("void main() {\n" + prologue)
	w.block(k.main, "\t")
	w.WriteString("}\n")
	return w.String()
}

// Statements counts the remaining statements of a kernel.
func (k *Kernel) Statements() int {
	n := 0
	k.walk(func(b *block) { n += len(b.stmts) })
	return n
}

// walk visits every block, outer ones first.
func (k *Kernel) walk(visit func(*block)) {
	var in func(*block)
	in = func(b *block) {
		visit(b)
		for _, s := range b.stmts {
			for _, inner := range s.blocks {
				in(inner)
			}
		}
	}
	in(k.decls)
	in(k.main)
}

func (k *Kernel) invocations() int {
	n := 1
	for i := range 3 {
		n *= int(k.Block[i] * k.Grid[i])
	}
	return n
}

func (g *gen) makeTypes() []*typ {
	k := []kind{kindU32, kindU32, kindI32, kindF32}
	if g.o.Wide {
		k = append(k, kindU64, kindI64, kindF64)
	}

	basic := func() *typ {
		one := pick(g, k)
		if one >= kindU64 {
			return vectors[one][0]
		}
		return vectors[one][max(0, g.IntN(7)-3)]
	}

	var structs []*typ
	for i := range 1 + g.IntN(3) {
		s := &typ{kind: kindStruct, name: fmt.Sprintf("S%d", i), n: 1}
		for range 1 + g.IntN(4) {
			f := basic()
			switch {
			case g.chance(4):
				f = g.array(f, 2+g.IntN(3))
			case i > 0 && g.chance(4):
				f = structs[0]
			}
			s.fields = append(s.fields, f)
		}
		structs = append(structs, s)
	}

	g.types = append(g.types, uintT, uintT, uintT, intT, fltT, fltT, boolT, basic(), basic(), basic(), vectors[kindBool][1+g.IntN(3)])
	if g.o.Wide {
		g.types = append(g.types, vectors[kindU64][0], vectors[kindI64][0], vectors[kindF64][0], vectors[kindI64][0])
	}

	g.types = append(g.types, structs...)
	for range 1 + g.IntN(3) {
		g.types = append(g.types, g.array(pick(g, append(structs, basic(), basic(), uintT)), 2+g.IntN(4)))
	}

	return structs
}

func (g *gen) makeHead(structs []*typ) {
	var w strings.Builder
	w.WriteString("#version 460\n")
	if g.o.Subgroup || g.o.Shuffle {
		for _, e := range []string{"basic", "vote", "ballot", "arithmetic", "shuffle", "shuffle_relative"} {
			if g.o.Shuffle || !strings.HasPrefix(e, "shuffle") {
				w.WriteString("#extension GL_KHR_shader_subgroup_" + e + " : require\n")
			}
		}
	}

	if g.o.Wide {
		w.WriteString("#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n#extension GL_EXT_shader_atomic_int64 : require\n")
	}
	if g.o.Narrow {
		w.WriteString("#extension GL_EXT_shader_8bit_storage : require\n#extension GL_EXT_shader_16bit_storage : require\n")
	}

	if g.k.BlockFree {
		w.WriteString("layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;\n")
		w.WriteString("#define N (gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z)\n")
	} else {
		b := g.k.Block
		fmt.Fprintf(&w, "layout(local_size_x = %d, local_size_y = %d, local_size_z = %d) in;\n#define N %du\n", b[0], b[1], b[2], b[0]*b[1]*b[2])
	}

	for _, s := range structs {
		w.WriteString(structDecl(s))
	}

	w.WriteString(buffers)
	if g.o.Wide {
		w.WriteString(wideBuffers)
	}
	if g.o.Narrow {
		w.WriteString(narrowBuffers)
	}

	w.WriteString(helpers)
	if g.o.Wide {
		w.WriteString(wideHelpers)
	}

	g.k.head = w.String()
}

func appendWords(b []byte, v ...uint32) []byte {
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
