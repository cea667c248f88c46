package lanetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// ErrTooLong means that a program takes more steps than allowed.
var ErrTooLong = errors.New("the model was not done in as many steps as it may take")

// machine runs one launch.
type machine struct {
	program *verify.Program
	module  *spirv.Module
	options lane.Options
	launch  *lane.Launch

	types     map[spirv.ID]*typ
	constants map[spirv.ID]value
	functions map[spirv.ID]*function
	globals   map[spirv.ID]*variable // of the launch and the workgroup

	steps int // that are left
	size  [3]uint64
	group3
	threads []*thread
}

// group3 is the current workgroup.
type group3 struct {
	number uint64
	at     [3]uint64
}

// Traps runs a launch on the model and changes the bindings as the program does;
// after maxSteps instructions of all lanes together it returns ErrTooLong. It
// returns every trap in which the launch may end. There may be several, because
// lanes that diverge at a branch may take either way first; of lanes that fail
// together, only the first is included.
func Traps(p *verify.Program, o lane.Options, l *lane.Launch, maxSteps int) (traps []outcome.Trap, err error) {
	defer func() {
		if e := recover(); e != nil {
			failure, ok := e.(error)
			if !ok {
				panic(e)
			}
			err = failure
		}
	}()

	if o.SubgroupSize == 0 {
		o.SubgroupSize = 32
	}
	if o.Block == (program.Dim3{}) {
		o.Block = p.Info.Block
	}

	m := &machine{
		program: p, module: p.Module, options: o, launch: l, steps: maxSteps,
		types: map[spirv.ID]*typ{}, constants: map[spirv.ID]value{}, functions: map[spirv.ID]*function{},
		size: [3]uint64{uint64(o.Block.X), uint64(o.Block.Y), uint64(o.Block.Z)},
	}

	for _, f := range m.module.Functions {
		m.functions[f.ID()] = newFunction(f)
	}

	grid := [3]uint64{uint64(l.Grid.X), uint64(l.Grid.Y), uint64(l.Grid.Z)}
	for n := range grid[0] * grid[1] * grid[2] {
		m.group3 = group3{n, [3]uint64{n % grid[0], n / grid[0] % grid[1], n / grid[0] / grid[1]}}
		if traps := m.workgroup(); len(traps) > 0 {
			return traps, nil
		}
	}

	return nil, nil
}

// workgroup runs the workgroup at hand.
func (m *machine) workgroup() []outcome.Trap {
	m.globals = map[spirv.ID]*variable{}
	lanes := m.size[0] * m.size[1] * m.size[2]
	m.threads = nil
	for n := range lanes {
		t := &thread{m: m, lane: int(n), private: map[spirv.ID]*variable{}}
		t.call(m.functions[m.program.Entry.ID()], nil, nil)
		m.threads = append(m.threads, t)
	}

	for {
		for _, t := range m.threads {
			for t.state == running {
				if m.steps--; m.steps < 0 {
					panic(ErrTooLong)
				}
				t.step()
			}
		}
		if !m.together() {
			return m.traps()
		}
	}
}

// together continues the lanes that wait earliest in the program. It returns false
// if no lane can continue: all have ended, or have a trap, or wait for a barrier in
// vain.
func (m *machine) together() bool {
	var waiting []*thread
	for _, t := range m.threads {
		if t.state == waitingFor && !t.stuck {
			waiting = append(waiting, t)
		}
	}

	if len(waiting) == 0 {
		return false
	}

	first := slices.MinFunc(waiting, func(a, b *thread) int { return a.compare(b) })
	var here []*thread
	for _, t := range waiting { // in the order of lanes
		if t.compare(first) == 0 {
			here = append(here, t)
		}
	}

	// A barrier does not wait for a lane that has returned. A lane that returned
	// later in the program has not yet returned, if lanes run in step.
	live := 0
	for _, t := range m.threads {
		if t.state != ended || t.compare(first) > 0 {
			live++
		}
	}

	in := first.inst()
	switch {
	case in.Op == spirv.OpControlBarrier && len(here) < live:
		for _, t := range here {
			t.stuck = true
		}
		here[0].fault = &fault{kind: outcome.DivergentBarrier, binding: outcome.NoBinding}
	case in.Op == spirv.OpControlBarrier:
		for _, t := range here {
			t.next()
		}
	case isAtomic(in.Op):
		for _, t := range here {
			t.atomic(in)
		}
	default:
		m.subgroups(in, here)
	}

	return true
}

// subgroups does a subgroup operation for lanes, subgroup by subgroup.
func (m *machine) subgroups(in *spirv.Inst, lanes []*thread) {
	size := m.options.SubgroupSize
	for len(lanes) > 0 {
		n := 0
		var active []int
		args := map[int][]value{}
		for n < len(lanes) && lanes[n].lane/size == lanes[0].lane/size {
			t := lanes[n]
			n++
			active = append(active, t.lane%size)
			args[t.lane%size] = t.groupArgs(in)
		}
		out := m.group(in, active, args)
		for _, t := range lanes[:n] {
			t.set(in, out[t.lane%size])
			t.next()
		}
		lanes = lanes[n:]
	}
}

