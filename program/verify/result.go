package verify

import (
	"fmt"
	"slices"
	"strconv"

	"capgpu/program"
	"capgpu/program/spirv"
)

// result is the program, after all checks.
func (v *verifier) result() (*Program, *program.Refusal) {
	p := &Program{
		Module:    v.m,
		Entry:     v.iface.entry,
		Inline:    v.iface.inline,
		BlockIDs:  v.iface.block.ids,
		Sizes:     v.iface.sizes,
		Constants: v.specialised,
		Chosen:    v.chosen,
		Info: program.Info{
			Name:           v.manifest.Name,
			Entry:          v.iface.entryName,
			Block:          program.Dim3{X: v.iface.block.n[0], Y: v.iface.block.n[1], Z: v.iface.block.n[2]},
			BlockFree:      v.iface.block.ids != [3]spirv.ID{},
			SharedBytes:    uint32(v.reached.sharedBytes),
			StackBytes:     uint32(v.functions[v.ids[v.iface.entry.ID()].num].stack),
			OrderDependent: v.orderDependent(),
			Tags:           v.manifest.Tags,
			Warnings:       v.warnings,
		},
	}

	shared, r := v.launchShared()
	if r != nil {
		return nil, r
	}
	p.Info.SharedSize = shared

	if v.reached.dynamicElement != 0 {
		p.Dynamic, p.Info.DynamicElementBytes = v.roles.dynamic, uint32(v.reached.dynamicElement)
	}

	p.Lengths = make(map[spirv.ID]uint32)
	for i := range v.types {
		if t := &v.types[i]; t.kind == kArray && (t.length != v.roles.dynamic || t.length == 0) {
			p.Lengths[t.id()] = t.n
		}
	}

	for i := range v.iface.shared {
		if v.iface.shared[i].used {
			p.Shared = append(p.Shared, v.iface.shared[i].id)
		}
	}

	v.bindings()
	v.listFields()
	if r := v.manifestInterface(); r != nil {
		return nil, r
	}

	for i := range v.iface.buffers {
		b := &v.iface.buffers[i]
		p.Bindings = append(p.Bindings, b.id)
		for _, view := range b.views {
			if p.Views == nil {
				p.Views = make(map[spirv.ID]int)
			}
			if _, ok := p.Views[view]; !ok {
				p.Views[view] = i
			}
		}
		p.Info.Bindings = append(p.Info.Bindings, v.iface.buffers[i].description)
	}

	if v.iface.inline != 0 {
		p.Info.Inline = v.iface.fields
		p.Info.InlineBytes = uint32(roundUp(v.info(v.iface.inline).typ.elem.layout.bytes, 4))
	}

	for i, name := range featureNames {
		if v.reached.features>>i&1 != 0 || slices.Contains(v.manifest.Features, name) {
			p.Info.Features = append(p.Info.Features, name)
		}
	}

	slices.Sort(p.Info.Features)
	if g := v.manifest.Grid; g != nil {
		p.Info.Grid = *g
	}
	if t := v.manifest.Tolerance; t != nil {
		p.Info.Tolerance = *t
	}

	return p, nil
}

// bindings describes the storage buffers as the module defines them.
func (v *verifier) bindings() {
	for i := range v.iface.buffers {
		b := &v.iface.buffers[i]
		if b.id == 0 {
			b.description = program.Binding{Name: fmt.Sprintf("binding%d", i), Access: program.Read}
			continue
		}

		// NonReadable says what the writer needs, and forbids nothing: glslang lets
		// atomics and lengths pass.
		b.access |= b.use
		d := program.Binding{Access: b.use}
		if d.Access == 0 {
			d.Access = b.access // unused, or only its length is used
		}
		if d.Access == 0 {
			d.Access = program.Read
		}

		d.Type = v.leafOf(b)
		for _, name := range v.names(i) {
			if ident(name) && d.Name == "" && !slices.ContainsFunc(v.iface.buffers[:i], func(o buffer) bool { return o.description.Name == name }) {
				d.Name = name
			}
		}

		if d.Name == "" {
			d.Name = fmt.Sprintf("binding%d", i)
		}

		b.description = d
		if b.used {
			v.reached.features |= storageFeatures(b.bits)
		}
	}
}

