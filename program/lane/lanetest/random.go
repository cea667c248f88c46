package lanetest

import (
	"encoding/binary"
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
	u64
	i64
	f64
)

func (k kind) float() bool { return k == f32 || k == f64 }
func (k kind) int() bool   { return k != boolean && !k.float() }
func (k kind) long() bool  { return k >= u64 }

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
	budget  int
	palette []shape // types that the program has most of

	block, grid program.Dim3
	lanes       int
	inputs      map[spirv.BuiltIn]spirv.ID
	buffers     [bindings]spirv.ID
	push        spirv.ID
	slot        spirv.ID // Private: the number of the lane in the launch
	own         spirv.ID // Workgroup: an element for each lane
	ownType     *tree
	swap        spirv.ID // Workgroup: what lanes exchange
	swapDynamic bool     // it is the dynamic array
	atoms       spirv.ID // Workgroup: for atomics
	floats      spirv.ID // likewise
	longs       spirv.ID // likewise
	one         spirv.ID // Workgroup: what one lane writes
	private     []variableOf
	structs     *tree
	region      int
	used        [3]bool // atoms, floats, longs
	specs       []val
	constants   []program.Constant
	functions   []*helper
	agg         map[*tree]spirv.ID
	layouts     map[*tree]spirv.ID
	pairs       map[pairKey]spirv.ID

	f *body
}

// helper is a function that may be called.
type helper struct {
	id       spirv.ID
	params   []shape
	pointers []shape // variables that it is handed
	result   shape   // n 0: void
	barriers bool    // it is to be called by all lanes
}

// body is the function at hand.
type body struct {
	*helper
	main    bool
	scope   []val
	vars    []variableOf
	sum     spirv.ID // a variable that sums up what it computed
	current spirv.ID // the block
	apart   bool     // lanes may be missing here
	loops   []*loopOf
	brk     *join // where a break leads to
	leaves  bool  // lanes may return while others do not
	nesting int
}

// Random makes a program that verify.Admit admits. About one in five may trap.
func Random(t *Tape) *Case {
	g := &generator{
		Builder: spirvtest.New(), Tape: t, inputs: map[spirv.BuiltIn]spirv.ID{},
		agg: map[*tree]spirv.ID{}, layouts: map[*tree]spirv.ID{},
	}
	g.wild = g.n(5) == 4
	g.long = g.n(2) == 1
	g.small = g.n(3) == 2
	g.budget = 10 + g.n(60)*g.n(20)
	if g.n(3) == 2 {
		g.Version = 0x10500
	}
	shapes := []program.Dim3{{X: 1, Y: 1, Z: 1}, {X: 8, Y: 1, Z: 1}, {X: 5, Y: 3, Z: 1}, {X: 16, Y: 2, Z: 1}, {X: 33, Y: 1, Z: 1}, {X: 4, Y: 3, Z: 2}, {X: 64, Y: 1, Z: 1}, {X: 1, Y: 7, Z: 1}, {X: 8, Y: 5, Z: 1}, {X: 16, Y: 3, Z: 1}}
	g.block = shapes[g.n(len(shapes))]
	g.grid = program.Dim3{X: 1 + uint32(g.n(2)), Y: 1 + uint32(g.n(2)), Z: 1}
	g.lanes = int(g.block.X * g.block.Y * g.block.Z)
	g.palette = []shape{{u32, 1}}
	for range g.n(3) {
		g.palette = append(g.palette, g.anyShape(true))
	}
	g.declare()
	for range g.n(3) {
		g.helper()
	}
	g.main()
	c := &Case{
		Module:   g.Bytes(),
		Manifest: &program.Manifest{Name: "random", Constants: g.constants},
		Options:  lane.Options{SubgroupSize: 8 << g.n(4), Block: g.block},
		Launch:   &lane.Launch{Grid: g.grid},
	}
	if g.swapDynamic {
		c.Options.SharedBytes = uint32(4 * g.lanes)
	}
	g.fill(c)
	return c
}

