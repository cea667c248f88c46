package lanetest

import (
	"math"

	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// Case is a random program and a launch of it.
type Case struct {
	Module   []byte
	Manifest *program.Manifest
	Options  lane.Options
	Launch   *lane.Launch
}

// Bindings of a random program. Each lane writes its own elements only.
const (
	inWords = iota
	inFloats
	outWords
	outFloats
	outLongs
	outDoubles
	outBytes
	outShorts
	outHalves
	atomicWords
	outStructs
	outMore
	bindings
)

const (
	slots   = 8 // elements of a lane in outWords and the like
	cells   = 16
	regions = 40 // of atomicWords, of cells each
)

// kind is a scalar type.
type kind int

const (
	boolean kind = iota
	u32
	i32
	f32
	u8
	i8
	u16
	i16
	f16
	u64
	i64
	f64
)

func (k kind) float() bool    { return k == f16 || k == f32 || k == f64 }
func (k kind) int() bool      { return k != boolean && !k.float() }
func (k kind) long() bool     { return k >= u64 }
func (k kind) narrow() bool   { return k >= u8 && k <= f16 }
func (k kind) unsigned() bool { return k == u8 || k == u16 || k == u32 || k == u64 }

// bytes is the size of a number.
func (k kind) bytes() uint32 {
	switch {
	case k.long():
		return 8
	case k == u8 || k == i8:
		return 1
	case k.narrow():
		return 2
	}
	return 4
}

// numbers are the kinds of a program.
func (g *generator) numbers() []kind {
	kinds := []kind{u32, i32, f32}
	if g.long {
		kinds = append(kinds, u64, i64, f64)
	}
	if g.small {
		kinds = append(kinds, u8, i8, u16, i16, f16)
	}
	return kinds
}

// shape is a scalar or vector type.
type shape struct {
	k kind
	n int
}

// val is a value that instructions may use.
type val struct {
	id      spirv.ID
	t       shape
	uniform bool // the same for all lanes of the workgroup
}

// generator makes a program from a tape.
type generator struct {
	*spirvtest.Builder
	*Tape
	wild    bool // may trap
	long    bool // has 64-bit types
	small   bool // has 8- and 16-bit types
	dots    bool // has products of vectors of integers
	chosen  bool // has pointers that are chosen when it runs
	budget  int
	palette []shape // types that the program has most of

	launch struct {
		block, grid program.Dim3
		lanes       int
	}

	// The variables outside functions.
	mem struct {
		inputs      map[spirv.BuiltIn]spirv.ID
		buffers     [bindings]spirv.ID
		push        spirv.ID
		slot        spirv.ID // Private: the number of the lane in the launch
		own         spirv.ID // Workgroup: an element for each lane
		ownType     *tree
		swap        spirv.ID    // Workgroup: for exchanges between lanes
		swapDynamic bool        // it is the dynamic array
		atoms       spirv.ID    // Workgroup: for atomics
		floats      spirv.ID    // likewise
		longs       spirv.ID    // likewise
		one         spirv.ID    // Workgroup: written by one lane
		mine        [2]spirv.ID // Workgroup: an element for each lane
		picks       []spirv.ID  // functions that return pointers
		private     []variableOf
		structs     *tree
		region      int
		used        [3]bool // atoms, floats, longs
	}

	// The declarations so far.
	made struct {
		specs     []val
		constants []program.Constant
		functions []*helper
		agg       map[*tree]spirv.ID
		layouts   map[*tree]spirv.ID
		pairs     map[pairKey]spirv.ID
	}

	f *body
}

// helper is a function that may be called.
type helper struct {
	id       spirv.ID
	params   []shape
	pointers []shape // variables that are passed to it
	result   shape   // n 0: void
	barriers bool    // must be called by all lanes
}

// body is the current function.
type body struct {
	*helper
	main    bool
	scope   []val
	vars    []variableOf
	sum     spirv.ID // a variable that sums up its results
	current spirv.ID // the block
	apart   bool     // lanes may be missing here
	loops   []*loopOf
	brk     *join // the target of a break
	leaves  bool  // lanes may return while others do not
	nesting int
}

// Random makes a program that verify.Admit admits. About one in five may trap.
func Random(t *Tape) *Case {
	g := &generator{Builder: spirvtest.New(), Tape: t}
	g.mem.inputs = map[spirv.BuiltIn]spirv.ID{}
	g.made.agg, g.made.layouts = map[*tree]spirv.ID{}, map[*tree]spirv.ID{}
	g.wild = g.n(5) == 4
	g.long = g.n(2) == 1
	g.small = g.n(3) == 2
	g.chosen = g.n(4) == 3
	g.dots = g.n(3) == 2
	g.budget = 10 + g.n(60)*g.n(20)
	if g.n(3) == 2 {
		g.Version = 0x10500
	}

	shapes := []program.Dim3{{X: 1, Y: 1, Z: 1}, {X: 8, Y: 1, Z: 1}, {X: 5, Y: 3, Z: 1}, {X: 16, Y: 2, Z: 1}, {X: 33, Y: 1, Z: 1}, {X: 4, Y: 3, Z: 2}, {X: 64, Y: 1, Z: 1}, {X: 1, Y: 7, Z: 1}, {X: 8, Y: 5, Z: 1}, {X: 16, Y: 3, Z: 1}}
	g.launch.block = shapes[g.n(len(shapes))]
	g.launch.grid = program.Dim3{X: 1 + uint32(g.n(2)), Y: 1 + uint32(g.n(2)), Z: 1}
	g.launch.lanes = int(g.launch.block.X * g.launch.block.Y * g.launch.block.Z)
	g.palette = []shape{{u32, 1}}
	for range g.n(3) {
		g.palette = append(g.palette, g.anyShape(true))
	}

	g.declare()
	g.picks()
	for range g.n(3) {
		g.helper()
	}

	g.main()
	c := &Case{
		Module:   g.Bytes(),
		Manifest: &program.Manifest{Name: "random", Constants: g.made.constants},
		Options:  lane.Options{SubgroupSize: 8 << g.n(4), Block: g.launch.block},
		Launch:   &lane.Launch{Grid: g.launch.grid},
	}

	if g.mem.swapDynamic {
		c.Options.SharedBytes = uint32(4 * g.launch.lanes)
	}

	g.fill(c)
	return c
}

// declare writes the declarations outside functions.
func (g *generator) declare() {
	g.capabilities()
	u, f := g.Uint(32), g.Float(32)
	g.mem.buffers[inWords] = g.Buffer(inWords, u, 4)
	g.Decorate(g.mem.buffers[inWords], spirv.DecorationNonWritable)
	g.mem.buffers[inFloats] = g.Buffer(inFloats, f, 4)
	g.mem.buffers[outWords] = g.Buffer(outWords, u, 4)
	g.mem.buffers[outFloats] = g.Buffer(outFloats, f, 4)
	g.mem.buffers[atomicWords] = g.Buffer(atomicWords, u, 4)
	if g.long {
		g.mem.buffers[outLongs] = g.Buffer(outLongs, g.Uint(64), 8)
		g.mem.buffers[outDoubles] = g.Buffer(outDoubles, g.Float(64), 8)
	}

	if g.small {
		g.mem.buffers[outBytes] = g.Buffer(outBytes, g.Vec(g.Uint(8), 4), 4)
		g.mem.buffers[outShorts] = g.Buffer(outShorts, g.Int(16), 2)
		g.mem.buffers[outHalves] = g.Buffer(outHalves, g.Vec(g.Float(16), 2), 4)
	}

	g.mem.structs = g.tree(2, false)
	for g.mem.structs.parts == nil {
		g.mem.structs = &tree{parts: []*tree{g.mem.structs, {t: shape{u32, 1}}}}
	}

	elem := g.laidOut(g.mem.structs)
	array := g.RuntimeArray(elem, g.mem.structs.stride())
	g.mem.buffers[outStructs] = g.BufferOf(outStructs, g.Block([]uint32{0, 16}, u, array))

	words := g.Array(g.Uint(32), g.U32(4), 4)
	members, offsets := []spirv.ID{u, g.Vec(f, 2), words}, []uint32{0, 8, 16}
	if g.long {
		members, offsets = append(members, g.Uint(64)), append(offsets, 32)
	}

	g.mem.push = g.Push(offsets, members...)

	for _, in := range []struct {
		b spirv.BuiltIn
		t spirv.ID
	}{
		{spirv.BuiltInNumWorkgroups, g.Vec(u, 3)}, {spirv.BuiltInWorkgroupId, g.Vec(u, 3)},
		{spirv.BuiltInLocalInvocationId, g.Vec(u, 3)}, {spirv.BuiltInGlobalInvocationId, g.Vec(u, 3)},
		{spirv.BuiltInLocalInvocationIndex, u}, {spirv.BuiltInSubgroupSize, u}, {spirv.BuiltInSubgroupLocalInvocationId, u},
		{spirv.BuiltInNumSubgroups, u}, {spirv.BuiltInSubgroupId, u},
		{spirv.BuiltInSubgroupGeMask, g.Vec(u, 4)}, {spirv.BuiltInSubgroupLtMask, g.Vec(u, 4)},
	} {
		g.mem.inputs[in.b] = g.Input(in.t, in.b)
	}

	g.mem.slot = g.Global(spirv.StorageClassPrivate, u)
	for range g.n(3) {
		t := g.tree(1, true)
		id := g.typeOf(t)
		v := variableOf{g.Global(spirv.StorageClassPrivate, id), t, spirv.StorageClassPrivate}
		g.mem.private = append(g.mem.private, v)
	}

	g.mem.ownType = g.tree(1, true)
	g.mem.own = g.Shared(g.Array(g.typeOf(g.mem.ownType), g.U32(uint32(g.launch.lanes)), 0))
	length := g.U32(uint32(g.launch.lanes))
	if g.mem.swapDynamic = g.n(4) == 3; g.mem.swapDynamic {
		length = g.Spec(program.SpecShared, u, 1)
	}

	g.mem.swap = g.Shared(g.Array(u, length, 0))
	g.mem.atoms = g.Shared(g.Array(u, g.U32(cells), 0))
	g.mem.floats = g.Shared(g.Array(f, g.U32(cells), 0))
	g.mem.one = g.Shared(u)
	if g.long {
		g.mem.longs = g.Shared(g.Array(g.Int(64), g.U32(cells), 0))
	}

	g.declarePointers()
	g.specials()
	for i, name := range []string{"inWords", "inFloats", "outWords", "outFloats", "outLongs", "outDoubles", "outBytes", "outShorts", "outHalves", "atomicWords", "outStructs", "outMore"} {
		if g.mem.buffers[i] != 0 {
			g.Name(g.mem.buffers[i], name)
		}
	}

	for b, id := range g.mem.inputs {
		g.Name(id, b.String())
	}

	g.Name(g.mem.push, "push")
	g.Name(g.mem.slot, "slot")
	g.Name(g.mem.own, "own")
	g.Name(g.mem.swap, "swap")
	g.Name(g.mem.atoms, "atoms")
}

// specials makes specialisation constants, and constants of them.
func (g *generator) specials() {
	for i := range g.n(4) {
		id := uint32(10 + i)
		var v val
		bits := uint64(g.n(1 << 16))
		switch g.n(4) {
		case 0:
			v = val{g.Spec(id, g.Uint(32), 7), shape{u32, 1}, true}
		case 1:
			v = val{g.Spec(id, g.Int(32), -3), shape{i32, 1}, true}
			bits -= 1 << 15
			bits &= math.MaxUint32
		case 2:
			v = val{g.SpecBool(id, true), shape{boolean, 1}, true}
			bits &= 1
		case 3:
			v = val{g.Spec(id, g.Float(32), float32(2.5)), shape{f32, 1}, true}
			bits = uint64(math.Float32bits(float32(bits) / 16))
		}

		if g.n(2) == 1 {
			g.made.constants = append(g.made.constants, program.Constant{ID: id, Value: bits})
		}

		g.made.specs = append(g.made.specs, v)
		if v.t.k == u32 || v.t.k == i32 {
			ops := []spirv.Opcode{spirv.OpIAdd, spirv.OpIMul, spirv.OpBitwiseXor, spirv.OpISub, spirv.OpShiftLeftLogical, spirv.OpShiftRightArithmetic}
			t := g.typ(v.t)
			g.made.specs = append(g.made.specs, val{g.SpecOp(t, ops[g.n(len(ops))], v.id, g.number(v.t.k, 5)), v.t, true})
			less := g.SpecOp(g.Bool(), spirv.OpSLessThan, v.id, g.number(v.t.k, 100))
			g.made.specs = append(g.made.specs, val{less, shape{boolean, 1}, true},
				val{g.SpecOp(t, spirv.OpSelect, less, v.id, g.number(v.t.k, 9)), v.t, true},
				val{g.SpecComposite(g.Vec(t, 2), v.id, g.number(v.t.k, 3)), shape{v.t.k, 2}, true})
		}
	}
}

// main makes the entry point.
func (g *generator) main() {
	b := g.Builder
	u, v3 := b.Uint(32), b.Vec(b.Uint(32), 3)
	var size []spirv.ID
	x, y, z := g.launch.block.X, g.launch.block.Y, g.launch.block.Z
	if g.n(2) == 1 {
		for i := range 3 {
			size = append(size, b.Spec(uint32(i), u, 1))
		}
		b.Decorate(b.SpecComposite(v3, size...), spirv.DecorationBuiltIn, spirv.BuiltInWorkgroupSize)
		x, y, z = 1, 1, 1
	} else {
		size = []spirv.ID{b.U32(x), b.U32(y), b.U32(z)}
	}

	g.begin(&helper{}, true)
	part := func(v spirv.ID, i int) spirv.ID { return b.Op(spirv.OpCompositeExtract, u, v, i) }
	at, grid := b.Load(v3, g.mem.inputs[spirv.BuiltInWorkgroupId]), b.Load(v3, g.mem.inputs[spirv.BuiltInNumWorkgroups])
	mul := func(a, c spirv.ID) spirv.ID { return b.Op(spirv.OpIMul, u, a, c) }
	add := func(a, c spirv.ID) spirv.ID { return b.Op(spirv.OpIAdd, u, a, c) }
	group := add(part(at, 0), mul(part(grid, 0), add(part(at, 1), mul(part(grid, 1), part(at, 2)))))
	threads := mul(mul(size[0], size[1]), size[2])
	b.Store(g.mem.slot, add(mul(group, threads), b.Load(u, g.mem.inputs[spirv.BuiltInLocalInvocationIndex])))
	if g.statements() {
		g.leave()
	}

	b.End()
	b.Compute(g.f.id, "main", x, y, z)
}
