package verify

import (
	"cmp"
	"slices"

	"capgpu/program"
	"capgpu/program/spirv"
)

// slot is a variable's place among the descriptors.
type slot struct {
	variable
	set, binding uint32
	n            uint32 // buffers: 1, or the length of an array of buffers
	access       program.Access
}

// declareBuffer checks a storage buffer, a uniform buffer, or an array of one of them.
func (v *verifier) declareBuffer(x variable, class spirv.StorageClass) *program.Refusal {
	in, s, n := x.in, x.typ, uint32(1)
	if s.kind == kRuntimeArray {
		return v.refuse(CodeBinding, in, "an array of buffers without a length")
	}
	if s.kind == kArray {
		if c := v.constant(s.length); s.launch || c != nil && c.deps != 0 {
			return v.refuse(CodeBinding, in, "an array of buffers, the length of which is no plain constant")
		}
		if s.elem.kind == kArray || s.n > program.MaxBindings {
			return v.refuse(CodeBinding, in, "an array of arrays of buffers, or of more than %d", program.MaxBindings)
		}
		s, n = s.elem, s.n
	}
	if s.kind != kStruct {
		return v.refuse(CodeVariable, in, "a buffer holds a struct")
	}

	block, bufferBlock := v.dec(s.id(), spirv.DecorationBlock), v.dec(s.id(), spirv.DecorationBufferBlock)
	uniform := class == spirv.StorageClassUniform && block != nil
	switch {
	case block != nil && bufferBlock != nil:
		return v.refuse(CodeDecorated, in, "a struct with Block and BufferBlock")
	case block == nil && (bufferBlock == nil || class == spirv.StorageClassStorageBuffer):
		return v.refuse(CodeLayout, in, "a buffer whose struct is no Block")
	case bufferBlock != nil && v.m.Version >= version14:
		return v.refuse(CodeNeeds, in, "BufferBlock is of SPIR-V 1.3 and before")
	case uniform && s.bits&hasRuntime != 0:
		return v.refuse(CodeVariable, in, "a uniform buffer without a size")
	case s.bits&(hasBool|hasPointer) != 0:
		return v.refuse(CodeElement, in, "a bool has no layout; a buffer holds integers and floats")
	}

	if r := v.narrowBuffer(in, s, uniform); r != nil {
		return r
	}
	if r := v.layoutOf(s); r != nil {
		return r
	}

	set, binding := v.dec(in.Result, spirv.DecorationDescriptorSet), v.dec(in.Result, spirv.DecorationBinding)
	if set == nil || binding == nil {
		return v.refuse(CodeBinding, in, "a buffer without DescriptorSet and Binding")
	}
	if b := uint32(binding.Arg(2)); b >= v.lim.Bindings {
		return v.refuse(CodeBinding, in, "binding %d; the profile has %d", b, v.lim.Bindings)
	}

	at := slot{variable: x, set: uint32(set.Arg(2)), binding: uint32(binding.Arg(2)), n: n, access: program.ReadWrite}
	flags := &v.ids[in.Result].flags
	if uniform || v.dec(in.Result, spirv.DecorationNonWritable) != nil || s.layout.all(noWrite) {
		at.access &^= program.Write
		*flags |= noWrite
	}
	if v.dec(in.Result, spirv.DecorationNonReadable) != nil || s.layout.all(noRead) {
		at.access &^= program.Read
		*flags |= noRead
	}

	v.iface.slots = append(v.iface.slots, at)
	return nil
}

// narrowBuffer checks that a buffer may hold 8 and 16 bits.
func (v *verifier) narrowBuffer(in *spirv.Inst, s *typ, uniform bool) *program.Refusal {
	for _, n := range []struct {
		bits             uint8
		storage, uniform spirv.Capability
	}{
		{has16, spirv.CapabilityStorageBuffer16BitAccess, spirv.CapabilityUniformAndStorageBuffer16BitAccess},
		{has8, spirv.CapabilityStorageBuffer8BitAccess, spirv.CapabilityUniformAndStorageBuffer8BitAccess},
	} {
		need := n.storage
		if uniform {
			need = n.uniform
		}
		if s.bits&n.bits != 0 && !v.caps[need] {
			return v.refuse(CodeNeeds, in, "8 or 16 bits in a buffer need capability %v", need)
		}
	}
	return nil
}