func (g *generator) capabilities() {
	g.Capability(spirv.CapabilityGroupNonUniform, spirv.CapabilityGroupNonUniformVote, spirv.CapabilityGroupNonUniformArithmetic,
		spirv.CapabilityGroupNonUniformBallot, spirv.CapabilityGroupNonUniformShuffle, spirv.CapabilityGroupNonUniformShuffleRelative,
		spirv.CapabilityAtomicFloat32AddEXT)
	g.Extension("SPV_EXT_shader_atomic_float_add")
	if g.long {
		g.Capability(spirv.CapabilityInt64, spirv.CapabilityFloat64, spirv.CapabilityInt64Atomics)
	}
	if g.small {
		g.Capability(spirv.CapabilityInt8, spirv.CapabilityInt16, spirv.CapabilityFloat16,
			spirv.CapabilityStorageBuffer16BitAccess, spirv.CapabilityStorageBuffer8BitAccess)
		g.Extension("SPV_KHR_8bit_storage")
	}
}

// declare makes what is outside functions.
func (g *generator) declare() {
	g.capabilities()
	u, f := g.Uint(32), g.Float(32)
	g.buffers[inWords] = g.Buffer(inWords, u, 4)
	g.Decorate(g.buffers[inWords], spirv.DecorationNonWritable)
	g.buffers[inFloats] = g.Buffer(inFloats, f, 4)
	g.buffers[outWords] = g.Buffer(outWords, u, 4)
	g.buffers[outFloats] = g.Buffer(outFloats, f, 4)
	g.buffers[atomicWords] = g.Buffer(atomicWords, u, 4)
	if g.long {
		g.buffers[outLongs] = g.Buffer(outLongs, g.Uint(64), 8)
		g.buffers[outDoubles] = g.Buffer(outDoubles, g.Float(64), 8)
	}
	if g.small {
		g.buffers[outBytes] = g.Buffer(outBytes, g.Vec(g.Uint(8), 4), 4)
		g.buffers[outShorts] = g.Buffer(outShorts, g.Int(16), 2)
		g.buffers[outHalves] = g.Buffer(outHalves, g.Vec(g.Float(16), 2), 4)
	}
	g.structs = g.tree(2, false)
	for g.structs.parts == nil {
		g.structs = &tree{parts: []*tree{g.structs, {t: shape{u32, 1}}}}
	}
	elem := g.laidOut(g.structs)
	array := g.RuntimeArray(elem, g.structs.stride())
	g.buffers[outStructs] = g.BufferOf(outStructs, g.Block([]uint32{0, 16}, u, array))

	words := g.Array(g.Uint(32), g.U32(4), 4)
	members, offsets := []spirv.ID{u, g.Vec(f, 2), words}, []uint32{0, 8, 16}
	if g.long {
		members, offsets = append(members, g.Uint(64)), append(offsets, 32)
	}
	g.push = g.Push(offsets, members...)

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
		g.inputs[in.b] = g.Input(in.t, in.b)
	}
	g.slot = g.Global(spirv.StorageClassPrivate, u)
	for range g.n(3) {
		t := g.tree(1, true)
		id := g.typeOf(t)
		v := variableOf{g.Global(spirv.StorageClassPrivate, id), t, spirv.StorageClassPrivate}
		g.private = append(g.private, v)
	}
	g.ownType = g.tree(1, true)
	g.own = g.Shared(g.Array(g.typeOf(g.ownType), g.U32(uint32(g.lanes)), 0))
	length := g.U32(uint32(g.lanes))
	if g.swapDynamic = g.n(4) == 3; g.swapDynamic {
		length = g.Spec(program.SpecShared, u, 1)
	}
	g.swap = g.Shared(g.Array(u, length, 0))
	g.atoms = g.Shared(g.Array(u, g.U32(cells), 0))
	g.floats = g.Shared(g.Array(f, g.U32(cells), 0))
	g.one = g.Shared(u)
	if g.long {
		g.longs = g.Shared(g.Array(g.Int(64), g.U32(cells), 0))
	}
	g.specials()
	for i, name := range []string{"inWords", "inFloats", "outWords", "outFloats", "outLongs", "outDoubles", "outBytes", "outShorts", "outHalves", "atomicWords", "outStructs"} {
		if g.buffers[i] != 0 {
			g.Name(g.buffers[i], name)
		}
	}
	for b, id := range g.inputs {
		g.Name(id, b.String())
	}
	g.Name(g.push, "push")
	g.Name(g.slot, "slot")
	g.Name(g.own, "own")
	g.Name(g.swap, "swap")
	g.Name(g.atoms, "atoms")
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
			g.constants = append(g.constants, program.Constant{ID: id, Value: bits})
		}
		g.specs = append(g.specs, v)
		if v.t.k == u32 || v.t.k == i32 {
			ops := []spirv.Opcode{spirv.OpIAdd, spirv.OpIMul, spirv.OpBitwiseXor, spirv.OpISub, spirv.OpShiftLeftLogical, spirv.OpShiftRightArithmetic}
			t := g.typ(v.t)
			g.specs = append(g.specs, val{g.SpecOp(t, ops[g.n(len(ops))], v.id, g.number(v.t.k, 5)), v.t, true})
			less := g.SpecOp(g.Bool(), spirv.OpSLessThan, v.id, g.number(v.t.k, 100))
			g.specs = append(g.specs, val{less, shape{boolean, 1}, true},
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
	x, y, z := g.block.X, g.block.Y, g.block.Z
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
	at, grid := b.Load(v3, g.inputs[spirv.BuiltInWorkgroupId]), b.Load(v3, g.inputs[spirv.BuiltInNumWorkgroups])
	mul := func(a, c spirv.ID) spirv.ID { return b.Op(spirv.OpIMul, u, a, c) }
	add := func(a, c spirv.ID) spirv.ID { return b.Op(spirv.OpIAdd, u, a, c) }
	group := add(part(at, 0), mul(part(grid, 0), add(part(at, 1), mul(part(grid, 1), part(at, 2)))))
	threads := mul(mul(size[0], size[1]), size[2])
	b.Store(g.slot, add(mul(group, threads), b.Load(u, g.inputs[spirv.BuiltInLocalInvocationIndex])))
	if g.statements() {
		g.leave()
	}
	b.End()
	b.Compute(g.f.id, "main", x, y, z)
}

// fill makes what the bindings and push constants hold.
func (g *generator) fill(c *Case) {
	all := int(g.grid.X*g.grid.Y*g.grid.Z) * g.lanes
	elements := [bindings]int{64 + 80*g.lanes, 64 + 80*g.lanes, all * slots, all * slots, all * slots, all * slots, all * slots, all * slots, all * slots, regions * cells, 0}
	bytes := [bindings]int{4, 4, 4, 4, 8, 8, 4, 2, 4, 4, 0}
	for i := range bindings {
		n := elements[i] * bytes[i]
		if i == outStructs {
			n = 16 + all*int(g.structs.stride())
		}
		if g.buffers[i] == 0 {
			n = 0
		}
		if g.wild && g.n(12) == 11 {
			n -= g.n(max(1, n/3))
		}
		data := make([]byte, n+8)
		if g.wild && g.n(20) == 19 {
			data = data[1:]
		}
		data = data[:n]
		g.contents(i, data)
		c.Launch.Bindings = append(c.Launch.Bindings, data)
	}
	for range 40 {
		c.Launch.Inline = append(c.Launch.Inline, byte(g.n(6)))
	}
}

var oddWords = []uint32{0, 1, math.MaxUint32, 1 << 31, 1<<31 - 1, 2, 3, 7, 0x80, 0xFF00}
var oddFloats = []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), math.MaxFloat32, 0x1p-140, 0x1p31, -0x1p31, 0x1p32, 0.5, 2.5, -7}

