package program

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// module is the smallest thing that looks like a module.
func module() []byte {
	m := make([]byte, 24)
	binary.LittleEndian.PutUint32(m, spirvMagic)
	return m
}

func sample() *Manifest {
	shared := uint32(1024)
	return &Manifest{
		Name:        "saxpy_f32",
		Entry:       "main",
		Bindings:    []Binding{{"x", Read, "f32"}, {"y", ReadWrite, "f32"}},
		Inline:      []Field{{"a", "f32", 0}, {"n", "u64", 8}},
		Block:       []uint32{256},
		SharedBytes: &shared,
		Features:    []Feature{FeatureF64},
		Constants:   []Constant{{4, math.MaxUint64}},
		Grid:        &Grid{Cover: "y"},
		Tolerance:   &Tolerance{Rel: 1e-6},
		Tags:        []string{"cpu"},
	}
}

func TestBundleRoundTrip(t *testing.T) {
	data, err := Encode(module(), sample())
	require.NoError(t, err)
	again, err := Encode(module(), sample())
	require.NoError(t, err)
	require.Equal(t, data, again)

	b, err := Parse(data)
	require.NoError(t, err)
	require.Equal(t, module(), b.SPIRV)
	require.Equal(t, sample(), b.Manifest)
	require.Equal(t, sha256.Sum256(data), b.Digest)
}

// A bundle's bytes are fixed, because other languages make bundles too.
func TestBundleGolden(t *testing.T) {
	data, err := Encode(module(), &Manifest{Name: "x", Bindings: []Binding{{Name: "a", Access: Write}}})
	require.NoError(t, err)
	const text = `{"name":"x","bindings":[{"name":"a","access":"write"}]}`
	require.Equal(t, "CGPB\x01\x00\x00\x00\x18\x00\x00\x00\x37\x00\x00\x00"+string(module())+text, string(data))
}

func TestBareModule(t *testing.T) {
	data, err := Encode(module(), nil)
	require.NoError(t, err)
	require.Equal(t, module(), data)
	b, err := Parse(data)
	require.NoError(t, err)
	require.Equal(t, &Manifest{}, b.Manifest)
	require.Equal(t, module(), b.SPIRV)
	require.Equal(t, sha256.Sum256(data), b.Digest)
}

// wrap makes a bundle of any manifest text.
func wrap(text string) []byte {
	out := binary.LittleEndian.AppendUint32([]byte("CGPB\x01\x00\x00\x00\x18\x00\x00\x00"), uint32(len(text)))
	return append(append(out, module()...), text...)
}

func TestParseRefuses(t *testing.T) {
	good := wrap("{}")
	_, err := Parse(good)
	require.NoError(t, err)
	edit := func(at int, v byte) []byte {
		data := append([]byte(nil), good...)
		data[at] = v
		return data
	}

	for name, c := range map[string]struct {
		data []byte
		code string
	}{
		"nothing":           {nil, CodeNotBundle},
		"short":             {[]byte("CGPB"), CodeNotBundle},
		"other magic":       {edit(0, 'X'), CodeNotBundle},
		"big endian module": {append([]byte{7, 0x23, 2, 3}, make([]byte, 20)...), CodeNotBundle},
		"bare module of 22": {module()[:22], CodeNotBundle},
		"bare module of 16": {module()[:16], CodeNotBundle},
		"version":           {edit(4, 2), CodeVersion},
		"module longer":     {edit(8, 0x1c), CodeLengths},
		"module huge":       {edit(11, 0xff), CodeLengths},
		"manifest shorter":  {edit(12, 1), CodeLengths},
		"trailing":          {append(edit(12, 2), 0), CodeLengths},
		"no module magic":   {edit(16, 0), CodeNotBundle},
		"too large":         {make([]byte, MaxBundleBytes+1), CodeTooLarge},
		"large manifest":    {wrap("{}" + strings.Repeat(" ", MaxManifestBytes)), CodeManifestSize},
		"no manifest":       {wrap(""), CodeManifestJSON},
		"null":              {wrap("null"), CodeManifestJSON},
		"array":             {wrap("[]"), CodeManifestJSON},
		"not JSON":          {wrap("{"), CodeManifestJSON},
		"two objects":       {wrap("{}{}"), CodeManifestJSON},
		"unknown field":     {wrap(`{"nmae":"x"}`), CodeManifestJSON},
		"wrong kind":        {wrap(`{"name":7}`), CodeManifestJSON},
		"unknown access":    {wrap(`{"bindings":[{"name":"a","access":"rw"}]}`), CodeManifestJSON},
		"no access":         {wrap(`{"bindings":[{"name":"a"}]}`), CodeManifest},
		"negative block":    {wrap(`{"block":[-1]}`), CodeManifestJSON},
		"deep":              {wrap(`{"tags":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`), CodeManifestJSON},
		"twin":              {wrap(`{"name":"a","name":"b"}`), CodeManifestTwin},
		"twin by case":      {wrap(`{"name":"a","Name":"b"}`), CodeManifestTwin},
		"twin by folding":   {wrap(`{"tags":["a"],"tag\u017f":["b"]}`), CodeManifestJSON},
		"twin within":       {wrap(`{"bindings":[{"name":"a","access":"read","access":"write"}]}`), CodeManifestTwin},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(c.data)
			var r *Refusal
			require.ErrorAs(t, err, &r)
			require.Equal(t, c.code, r.Code, "%v", err)
			var coded *gpuerr.Error
			require.True(t, errors.As(err, &coded))
			require.Equal(t, gpuerr.Program, coded.Code)
		})
	}

	// Keys that repeat in different objects, or as values, are not duplicates.
	_, err = Parse(wrap(`{"name":"name","entry":"name","tags":["name","name"],"bindings":[{"name":"name","access":"read"},{"name":"b","access":"read"}]}`))
	require.NoError(t, err)
}

