package program

import (
	"math"
	"regexp"
	"slices"
)

// Bounds of a manifest's lists, far above what a program needs.
const (
	maxConstants = 64
	maxTags      = 16
)

var (
	nameForm  = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
	ident     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	entryForm = regexp.MustCompile(`^[!-~]{1,64}$`)
	tagForm   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)
	features  = []Feature{FeatureSubgroupVote, FeatureSubgroupBallot, FeatureSubgroupShuffle, FeatureSubgroupArith,
		FeatureF16Storage, FeatureI8Storage, FeatureF64, FeatureI64, FeatureI64Atomics, FeatureF32Atomics,
		FeatureF16, FeatureI8, FeatureI16, FeatureSubgroupCluster, FeatureSubgroupQuad, FeatureDot}
)

// Bytes is the size of the type; 0 for "" and for no type.
func (t Type) Bytes() uint32 {
	switch t {
	case "u8", "i8":
		return 1
	case "f16", "u16", "i16":
		return 2
	case "f32", "u32", "i32":
		return 4
	case "f64", "u64", "i64":
		return 8
	}
	return 0
}

// check refuses values that no module could justify.
func (m *Manifest) check() *Refusal {
	bad := func(format string, args ...any) *Refusal {
		return Refuse(CodeManifest, "", 0, "the manifest: "+format, args...)
	}

	if m.Name != "" && !nameForm.MatchString(m.Name) {
		return bad("name %.80q is not of the form %s", m.Name, nameForm)
	}
	if m.Entry != "" && !entryForm.MatchString(m.Entry) {
		return bad("entry %.80q is not of the form %s", m.Entry, entryForm)
	}
	if r := m.checkBindings(bad); r != nil {
		return r
	}
	if r := m.checkInline(bad); r != nil {
		return r
	}
	if len(m.Block) > 3 {
		return bad("a block of %d dimensions", len(m.Block))
	}

	lanes := uint64(1)
	for _, n := range m.Block {
		if lanes *= uint64(n); n == 0 || lanes > MaxBlockThreads {
			return bad("block %v: each dimension is at least 1, the product at most %d", m.Block, MaxBlockThreads)
		}
	}

	if m.SharedBytes != nil && *m.SharedBytes > MaxSharedBytes {
		return bad("%d bytes of shared memory, more than %d", *m.SharedBytes, MaxSharedBytes)
	}

	for i, f := range m.Features {
		if !slices.Contains(features, f) {
			return bad("there is no feature %.80q", string(f))
		}
		if slices.Contains(m.Features[:i], f) {
			return bad("feature %s twice", f)
		}
	}

	if len(m.Constants) > maxConstants {
		return bad("%d constants, more than %d", len(m.Constants), maxConstants)
	}

	for i, c := range m.Constants {
		if slices.ContainsFunc(m.Constants[:i], func(o Constant) bool { return o.ID == c.ID }) {
			return bad("constant %d twice", c.ID)
		}
	}

	if t := m.Tolerance; t != nil && !(t.Abs >= 0 && t.Rel >= 0 && t.Abs <= math.MaxFloat32 && t.Rel <= math.MaxFloat32) {
		return bad("tolerance %v is not two numbers from 0 up", *t)
	}
	if len(m.Tags) > maxTags {
		return bad("%d tags, more than %d", len(m.Tags), maxTags)
	}

	for _, tag := range m.Tags {
		if !tagForm.MatchString(tag) {
			return bad("tag %.80q is not of the form %s", tag, tagForm)
		}
	}

	return nil
}

func (m *Manifest) checkBindings(bad func(string, ...any) *Refusal) *Refusal {
	if len(m.Bindings) > MaxBindings {
		return bad("%d bindings, more than %d", len(m.Bindings), MaxBindings)
	}

	for i, b := range m.Bindings {
		switch {
		case !ident.MatchString(b.Name):
			return bad("binding %d: name %.80q is not of the form %s", i, b.Name, ident)
		case b.Access == 0 || b.Access > ReadWrite:
			return bad("binding %s has no access", b.Name)
		case b.Type != "" && b.Type.Bytes() == 0:
			return bad("binding %s: there is no type %.80q", b.Name, string(b.Type))
		case slices.ContainsFunc(m.Bindings[:i], func(o Binding) bool { return o.Name == b.Name }):
			return bad("binding %s twice", b.Name)
		}
	}

	g := m.Grid
	if g == nil {
		return nil
	}
	if g.Cover != "" && !slices.ContainsFunc(m.Bindings, func(b Binding) bool { return b.Name == g.Cover }) {
		return bad("the grid covers %.80q, which is no binding", g.Cover)
	}
	if g.ElementBytes > MaxBundleBytes {
		return bad("grid elements of %d bytes, more than %d", g.ElementBytes, MaxBundleBytes)
	}
	if g.Groups > MaxGrid {
		return bad("a grid of %d workgroups, more than %d", g.Groups, MaxGrid)
	}

	return nil
}

func (m *Manifest) checkInline(bad func(string, ...any) *Refusal) *Refusal {
	var end uint32
	for i, f := range m.Inline {
		size := f.Type.Bytes()
		switch {
		case !ident.MatchString(f.Name):
			return bad("inline field %d: name %.80q is not of the form %s", i, f.Name, ident)
		case size == 0:
			return bad("inline field %s: there is no type %.80q", f.Name, string(f.Type))
		case f.Off%size != 0 || f.Off < end:
			return bad("inline field %s at offset %d: fields are aligned to their size and in order", f.Name, f.Off)
		case f.Off > MaxInlineBytes-size:
			return bad("inline field %s at offset %d: the block is at most %d bytes", f.Name, f.Off, MaxInlineBytes)
		case slices.ContainsFunc(m.Inline[:i], func(o Field) bool { return o.Name == f.Name }):
			return bad("inline field %s twice", f.Name)
		}
		end = f.Off + size
	}

	return nil
}