// contents fills a buffer. Halves, and the floats in structs, are no NaNs.
func (g *generator) contents(binding int, data []byte) {
	seed := uint32(g.n(1 << 30))
	next := func() uint32 { // few choices make much data
		seed ^= seed << 13
		seed ^= seed >> 17
		seed ^= seed << 5
		if seed == 0 {
			seed = 1
		}
		return seed
	}
	for at := 0; at+4 <= len(data); at += 4 {
		w := next()
		switch binding {
		case inFloats, outFloats:
			x := float32(int32(w)>>12) / 64
			if w%5 == 0 {
				x = float32(oddFloats[next()%uint32(len(oddFloats))])
			}
			w = math.Float32bits(x)
		case outDoubles:
			if at%8 == 0 && at+8 <= len(data) {
				x := float64(int32(w)) / 4096
				if w%5 == 0 {
					x = oddFloats[next()%uint32(len(oddFloats))]
				}
				binary.LittleEndian.PutUint64(data[at:], math.Float64bits(x))
			}
			continue
		case outHalves:
			w &= 0x3FFF3FFF // below 2
		case outStructs:
			w &= 0x00FFFFFF
		case inWords:
			switch w % 3 {
			case 0:
				w = oddWords[next()%uint32(len(oddWords))]
			case 1:
				w = next() % 20
			}
		}
		binary.LittleEndian.PutUint32(data[at:], w)
	}
}
