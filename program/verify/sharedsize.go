package verify

import (
	"math"
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// maxSizeSteps bounds the work of SharedFor for one program.
const maxSizeSteps = 512

// sharedSize computes how much static shared memory a launch has, where the size of
// its workgroup decides: steps in order, each on the results of earlier ones.
type sharedSize struct{ steps []sizeStep }

type sizeStep struct {
	kind  sizeKind
	op    spirv.Opcode // sizeOp
	width uint8        // sizeOp: bits of the operands; sizeLength: of the number, signed if n is not 0
	n     uint64       // sizeConst: the value; sizeDim: 0 is x; sizeOp: the result's mask; sizeAlign: to this
	x     [3]int16     // earlier steps
}

type sizeKind uint8

const (
	sizeConst sizeKind = iota
	sizeDim
	sizeOp
	sizeLength // of an array: beyond all limits if it is negative or too large
	sizeMul
	sizeAdd
	sizeAlign
)

// Bytes implements program.SharedSize.
func (s *sharedSize) Bytes(block program.Dim3) uint64 {
	var values [maxSizeSteps]uint64
	for i, st := range s.steps {
		a, b := values[st.x[0]], values[st.x[1]]
		n, ok := st.n, true
		switch st.kind {
		case sizeDim:
			n = uint64([3]uint32{block.X, block.Y, block.Z}[st.n])
		case sizeOp:
			n, ok = compute(st.op, st.width, [3]uint64{a, b, values[st.x[2]]})
			n &= st.n
		case sizeLength:
			n = a
			ok = n <= math.MaxInt32
		case sizeMul:
			if n = huge; a == 0 || b <= huge/a {
				n = a * b
			}
		case sizeAdd:
			n = min(huge, a+b)
		case sizeAlign:
			n = roundUp(a, uint32(st.n))
		}
		if !ok {
			return huge
		}
		values[i] = n
	}
	return values[len(s.steps)-1]
}

// sizer makes the steps of a sharedSize.
type sizer struct {
	v     *verifier
	steps []sizeStep
	parts map[sizePart]int16
	types map[*typ]int16
}

// sizePart is a component of a constant.
type sizePart struct {
	id spirv.ID
	i  uint32
}

// launchShared makes SharedSize, if the launch's workgroup decides it: of the shared
// variables that the entry point reaches, without the dynamic array.
func (v *verifier) launchShared() (program.SharedSize, *program.Refusal) {
	used := slices.DeleteFunc(slices.Clone(v.iface.shared), func(x variable) bool { return !x.used || x.typ.dynamic })
	if !slices.ContainsFunc(used, func(x variable) bool { return x.typ.launch }) {
		return nil, nil
	}

	s := &sizer{v: v, parts: make(map[sizePart]int16), types: make(map[*typ]int16)}
	total := s.fixed(0)
	for _, x := range used {
		total = s.add(s.align(total, max(4, x.typ.align)), s.bytes(x.typ))
		if len(s.steps) > maxSizeSteps-4 {
			return nil, v.refuse(CodeSpecID, x.in, "the size of shared memory is computed from the workgroup's in more than %d steps", maxSizeSteps)
		}
	}
	s.align(total, 4)
	return &sharedSize{s.steps}, nil
}

// step adds a step. Beyond the limit nothing is added: launchShared refuses then.
func (s *sizer) step(st sizeStep) int16 {
	if len(s.steps) < maxSizeSteps {
		s.steps = append(s.steps, st)
	}
	return int16(len(s.steps) - 1)
}

func (s *sizer) fixed(n uint64) int16 { return s.step(sizeStep{kind: sizeConst, n: n}) }
func (s *sizer) add(a, b int16) int16 { return s.step(sizeStep{kind: sizeAdd, x: [3]int16{a, b}}) }
func (s *sizer) align(a int16, n uint32) int16 {
	return s.step(sizeStep{kind: sizeAlign, n: uint64(n), x: [3]int16{a}})
}

// bytes is the size of a type, as sharedMemory counts it.
func (s *sizer) bytes(t *typ) int16 {
	if !t.launch {
		return s.fixed(t.bytes)
	}
	if at, ok := s.types[t]; ok || len(s.steps) == maxSizeSteps {
		return at
	}

	var at int16
	if t.kind == kArray {
		length := s.step(sizeStep{kind: sizeLength, x: [3]int16{s.part(t.length, 0)}})
		at = s.step(sizeStep{kind: sizeMul, x: [3]int16{s.bytes(t.elem), length}})
	} else {
		at = s.fixed(0)
		for _, m := range t.members {
			if at = s.add(s.align(at, m.align), s.bytes(m)); len(s.steps) == maxSizeSteps {
				return at
			}
		}
		at = s.align(at, t.align)
	}
	s.types[t] = at
	return at
}

// part is component i of a constant of integers or bools, as specPart computes it.
func (s *sizer) part(id spirv.ID, i uint32) int16 {
	c := s.v.constant(id)
	if c == nil {
		return s.fixed(0) // an OpUndef
	}
	if c.deps&depBlock == 0 {
		n, _ := s.v.part(c, i)
		return s.fixed(n)
	}
	key := sizePart{id, i}
	if at, ok := s.parts[key]; ok || len(s.steps) == maxSizeSteps {
		return at
	}
	at := s.newPart(c, i)
	s.parts[key] = at
	return at
}

func (s *sizer) newPart(c *constant, i uint32) int16 {
	switch c.in.Op {
	case spirv.OpSpecConstant:
		return s.step(sizeStep{kind: sizeDim, n: uint64(s.v.iface.sizes[c.in.Result])})
	case spirv.OpConstantComposite, spirv.OpSpecConstantComposite:
		return s.part(c.in.Arg(int(i)), 0)
	}

	args := c.in.Args[1:] // of an OpSpecConstantOp
	id := func(k int) spirv.ID { return spirv.ID(args[k]) }
	switch op := spirv.Opcode(c.in.Arg(0)); op {
	case spirv.OpCompositeExtract:
		a := id(0)
		for _, k := range args[1:] {
			from := s.v.constant(a)
			if from == nil || from.form == nullForm {
				return s.fixed(0)
			}
			if from.typ.kind == kVector {
				return s.part(a, k)
			}
			a = from.in.Arg(int(k))
		}
		return s.part(a, i)

	case spirv.OpCompositeInsert:
		if args[2] == i {
			return s.part(id(0), 0)
		}
		return s.part(id(1), i)

	case spirv.OpVectorShuffle:
		k, n := args[2+i], s.v.constant(id(0)).typ.n
		switch {
		case k < n:
			return s.part(id(0), k)
		case k-n < s.v.constant(id(1)).typ.n:
			return s.part(id(1), k-n)
		}
		return s.fixed(0)

	default:
		first := s.v.constant(id(0)).typ
		st := sizeStep{kind: sizeOp, op: op, width: first.scalar().width, n: c.typ.scalar().mask()}
		for k := range args {
			at := i
			if op == spirv.OpSelect && k == 0 && first.lanes() == 1 {
				at = 0
			}
			st.x[k] = s.part(id(k), at)
		}
		return s.step(st)
	}
}