// leafOf is the single scalar type of a binding in all of its views, "" if there is
// none.
func (v *verifier) leafOf(b *buffer) program.Type {
	for _, view := range b.views {
		if t := v.info(view).typ.elem; t.leaf != b.typ.leaf {
			return ""
		}
	}
	return b.typ.leaf
}

func storageFeatures(bits uint8) (f featureSet) {
	for _, x := range []struct {
		bits uint8
		f    featureSet
	}{{has16, usesF16}, {has8, usesI8}, {hasF64, usesF64}, {hasI64, usesI64}} {
		if bits&x.bits != 0 {
			f |= x.f
		}
	}
	return f
}

// names are the module's names of a binding: of its variable, of its block's only
// member, of its block.
func (v *verifier) names(binding int) []string {
	b := &v.iface.buffers[binding]
	names := v.namesOf(b.id, b.typ)
	for _, view := range b.views {
		t := v.info(view).typ.elem
		if t.kind == kArray {
			t = t.elem
		}
		names = append(names, v.namesOf(view, t)...)
	}
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}

func (v *verifier) namesOf(variable spirv.ID, block *typ) []string {
	names := []string{v.label(variable)}
	if len(block.members) == 1 {
		names = append(names, v.memberLabel(block.id(), 0))
	}
	return append(names, v.label(block.id()))
}

// findLeaf is the single scalar type of everything in t, "" if there is none. It is
// computed when the type is declared, because a small module can declare a type of
// very many parts.
func (t *typ) findLeaf() program.Type {
	switch t.kind {
	case kInt:
		if t.signed {
			return program.Type("i" + strconv.Itoa(int(t.width)))
		}
		return program.Type("u" + strconv.Itoa(int(t.width)))

	case kFloat:
		return program.Type("f" + strconv.Itoa(int(t.width)))
	case kVector, kMatrix, kArray, kRuntimeArray:
		return t.elem.leaf

	case kStruct:
		for _, m := range t.members {
			if m.leaf != t.members[0].leaf {
				return ""
			}
		}
		return t.members[0].leaf
	}
	return ""
}

// listFields lists the scalars of the push constant block: at most as many as it
// has bytes, which are limited.
func (v *verifier) listFields() {
	if v.iface.inline == 0 {
		return
	}
	s := v.info(v.iface.inline).typ.elem
	for i, m := range s.members {
		name := v.memberLabel(s.id(), i)
		if !ident(name) {
			name = fmt.Sprintf("field%d", i)
		}
		v.field(name, m, s.layout.offsets[i], s.layout.matrices[i])
	}
	slices.SortStableFunc(v.iface.fields, func(a, b program.Field) int { return int(a.Off) - int(b.Off) })
}

func (v *verifier) field(name string, t *typ, off uint32, m matrix) {
	switch t.kind {
	case kVector:
		for i := range t.n {
			step := uint32(t.width / 8)
			if m.rows {
				step = m.stride
			}
			v.field(name+"_"+"xyzw"[i:i+1], t.elem, off+i*step, matrix{})
		}

	case kMatrix:
		step := m.stride
		if m.rows {
			step = uint32(t.width / 8)
		}
		for i := range t.n {
			v.field(fmt.Sprintf("%s_%d", name, i), t.elem, off+i*step, m)
		}

	case kArray:
		stride := v.dec(t.id(), spirv.DecorationArrayStride).Arg(2)
		for i := range t.n {
			v.field(fmt.Sprintf("%s_%d", name, i), t.elem, off+i*uint32(stride), m)
		}

	case kStruct:
		for i, m := range t.members {
			part := v.memberLabel(t.id(), i)
			if !ident(part) {
				part = fmt.Sprintf("field%d", i)
			}
			v.field(name+"_"+part, m, off+t.layout.offsets[i], t.layout.matrices[i])
		}

	default:
		v.iface.fields = append(v.iface.fields, program.Field{Name: name, Type: t.leaf, Off: off})
	}
}

// label is the OpName of id, "" if it has none.
func (v *verifier) label(id spirv.ID) string {
	if name := v.m.Name(id); name != fmt.Sprintf("%%%d", id) {
		return name
	}
	return ""
}

func (v *verifier) memberLabel(id spirv.ID, i int) string { return v.m.MemberName(id, i) }

// ident reports whether a name is valid in a manifest.
func ident(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= program.MaxNameBytes
}
