package verify

import (
	"slices"
	"strings"

	"capgpu/program"
	"capgpu/program/spirv"
)

// The manifest is a claim: if it contradicts the module, the bundle is refused, and
// the message names the field.

func (v *verifier) contradicts(code Code, format string, args ...any) *program.Refusal {
	return program.Refuse(code, "", 0, "the manifest's "+format, args...)
}

// manifestConstants checks that the module has the constants that the manifest
// sets.
func (v *verifier) manifestConstants() *program.Refusal {
	for _, c := range v.manifest.Constants {
		if !slices.ContainsFunc(v.m.Annotations, func(in spirv.Inst) bool {
			return in.Op == spirv.OpDecorate && spirv.Decoration(in.Arg(1)) == spirv.DecorationSpecId && uint32(in.Arg(2)) == c.ID
		}) {
			return v.contradicts(CodeManifestConstants, "constants: the module has no SpecId %d", c.ID)
		}
	}
	return nil
}

// manifestBlock compares the block, or takes it as the default if the module leaves
// it to the launch.
func (v *verifier) manifestBlock() *program.Refusal {
	if len(v.manifest.Block) == 0 {
		return nil
	}
	for i := range v.iface.block.n {
		n := uint32(1)
		if i < len(v.manifest.Block) {
			n = v.manifest.Block[i]
		}
		if v.iface.block.ids[i] != 0 {
			v.iface.block.n[i] = n
		} else if v.iface.block.n[i] != n {
			return v.contradicts(CodeManifestBlock, "block is %v, the module's %v", v.manifest.Block, v.iface.block.n)
		}
	}
	return nil
}

// manifestInterface compares the inputs and requirements of a launch.
func (v *verifier) manifestInterface() *program.Refusal {
	m := v.manifest
	if m.Bindings != nil {
		if r := v.manifestBindings(m.Bindings); r != nil {
			return r
		}
	}

	if g := m.Grid; g != nil && g.Cover != "" && !slices.ContainsFunc(v.iface.buffers, func(b buffer) bool { return b.description.Name == g.Cover }) {
		return v.contradicts(CodeManifestBindings, "grid covers %q, which is no binding", g.Cover)
	}

	if m.Inline != nil {
		if r := v.manifestInline(m.Inline); r != nil {
			return r
		}
	}

	if m.SharedBytes != nil && uint64(*m.SharedBytes) != v.reached.sharedBytes {
		return v.contradicts(CodeManifestShared, "sharedBytes is %d, the module has %d of static shared memory", *m.SharedBytes, v.reached.sharedBytes)
	}

	if m.Features != nil {
		for i, name := range featureNames {
			if v.reached.features>>i&1 != 0 && !slices.Contains(m.Features, name) {
				return v.contradicts(CodeManifestFeatures, "features lack %s, which the module needs", name)
			}
		}
	}

	return nil
}

func (v *verifier) manifestBindings(claims []program.Binding) *program.Refusal {
	if len(claims) < len(v.iface.buffers) {
		return v.contradicts(CodeManifestBindings, "bindings are %d, the module has binding %d", len(claims), len(v.iface.buffers)-1)
	}
	if uint64(len(claims)) > uint64(v.lim.Bindings) {
		return v.contradicts(CodeManifestBindings, "bindings are %d; the limit is %d", len(claims), v.lim.Bindings)
	}

	for i, claim := range claims {
		if i == len(v.iface.buffers) {
			v.iface.buffers = append(v.iface.buffers, buffer{})
		}

		b := &v.iface.buffers[i]
		if b.id == 0 {
			b.description = claim
			continue
		}

		d := &b.description
		if other := v.misnamed(i, claim.Name); other >= 0 {
			return v.contradicts(CodeManifestBindings, "bindings: name %q for binding %d, and the module has it for binding %d", claim.Name, i, other)
		}
		if claim.Access&b.use != b.use {
			return v.contradicts(CodeManifestBindings, "bindings: access of %s is %v, the module's is %v", claim.Name, claim.Access, b.use)
		}
		if extra := claim.Access &^ b.access; extra != 0 {
			return v.contradicts(CodeManifestBindings, "bindings: access of %s is %v, and the module's decorations rule out %v", claim.Name, claim.Access, extra)
		}
		if claim.Type != "" && claim.Type != d.Type {
			return v.contradicts(CodeManifestBindings, "bindings: type of %s is %q, the module's is %q", claim.Name, claim.Type, d.Type)
		}

		d.Name, d.Access = claim.Name, claim.Access
	}

	return nil
}

// misnamed is the other binding that the module calls by this name, -1 if there is
// none. Names are for people, and a manifest may have better ones than the module
// (or "out", which GLSL reserves), but not another binding's.
func (v *verifier) misnamed(binding int, name string) int {
	calls := func(i int) bool {
		return v.iface.buffers[i].id != 0 && slices.ContainsFunc(v.names(i), func(s string) bool { return strings.EqualFold(s, name) })
	}
	if calls(binding) {
		return -1
	}
	for i := range v.iface.buffers {
		if i != binding && calls(i) {
			return i
		}
	}
	return -1
}

func (v *verifier) manifestInline(claims []program.Field) *program.Refusal {
	if len(claims) != len(v.iface.fields) {
		return v.contradicts(CodeManifestInline, "inline has %d fields, the module's push constants %d", len(claims), len(v.iface.fields))
	}
	for i, claim := range claims {
		if have := v.iface.fields[i]; claim != have {
			return v.contradicts(CodeManifestInline, "inline: field %s is %s at offset %d, the module's is %s, %s at offset %d",
				claim.Name, claim.Type, claim.Off, have.Name, have.Type, have.Off)
		}
	}
	return nil
}