// traps are the traps of the workgroup: the first of the lanes that are at the same
// dynamic instance.
func (m *machine) traps() []outcome.Trap {
	var bad []*thread
	for _, t := range m.threads {
		if t.fault != nil {
			bad = append(bad, t)
		}
	}

	slices.SortStableFunc(bad, func(a, b *thread) int {
		if c := a.compare(b); c != 0 {
			return c
		}
		return cmp.Compare(a.fault.index, b.fault.index)
	})

	var traps []outcome.Trap
	for i, t := range bad {
		if i > 0 && t.compare(bad[i-1]) == 0 && t.fault.index == bad[i-1].fault.index {
			continue
		}
		traps = append(traps, outcome.Trap{Kind: t.fault.kind, Binding: t.fault.binding, Workgroup: uint32(m.number), Lane: uint32(t.lane), Offset: t.fault.off})
	}

	return traps
}

// global is a variable outside functions, from a lane's point of view.
func (t *thread) global(id spirv.ID) *variable {
	m := t.m
	d := m.module.Def(id)
	v := &variable{typ: m.typ(d.Type).elem, class: spirv.StorageClass(d.Args[0]), binding: outcome.NoBinding}
	switch v.class {
	case spirv.StorageClassPrivate, spirv.StorageClassInput:
		if have := t.private[id]; have != nil {
			return have
		}
		t.private[id] = v
		switch {
		case v.class == spirv.StorageClassInput:
			v.value = t.builtIn(id, v.typ)
		case len(d.Args) > 1:
			v.value = m.constant(d.Arg(1))
		default:
			v.value = zero(v.typ)
		}
		return v
	}

	if have := m.globals[id]; have != nil {
		return have
	}

	m.globals[id] = v
	switch v.class {
	case spirv.StorageClassWorkgroup:
		v.bytes = make([]byte, v.typ.size())
		for i := range v.bytes {
			if len(d.Args) == 1 {
				v.bytes[i] = 0xCD
			}
		}
	case spirv.StorageClassPushConstant:
		v.bytes = make([]byte, up(uint64(m.program.Info.InlineBytes), 8))
		copy(v.bytes, m.launch.Inline)
	default:
		b := m.program.Binding(id)
		if v.typ.op == spirv.OpTypeArray { // of buffers: each is a variable
			for i := range v.typ.n {
				one := &variable{typ: v.typ.elem, class: v.class, binding: uint16(b + int(i)), bytes: m.launch.Bindings[b+int(i)]}
				v.buffers = append(v.buffers, one)
			}
			return v
		}
		v.binding = uint16(b)
		if b < len(m.launch.Bindings) {
			v.bytes = m.launch.Bindings[b]
		}
	}

	return v
}

// builtIn is the value of an input.
func (t *thread) builtIn(id spirv.ID, typ *typ) value {
	m := t.m
	d, _ := m.module.Decoration(id, spirv.DecorationBuiltIn)
	grid := [3]uint64{uint64(m.launch.Grid.X), uint64(m.launch.Grid.Y), uint64(m.launch.Grid.Z)}
	lane, subs := uint64(t.lane), uint64(m.options.SubgroupSize)
	local := [3]uint64{lane % m.size[0], lane / m.size[0] % m.size[1], lane / m.size[0] / m.size[1]}
	threads := m.size[0] * m.size[1] * m.size[2]
	self := lane % subs
	lanesAt := func(is func(other uint64) bool) value {
		var words [4]uint64
		for other := range subs {
			if is(other) {
				words[other/32] |= 1 << (other % 32)
			}
		}
		return of(typ, words[:])
	}

	switch b := spirv.BuiltIn(d.Args[2]); b {
	case spirv.BuiltInNumWorkgroups:
		return of(typ, grid[:])

	case spirv.BuiltInWorkgroupId:
		return of(typ, m.at[:])
	case spirv.BuiltInLocalInvocationId:
		return of(typ, local[:])

	case spirv.BuiltInGlobalInvocationId:
		var at [3]uint64
		for i := range at {
			at[i] = m.at[i]*m.size[i] + local[i]
		}
		return of(typ, at[:])

	case spirv.BuiltInLocalInvocationIndex:
		return value{bits: lane}
	case spirv.BuiltInSubgroupSize:
		return value{bits: subs}

	case spirv.BuiltInSubgroupLocalInvocationId:
		return value{bits: self}
	case spirv.BuiltInNumSubgroups:
		return value{bits: (threads + subs - 1) / subs}

	case spirv.BuiltInSubgroupId:
		return value{bits: lane / subs}
	case spirv.BuiltInSubgroupEqMask:
		return lanesAt(func(other uint64) bool { return other == self })

	case spirv.BuiltInSubgroupGeMask:
		return lanesAt(func(other uint64) bool { return other >= self })
	case spirv.BuiltInSubgroupGtMask:
		return lanesAt(func(other uint64) bool { return other > self })

	case spirv.BuiltInSubgroupLeMask:
		return lanesAt(func(other uint64) bool { return other <= self })
	case spirv.BuiltInSubgroupLtMask:
		return lanesAt(func(other uint64) bool { return other < self })

	default:
		panic(fmt.Errorf("the built-in %v", b))
	}
}
