package instrument

import (
	"encoding/binary"
	"slices"

	"capgpu/program/spirv"
)

// code is a run of instructions.
type code []uint32

func (c *code) put(op spirv.Opcode, words ...uint32) {
	*c = append(*c, uint32(len(words)+1)<<16|uint32(op))
	*c = append(*c, words...)
}

// copy adds an instruction as it is.
func (c *code) copy(in *spirv.Inst) {
	words := make([]uint32, 0, len(in.Args)+2)
	if in.Type != 0 {
		words = append(words, uint32(in.Type))
	}
	if in.Result != 0 {
		words = append(words, uint32(in.Result))
	}
	c.put(in.Op, append(words, in.Args...)...)
}

func (r *rewriter) newID() spirv.ID {
	r.next++
	return r.next - 1
}

// op adds an instruction with a result to the function at hand.
func (r *rewriter) op(op spirv.Opcode, t spirv.ID, args ...spirv.ID) spirv.ID {
	id := r.newID()
	r.opAs(id, op, t, args...)
	return id
}

// opAs is op with a result that has its id.
func (r *rewriter) opAs(id spirv.ID, op spirv.Opcode, t spirv.ID, args ...spirv.ID) {
	r.body.put(op, words(uint32(t), uint32(id), args)...)
}

// do adds an instruction without a result.
func (r *rewriter) do(op spirv.Opcode, args ...spirv.ID) { r.body.put(op, words(args)...) }

func (r *rewriter) label(id spirv.ID) { r.do(spirv.OpLabel, id) }

func (r *rewriter) load(t, pointer spirv.ID) spirv.ID { return r.op(spirv.OpLoad, t, pointer) }

// branch leads to yes or no, which come together at merge.
func (r *rewriter) branch(cond, yes, no, merge spirv.ID) {
	r.body.put(spirv.OpSelectionMerge, uint32(merge), uint32(spirv.SelectionControlNone))
	r.do(spirv.OpBranchConditional, cond, yes, no)
}

// words joins ids and words.
func words(parts ...any) (out []uint32) {
	for _, p := range parts {
		switch p := p.(type) {
		case uint32:
			out = append(out, p)
		case spirv.ID:
			out = append(out, uint32(p))
		case []uint32:
			out = append(out, p...)
		case []spirv.ID:
			for _, id := range p {
				out = append(out, uint32(id))
			}
		}
	}
	return out
}

// declared is the type with these words: the module's, or a new one.
func (r *rewriter) declared(op spirv.Opcode, args ...uint32) spirv.ID {
	key := string(binary.LittleEndian.AppendUint32(nil, uint32(op)))
	for _, w := range args {
		key += string(binary.LittleEndian.AppendUint32(nil, w))
	}

	if r.known == nil {
		r.known = make(map[string]spirv.ID)
		for i := range r.m.Globals {
			in := &r.m.Globals[i]
			switch in.Op {
			case spirv.OpTypeVoid, spirv.OpTypeBool, spirv.OpTypeInt, spirv.OpTypeFloat, spirv.OpTypeVector,
				spirv.OpTypePointer, spirv.OpTypeFunction:
				k := string(binary.LittleEndian.AppendUint32(nil, uint32(in.Op)))
				for _, w := range in.Args {
					k += string(binary.LittleEndian.AppendUint32(nil, w))
				}
				if _, ok := r.known[k]; !ok {
					r.known[k] = in.Result
				}
			}
		}
	}

	if id, ok := r.known[key]; ok {
		return id
	}
	id := r.newID()
	r.known[key] = id
	r.late.put(op, words(id, args)...)
	return id
}

func (r *rewriter) void() spirv.ID    { return r.declared(spirv.OpTypeVoid) }
func (r *rewriter) boolean() spirv.ID { return r.declared(spirv.OpTypeBool) }
func (r *rewriter) u32() spirv.ID     { return r.declared(spirv.OpTypeInt, 32, 0) }

func (r *rewriter) vector(t spirv.ID, n uint32) spirv.ID {
	if n <= 1 {
		return t
	}
	return r.declared(spirv.OpTypeVector, uint32(t), n)
}