func TestManifestValues(t *testing.T) {
	for name, edit := range map[string]func(m *Manifest){
		"name":             func(m *Manifest) { m.Name = "Saxpy" },
		"long name":        func(m *Manifest) { m.Name = strings.Repeat("a", 65) },
		"entry":            func(m *Manifest) { m.Entry = "ma in" },
		"bindings":         func(m *Manifest) { m.Bindings = make([]Binding, MaxBindings+1) },
		"binding name":     func(m *Manifest) { m.Bindings[0].Name = "" },
		"binding twice":    func(m *Manifest) { m.Bindings[1].Name = "x" },
		"binding access":   func(m *Manifest) { m.Bindings[1].Access = 4 },
		"binding type":     func(m *Manifest) { m.Bindings[1].Type = "float" },
		"inline type":      func(m *Manifest) { m.Inline[0].Type = "" },
		"inline name":      func(m *Manifest) { m.Inline[0].Name = "n" },
		"inline alignment": func(m *Manifest) { m.Inline[1].Off = 12 },
		"inline overlap":   func(m *Manifest) { m.Inline[1].Off = 0 },
		"inline end":       func(m *Manifest) { m.Inline[1].Off = 256 },
		"inline far":       func(m *Manifest) { m.Inline[1].Off = math.MaxUint32 &^ 7 },
		"block dimensions": func(m *Manifest) { m.Block = []uint32{1, 1, 1, 1} },
		"block zero":       func(m *Manifest) { m.Block = []uint32{0, 2} },
		"block product":    func(m *Manifest) { m.Block = []uint32{math.MaxUint32, math.MaxUint32, 2} },
		"shared":           func(m *Manifest) { *m.SharedBytes = MaxSharedBytes + 1 },
		"feature":          func(m *Manifest) { m.Features[0] = "f128" },
		"feature twice":    func(m *Manifest) { m.Features = []Feature{FeatureF64, FeatureF64} },
		"constant twice":   func(m *Manifest) { m.Constants = []Constant{{4, 0}, {4, 1}} },
		"constants":        func(m *Manifest) { m.Constants = make([]Constant, 65) },
		"grid cover":       func(m *Manifest) { m.Grid.Cover = "z" },
		"grid groups":      func(m *Manifest) { m.Grid.Groups = MaxGrid + 1 },
		"grid element":     func(m *Manifest) { m.Grid.ElementBytes = math.MaxUint32 },
		"tolerance":        func(m *Manifest) { m.Tolerance.Abs = -1 },
		"tolerance NaN":    func(m *Manifest) { m.Tolerance.Rel = math.NaN() },
		"tag":              func(m *Manifest) { m.Tags[0] = "a b" },
		"tags":             func(m *Manifest) { m.Tags = make([]string, 17) },
	} {
		t.Run(name, func(t *testing.T) {
			m := sample()
			edit(m)
			_, err := Encode(module(), m)
			var r *Refusal
			require.ErrorAs(t, err, &r)
			require.Equal(t, CodeManifest, r.Code)
		})
	}

	_, err := Encode(module()[:4], sample())
	require.Error(t, err)
	_, err = Encode(append(module(), make([]byte, MaxBundleBytes)...), sample())
	require.Error(t, err)
	_, err = Encode(append(module(), make([]byte, MaxBundleBytes-24)...), sample())
	require.Error(t, err, "with its header it is too large")
}

