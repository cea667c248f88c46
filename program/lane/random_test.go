package lane_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/lane/lanetest"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// maker writes a random kernel: variables, arithmetic, nested selections, loops,
// switches, breaks, continues and returns, with conditions that are uniform or not;
// functions; shared memory between barriers. Each lane writes its variables to its
// own place, so there is one right result.
type maker struct {
	*spirvtest.Builder
	r       *rand.Rand
	u, i, f spirv.ID
	boolean spirv.ID
	vars    []spirv.ID // uint
	reals   []spirv.ID // float
	array   spirv.ID   // uint[4]
	in, out spirv.ID
	shared  spirv.ID
	lane    spirv.ID // value
	group   spirv.ID
	funcs   []spirv.ID
	lanes   uint32
	loops   [][2]spirv.ID
	budget  int
	inFunc  bool
	uniform bool // control flow is uniform here, so a barrier is allowed
}

const (
	makerVars  = 5
	makerReals = 2
	makerIn    = 64
	makerWords = makerVars + makerReals
)

func (m *maker) n(k int) int { return m.r.IntN(k) }

func makeKernel(seed uint64) (module []byte, block program.Dim3) {
	r := rand.New(rand.NewPCG(seed, 7))
	m := &maker{Builder: spirvtest.New(), r: r, budget: 10 + r.IntN(40)}
	block = program.Dim3{X: 1 + uint32(m.n(20)), Y: 1 + uint32(m.n(3)), Z: 1 + uint32(m.n(2))}
	m.lanes = block.X * block.Y * block.Z
	m.u, m.i, m.f, m.boolean = m.Uint(32), m.Int(32), m.Float(32), m.Bool()
	m.in, m.out = m.Buffer(0, m.u, 4), m.Buffer(1, m.u, 4)
	v3 := m.Vec(m.u, 3)
	index := m.Input(m.u, spirv.BuiltInLocalInvocationIndex)
	group := m.Input(v3, spirv.BuiltInWorkgroupId)
	m.shared = m.Shared(m.Array(m.u, m.U32(m.lanes), 0))

	for range m.n(3) {
		m.function()
	}

	main := m.Func(m.Void())
	m.lane = m.Load(m.u, index)
	m.group = m.Op(spirv.OpCompositeExtract, m.u, m.Load(v3, group), 0)
	m.locals()
	m.uniform = true
	open := m.block(3)
	if open {
		m.finish()
		m.Return()
	}

	m.End()
	m.Compute(main, "main", block.X, block.Y, block.Z)
	return m.Bytes(), block
}

func (m *maker) locals() {
	m.vars, m.reals = nil, nil
	for k := range makerVars {
		v := m.Local(m.u)
		m.vars = append(m.vars, v)
		if k < 3 {
			m.Store(v, m.expr(1))
		}
	}
	for range makerReals {
		v := m.Local(m.f)
		m.Store(v, m.real(1))
		m.reals = append(m.reals, v)
	}
	m.array = m.Local(m.Array(m.u, m.U32(4), 0))
}

func (m *maker) function() {
	fn := m.Func(m.u, m.u, m.Pointer(spirv.StorageClassFunction, m.u))
	lane, group, inFunc, budget := m.lane, m.group, m.inFunc, m.budget
	m.lane, m.group, m.inFunc, m.budget, m.uniform = m.Param(0), m.U32(uint32(m.n(3))), true, 8, false
	m.locals()
	m.vars[0] = m.Param(1)
	if m.block(2) {
		m.ReturnValue(m.expr(2))
	}
	m.End()
	m.lane, m.group, m.inFunc, m.budget = lane, group, inFunc, budget
	m.funcs = append(m.funcs, fn)
}