func (r *rewriter) pointer(c spirv.StorageClass, t spirv.ID) spirv.ID {
	return r.declared(spirv.OpTypePointer, uint32(c), uint32(t))
}

func (r *rewriter) function(result spirv.ID, params ...spirv.ID) spirv.ID {
	return r.declared(spirv.OpTypeFunction, words(result, params)...)
}

// bools is the type of a truth for each component of t.
func (r *rewriter) bools(t *typ) spirv.ID {
	if t.op == spirv.OpTypeVector {
		return r.vector(r.boolean(), t.n)
	}
	return r.boolean()
}

// constant is a constant of a scalar type with these bits.
func (r *rewriter) constant(t spirv.ID, wide bool, bits uint64) spirv.ID {
	key := constantKey{t, bits}
	if id, ok := r.constants[key]; ok {
		return id
	}
	id := r.newID()
	r.constants[key] = id
	if wide {
		r.late.put(spirv.OpConstant, uint32(t), uint32(id), uint32(bits), uint32(bits>>32))
	} else {
		r.late.put(spirv.OpConstant, uint32(t), uint32(id), uint32(bits))
	}
	return id
}

func (r *rewriter) word(v uint32) spirv.ID { return r.constant(r.u32(), false, uint64(v)) }

// number is a constant of t, with the same bits in each component.
func (r *rewriter) number(t *typ, bits uint64) spirv.ID {
	s := t.scalar()
	if s.width < 64 {
		bits &= 1<<s.width - 1
	}
	if up := 32 - s.width; s.width < 32 && s.signed { // a literal continues the sign
		bits = uint64(uint32(int32(bits<<up) >> up))
	}
	id := r.constant(s.id, s.width == 64, bits)
	if t.op != spirv.OpTypeVector {
		return id
	}
	return r.splat(t, id)
}

// splat is a constant vector of equal components.
func (r *rewriter) splat(t *typ, id spirv.ID) spirv.ID {
	key := constantKey{t.id, uint64(id)}
	if v, ok := r.splats[key]; ok {
		return v
	}
	v := r.newID()
	r.splats[key] = v
	r.late.put(spirv.OpConstantComposite, words(t.id, v, slices.Repeat([]spirv.ID{id}, int(t.n)))...)
	return v
}

type constantKey struct {
	t    spirv.ID
	bits uint64
}

// null is the zero value of a type, declared in into if it is new.
func (r *rewriter) null(into *code, t spirv.ID) spirv.ID {
	if id, ok := r.nulls[t]; ok {
		return id
	}
	id := r.newID()
	r.nulls[t] = id
	into.put(spirv.OpConstantNull, uint32(t), uint32(id))
	return id
}

// private is a new variable of the lane that begins as zero.
func (r *rewriter) private(t spirv.ID) spirv.ID {
	pointer := r.pointer(spirv.StorageClassPrivate, t)
	init := r.null(&r.late, t)
	id := r.newID()
	r.late.put(spirv.OpVariable, words(pointer, id, uint32(spirv.StorageClassPrivate), init)...)
	r.added = append(r.added, id)
	return id
}

// decorate adds an OpDecorate.
func (r *rewriter) decorate(id spirv.ID, d spirv.Decoration, args ...uint32) {
	r.annotations.put(spirv.OpDecorate, words(id, uint32(d), args)...)
}

// value is the value of an integer constant; a specialisation constant has none.
func (r *rewriter) value(id spirv.ID) (uint64, bool) {
	d := r.m.Def(id)
	if d == nil {
		return 0, false
	}
	switch d.Op {
	case spirv.OpConstantNull, spirv.OpUndef:
		return 0, true
	case spirv.OpConstant:
		return literal(d), true
	}
	return 0, false
}

// literal is the bits of a constant, of which those of less than 32 bits continue
// their sign.
func literal(d *spirv.Inst) uint64 {
	v := uint64(d.Args[0])
	if len(d.Args) > 1 {
		v |= uint64(d.Args[1]) << 32
	}
	return v
}

// typeOf is the type of a value.
func (r *rewriter) typeOf(id spirv.ID) *typ {
	if t := r.own[id]; t != nil {
		return t
	}
	if d := r.m.Def(id); d != nil {
		return r.types[d.Type]
	}
	return nil
}