func TestNaturalGrid(t *testing.T) {
	two := []Binding{{Name: "a", Access: Read}, {Name: "b", Access: Write}}
	block := Dim3{64, 4, 1}
	for name, c := range map[string]struct {
		grid     Grid
		bindings []Binding
		bytes    []uint64
		want     uint32
	}{
		"shortest":          {Grid{}, two, []uint64{4 * 2560, 4 * 257}, 2},
		"exact":             {Grid{}, two, []uint64{4 * 256, 4 * 256}, 1},
		"empty":             {Grid{}, two, []uint64{0, 400}, 1},
		"a size missing":    {Grid{Cover: "a"}, two, []uint64{4 * 512}, 2},
		"no sizes":          {Grid{}, two, nil, 1},
		"no bindings":       {Grid{}, nil, nil, 1},
		"cover":             {Grid{Cover: "a"}, two, []uint64{4 * 2560, 4}, 10},
		"cover second":      {Grid{Cover: "b"}, two, []uint64{4 * 2560, 4}, 1},
		"per group":         {Grid{Cover: "b", PerGroup: 1}, two, []uint64{0, 4 * 300}, 300},
		"element":           {Grid{Cover: "b", ElementBytes: 34, PerGroup: 2}, two, []uint64{0, 34*3 + 33}, 2},
		"groups":            {Grid{Cover: "b", Groups: 7}, two, []uint64{0, 4 * 30000}, 7},
		"at most":           {Grid{PerGroup: 1}, two, []uint64{math.MaxUint64, math.MaxUint64}, MaxGrid},
		"largest per group": {Grid{ElementBytes: 1, PerGroup: math.MaxUint32}, two, []uint64{math.MaxUint64, math.MaxUint64}, MaxGrid},
	} {
		t.Run(name, func(t *testing.T) {
			info := &Info{Block: block, Grid: c.grid, Bindings: c.bindings}
			grid, b := info.NaturalGrid(c.bytes)
			require.Equal(t, Dim3{c.want, 1, 1}, grid)
			require.Equal(t, block, b)
		})
	}

	grid, _ := (&Info{Bindings: two}).NaturalGrid([]uint64{40, 40})
	require.Equal(t, Dim3{10, 1, 1}, grid, "a block of nothing counts as one lane")
}

func TestTypeBytes(t *testing.T) {
	for typ, want := range map[Type]uint32{"u8": 1, "f16": 2, "f32": 4, "i64": 8, "": 0, "bool": 0} {
		require.Equal(t, want, typ.Bytes())
	}
	require.Equal(t, "access(9)", Access(9).String())
}

func FuzzParse(f *testing.F) {
	good, err := Encode(module(), sample())
	require.NoError(f, err)
	f.Add(good)
	f.Add(module())
	f.Add(wrap(`{"bindings":[{"name":"a","access":"readWrite"}],"grid":{"cover":"a"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Parse(data)
		if err != nil {
			var r *Refusal
			require.ErrorAs(t, err, &r)
			return
		}
		// Every bundle that can be read can be written, and then reads the same.
		again, err := Encode(b.SPIRV, b.Manifest)
		require.NoError(t, err)
		c, err := Parse(again)
		require.NoError(t, err)
		require.Equal(t, b.SPIRV, c.SPIRV)
		third, err := Encode(c.SPIRV, c.Manifest)
		require.NoError(t, err)
		require.Equal(t, again, third)
	})
}