// finish writes the lane's variables.
func (m *maker) finish() {
	at := m.Op(spirv.OpIMul, m.u, m.Op(spirv.OpIAdd, m.u, m.lane, m.Op(spirv.OpIMul, m.u, m.group, m.U32(m.lanes))), m.U32(makerWords))
	put := func(k int, v spirv.ID) {
		p := m.Access(spirv.StorageClassStorageBuffer, m.u, m.out, m.U32(0), m.Op(spirv.OpIAdd, m.u, at, m.U32(uint32(k))))
		m.Store(p, v)
	}
	for k, v := range m.vars {
		put(k, m.Load(m.u, v))
	}
	for k, v := range m.reals {
		put(makerVars+k, m.Op(spirv.OpBitcast, m.u, m.Load(m.f, v)))
	}
}

// block writes statements; false if it ended its block.
func (m *maker) block(depth int) bool {
	for range 1 + m.n(4) {
		if m.budget--; m.budget < 0 {
			return true
		}
		if !m.statement(depth) {
			return false
		}
	}
	return true
}

func (m *maker) nested(depth int, uniform bool) bool {
	was := m.uniform
	m.uniform = m.uniform && uniform
	open := m.block(depth - 1)
	m.uniform = was
	return open
}

func (m *maker) statement(depth int) bool {
	k := m.n(14)
	if depth == 0 && k > 6 {
		k = m.n(7)
	}

	switch k {
	case 0, 1, 2:
		m.Store(m.vars[m.n(makerVars)], m.expr(3))

	case 3:
		m.Store(m.reals[m.n(makerReals)], m.real(3))
	case 4:
		p := m.Access(spirv.StorageClassFunction, m.u, m.array, m.Op(spirv.OpBitwiseAnd, m.u, m.expr(1), m.U32(3)))
		m.Store(p, m.expr(2))

	case 5:
		if len(m.funcs) > 0 && !m.inFunc {
			v := m.Call(m.u, m.funcs[m.n(len(m.funcs))], m.expr(2), m.vars[m.n(makerVars)])
			m.Store(m.vars[m.n(makerVars)], v)
		}

	case 6:
		m.exchange()
	case 7, 8, 9:
		uniform := m.n(3) == 0
		var no func() bool
		if m.n(2) == 0 {
			no = func() bool { return m.nested(depth, uniform) }
		}
		both := m.n(2) == 0 || len(m.loops) == 0
		m.If(m.cond(uniform), func() bool {
			if !both && m.n(2) == 0 {
				return m.leave()
			}
			return m.nested(depth, uniform)
		}, no)

	case 10, 11:
		m.loop(depth)
	case 12:
		uniform := m.n(3) == 0
		sel := m.expr(2)
		if uniform {
			sel = m.group
		}
		sel = m.Op(spirv.OpUMod, m.u, sel, m.U32(4))
		var cases []spirvtest.Case
		for v := range 1 + m.n(3) {
			cases = append(cases, spirvtest.Case{Value: uint32(v), Body: func() bool {
				if len(m.loops) > 0 && m.n(4) == 0 {
					m.Branch(m.loops[len(m.loops)-1][1])
					return false
				}
				return m.nested(depth, uniform)
			}})
		}
		m.Switch(sel, func() bool { return m.nested(depth, uniform) }, cases...)

	case 13:
		if m.n(2) == 0 {
			m.If(m.cond(false), func() bool {
				if m.inFunc {
					m.ReturnValue(m.expr(1))
				} else {
					m.finish()
					m.Return()
				}
				return false
			}, nil)
			m.uniform = false
		}
	}

	return true
}

// leave breaks or continues the innermost loop.
func (m *maker) leave() bool {
	m.Branch(m.loops[len(m.loops)-1][m.n(2)])
	return false
}