// placeBuffers numbers the buffers in the order of descriptor sets and bindings. A
// binding below the highest of its set has a number even if nothing has it, and an
// array of buffers has as many as it is long; so in a module with set 0 and without
// arrays the number is the binding. Variables of one binding are views of one buffer.
func (v *verifier) placeBuffers() *program.Refusal {
	slices.SortStableFunc(v.iface.slots, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.binding, b.binding))
	})

	next := uint64(0)             // number
	set, binding := -1, -1        // the last
	first, length := 0, uint32(0) // its number, and how many it has
	for i := range v.iface.slots {
		s := &v.iface.slots[i]
		if int(s.set) != set {
			set, binding = int(s.set), -1
		}
		if int(s.binding) != binding {
			next += uint64(int(s.binding) - binding - 1)
			first, binding, length = int(next), int(s.binding), s.n
			next += uint64(s.n)
		}
		if s.n != length {
			return v.refuse(CodeBinding, s.in, "binding %d of set %d has a variable of %d buffers already", s.binding, s.set, length)
		}
		if next > uint64(v.lim.Bindings) {
			return v.refuse(CodeBinding, s.in, "binding %d of set %d is the buffer with the number %d; the profile has %d", s.binding, s.set, next-1, v.lim.Bindings)
		}

		for len(v.iface.buffers) < int(next) {
			v.iface.buffers = append(v.iface.buffers, buffer{})
		}
		v.place(s, first)
	}

	return nil
}

// place makes a variable that of its bindings, or a view of them.
func (v *verifier) place(s *slot, first int) {
	v.ids[s.id].num = int32(first)
	for i := range int(s.n) {
		b := &v.iface.buffers[first+i]
		if b.id != 0 {
			b.views = append(b.views, s.id)
			b.access |= s.access
			b.bits |= s.typ.bits
			continue
		}
		b.variable, b.access, b.bits = s.variable, s.access, s.typ.bits
		if b.typ.kind == kArray {
			b.typ = b.typ.elem
		}
	}
}

// bufferOf is the binding that a pointer leads into; in an array of buffers it is the
// first; the second result is how many the pointer may lead into.
func (v *verifier) bufferOf(pointer spirv.ID) (first, n int) {
	i := v.info(pointer)
	root := v.info(i.root)
	if root.what != isVariable || root.num < 0 {
		return -1, 0
	}
	if root.typ.elem.kind != kArray || i.member == 0 {
		return int(root.num), bufferCount(root.typ.elem)
	}
	return int(root.num) + int(i.member) - 1, 1
}

// bufferCount is how many buffers a variable of this type is.
func bufferCount(t *typ) int {
	if t.kind == kArray {
		return int(t.n)
	}
	return 1
}

// isBufferArray reports whether a type is that of a variable that is an array of
// buffers.
func (v *verifier) isBufferArray(variable spirv.ID, t *typ) bool {
	x := v.info(variable)
	if x.what != isVariable || x.typ.elem != t {
		return false
	}
	return x.typ.class == spirv.StorageClassStorageBuffer || x.typ.class == spirv.StorageClassUniform
}

// whichBuffer is the index of an access chain into an array of buffers; ok is false if
// only the launch or the run tells it.
func (v *verifier) whichBuffer(in *spirv.Inst, t *typ) (n uint64, ok bool, r *program.Refusal) {
	if a := v.arg(in, 1); !a.isScalar(kInt) {
		return 0, false, v.badOperand(in, 1, "an integer")
	}
	c := v.constant(in.Arg(1))
	switch {
	case c == nil || c.form != scalarForm || c.deps&(depBlock|depShared) != 0:
		return 0, false, nil
	case c.bits >= uint64(t.n):
		return 0, false, v.refuse(CodeChain, in, "there is no buffer %d in an array of %d", c.bits, t.n)
	}
	return c.bits, true, nil
}