func (m *maker) loop(depth int) {
	c := m.Local(m.u)
	m.Store(c, m.U32(0))
	uniform := m.n(2) == 0
	bound := m.U32(uint32(1 + m.n(5)))
	if !uniform {
		bound = m.Op(spirv.OpUMod, m.u, m.expr(1), m.U32(6))
	}

	was := m.uniform
	m.uniform = false // a break may be divergent
	m.Loop(func() spirv.ID {
		return m.Op(spirv.OpULessThan, m.boolean, m.Load(m.u, c), bound)
	}, func(brk, cont spirv.ID) bool {
		m.loops = append(m.loops, [2]spirv.ID{brk, cont})
		defer func() { m.loops = m.loops[:len(m.loops)-1] }()
		if m.n(3) == 0 {
			v := m.vars[m.n(makerVars)]
			m.Store(v, m.Op(spirv.OpIAdd, m.u, m.Load(m.u, v), m.Load(m.u, c)))
		}
		return m.nested(depth, false)
	}, func() {
		m.Store(c, m.Op(spirv.OpIAdd, m.u, m.Load(m.u, c), m.U32(1)))
	})

	m.uniform = was
	if m.n(2) == 0 {
		m.Store(m.vars[m.n(makerVars)], m.Load(m.u, c))
	}
}

// exchange passes a value to another lane, between barriers.
func (m *maker) exchange() {
	if !m.uniform || m.inFunc {
		return
	}
	at := func(lane spirv.ID) spirv.ID { return m.Access(spirv.StorageClassWorkgroup, m.u, m.shared, lane) }
	m.Store(at(m.lane), m.expr(2))
	m.Barrier()
	other := m.Op(spirv.OpUMod, m.u, m.Op(spirv.OpIAdd, m.u, m.lane, m.U32(uint32(m.n(9)))), m.U32(m.lanes))
	if m.n(3) == 0 {
		other = m.U32(uint32(m.n(int(m.lanes))))
	}
	v := m.Load(m.u, at(other))
	m.Barrier()
	m.Store(m.vars[m.n(makerVars)], v)
}

// optimized is spirv-opt's version of a module: with phis, and without variables
// and calls.
func optimized(t *testing.T, module []byte) []byte {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.spv"), filepath.Join(dir, "out.spv")
	require.NoError(t, os.WriteFile(in, module, 0o600))
	msg, err := exec.Command("spirv-opt", "-O", in, "-o", out).CombinedOutput()
	require.NoError(t, err, "%s", msg)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	return data
}

// TestRandom compares the engine with the model on random kernels.
// RANDOM=first:count runs others, and more; OPTIMIZE=1 passes them through
// spirv-opt (package spirv-tools) first.
func TestRandom(t *testing.T) {
	first, count := 1, 60
	if s := os.Getenv("RANDOM"); s != "" {
		_, err := fmt.Sscanf(s, "%d:%d", &first, &count)
		require.NoError(t, err)
	}
	for seed := first; seed < first+count; seed++ {
		compareRandom(t, uint64(seed))
		if t.Failed() {
			t.Fatal("seed " + strconv.Itoa(seed))
		}
	}
}

func compareRandom(t *testing.T, seed uint64) {
	module, block := makeKernel(seed)
	if os.Getenv("OPTIMIZE") != "" {
		module = optimized(t, module)
	}

	p, err := verify.Admit(module, verify.DefaultLimits())
	require.NoError(t, err, "seed %d", seed)
	const groups = 4
	in := make([]byte, 4*makerIn)
	r := rand.New(rand.NewPCG(seed, 8))
	for i := 0; i < len(in); i += 4 {
		in[i] = byte(r.IntN(50))
	}

	out := make([]byte, 4*makerWords*groups*block.X*block.Y*block.Z)
	l := &lane.Launch{Grid: program.Dim3{X: groups, Y: 1, Z: 1}, Bindings: [][]byte{in, out}}
	err = difference(p, lane.Options{}, l)
	if errors.Is(err, lanetest.ErrTooLong) {
		return
	}
	if err != nil && strings.Contains(err.Error(), "divergentBarrier") {
		return // lanes that return early, and others that come to a barrier later
	}

	require.NoError(t, err, "seed %d", seed)
	if seed%4 == 0 {
		err := difference(p, lane.Options{Check: true}, l)
		if err == nil || !strings.Contains(err.Error(), "divergentBarrier") {
			require.NoError(t, err, "seed %d, checked", seed)
		}
	}
}
