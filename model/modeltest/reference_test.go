package modeltest_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/modeltest"
	"capgpu/model/synth"
)

// tiny is a seeded model with fewer heads of keys than of queries.
func tiny(t *testing.T, change func(o *synth.Options)) *model.File {
	t.Helper()
	o, err := synth.Shape("tiny")
	require.NoError(t, err)
	o.Seed = 3
	if change != nil {
		change(&o)
	}
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	return f
}

// rows runs some tokens, and returns the logits of each.
func rows(t *testing.T, f *model.File) (all [][]float64) {
	t.Helper()
	r, err := modeltest.New(f)
	require.NoError(t, err)
	for i, token := range []int32{1, 300, 17, 300, 450, 99, 5, 300} {
		all = append(all, r.Step(token, i))
	}
	return all
}

// same checks that two models compute the same logits.
func same(t *testing.T, a, b *model.File, within float64) {
	t.Helper()
	want := rows(t, b)
	for i, row := range rows(t, a) {
		diff, at := modeltest.MaxDiff(row, want[i])
		require.LessOrEqual(t, diff, within, "step %d, token %d", i, at)
	}
}

// floats is a tensor of F32.
func floats(t *testing.T, from *model.Tensor, rows int, pick func(row int) int) model.Tensor {
	t.Helper()
	out := model.Tensor{Type: model.F32, Rows: rows, Cols: from.Cols}
	for i := range rows {
		at := 4 * from.Cols * pick(i)
		out.Data = append(out.Data, from.Data[at:at+4*from.Cols]...)
	}
	return out
}

// TestRopeLayouts: the two layouts are one model with a different order of queries
// and keys.
func TestRopeLayouts(t *testing.T) {
	adjacent, halves := tiny(t, nil), tiny(t, nil)
	n := halves.Config.HeadDim
	halves.Config.Rope = model.RopeHalves
	order := func(row int) int { // halves' row i and i+n/2 are adjacent's 2i and 2i+1
		head, i := row/n*n, row%n
		return head + 2*(i%(n/2)) + i/(n/2)
	}

	for i := range halves.Weights.Layers {
		l := &halves.Weights.Layers[i]
		l.Q, l.K = floats(t, &l.Q, l.Q.Rows, order), floats(t, &l.K, l.K.Rows, order)
	}

	same(t, halves, adjacent, 1e-12)

	halves.Config.Rope = model.RopeAdjacent
	diff, _ := modeltest.MaxDiff(rows(t, halves)[7], rows(t, adjacent)[7])
	require.Greater(t, diff, 1e-3, "or the test says nothing")
}

// TestGroupedQueries: shared keys and values equal copies of them.
func TestGroupedQueries(t *testing.T) {
	grouped, full := tiny(t, nil), tiny(t, nil)
	c := &full.Config
	n, share := c.HeadDim, c.Heads/c.KVHeads
	require.Greater(t, share, 1)
	for i := range full.Weights.Layers {
		l := &full.Weights.Layers[i]
		copies := func(row int) int { return row/n/share*n + row%n }
		l.K, l.V = floats(t, &l.K, c.Heads*n, copies), floats(t, &l.V, c.Heads*n, copies)
	}
	c.KVHeads = c.Heads
	same(t, full, grouped, 1e-12)
}

// TestClassifier: a classifier of its own is used, and a copy of the table equals
// the table.
func TestClassifier(t *testing.T) {
	own := tiny(t, nil)
	require.False(t, own.Weights.Tied())
	tied := tiny(t, func(o *synth.Options) { o.Tied = true })
	require.True(t, tied.Weights.Tied())
	diff, _ := modeltest.MaxDiff(rows(t, own)[0], rows(t, tied)[0])
	require.Greater(t, diff, 1e-3)
	own.Weights.Output = own.Weights.Embed
	tied.Weights.Embed = floats(t, &own.Weights.Embed, own.Config.Vocab, func(row int) int { return row })
	tied.Weights.Output = floats(t, &own.Weights.Embed, own.Config.Vocab, func(row int) int { return row })
	require.False(t, tied.Weights.Tied())
	tied.Weights.Layers, tied.Weights.Norm = own.Weights.Layers, own.Weights.Norm
	same(t, own, tied, 0)
}

// TestPositions: a position that is written again is forgotten with all after it.
func TestPositions(t *testing.T) {
	f := tiny(t, nil)
	r, err := modeltest.New(f)
	require.NoError(t, err)
	r.Step(1, 0)
	want := append([]float64(nil), r.Step(40, 1)...)
	r.Step(50, 2)
	r.Step(60, 1)
	require.Equal(t, want, r.Step(40, 1))
	logits := r.Step(40, 2)
	hidden := r.Hidden()
	require.InDelta(t, dot(t, &f.Weights.Output, int(modeltest.Argmax(logits)), hidden), logits[modeltest.Argmax(logits)], 1e-12)
}

func dot(t *testing.T, m *model.Tensor, row int, x []float64) (sum float64) {
	t.Helper()
	all, err := modeltest.Floats(m)
	require.NoError(t, err)
	for i, v := range x {
		sum += all[row*m.Cols+i] * v
	}
	return sum
}

// TestFloats: bytes and their values, worked out by hand from the formats.
func TestFloats(t *testing.T) {
	q8 := append([]byte{0x00, 0x38}, make([]byte, 32)...) // scale 0.5
	q8[2], q8[3], q8[33] = 1, 0x80, 0x7f
	q4 := append([]byte{0x00, 0xc0}, make([]byte, 16)...) // scale -2
	q4[2], q4[17] = 0x9f, 0x08
	i8 := model.Tensor{Type: model.I8, Rows: 1, Cols: 4, Group: 2, Data: []byte{1, 0xff, 2, 0x80},
		Scales: binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.5)), math.Float32bits(-3))}

	for _, c := range []struct {
		t    model.Tensor
		want map[int]float64
	}{
		{model.Tensor{Type: model.F32, Rows: 2, Cols: 1, Data: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}}, map[int]float64{0: 1, 1: -2}},
		{model.Tensor{Type: model.F16, Rows: 1, Cols: 5, Data: []byte{0, 0x3c, 0, 0xc0, 1, 0, 0xff, 0x7b, 0, 0x7c}},
			map[int]float64{0: 1, 1: -2, 2: math.Ldexp(1, -24), 3: 65504, 4: math.Inf(1)}},
		{model.Tensor{Type: model.BF16, Rows: 1, Cols: 2, Data: []byte{0x80, 0x3f, 0, 0xc0}}, map[int]float64{0: 1, 1: -2}},
		{model.Tensor{Type: model.Q8_0, Rows: 1, Cols: 32, Data: q8}, map[int]float64{0: 0.5, 1: -64, 2: 0, 31: 63.5}},
		{model.Tensor{Type: model.Q4_0, Rows: 1, Cols: 32, Data: q4}, map[int]float64{0: -14, 16: -2, 1: 16, 15: 0, 31: 16}},
		{i8, map[int]float64{0: 0.5, 1: -0.5, 2: -6, 3: 384}},
	} {
		got, err := modeltest.Floats(&c.t)
		require.NoError(t, err)
		require.Len(t, got, c.t.Rows*c.t.Cols)
		for i, want := range c.want {
			require.Equal(t, want, got[i], "%s: element %d", c.t.Type, i)
		}
	}

	i8.Group = 3
	for _, bad := range []model.Tensor{i8, {Type: model.F32, Rows: 1, Cols: 2, Data: make([]byte, 7)}, {Type: model.Q8_0, Rows: 1, Cols: 31, Data: make([]byte, 34)},
		{Type: 77, Rows: 1, Cols: 1, Data: make([]byte, 4)}, {Type: model.F32}} {
		_, err := modeltest.Floats(&bad)
		require.ErrorIs(t, err, gpuerr.Invalid)
	}
}

// TestRefused: a model with tensors that do not fit its shape is refused.
func TestRefused(t *testing.T) {
	for says, lie := range map[string]func(f *model.File){
		"headDim":     func(f *model.File) { f.Config.HeadDim = 7 },
		"layers: 2":   func(f *model.File) { f.Config.Layers = 3 },
		"embed":       func(f *model.File) { f.Weights.Embed.Rows-- },
		"k: 32 by 64": func(f *model.File) { f.Config.KVHeads = 4 },
		"norm":        func(f *model.File) { f.Weights.Norm = model.Tensor{} },
		"ropeFactors": func(f *model.File) { f.Weights.RopeFactors = f.Weights.Norm },
		"down": func(f *model.File) {
			f.Weights.Layers[1].Down.Data = f.Weights.Layers[1].Down.Data[1:]
		},
	} {
		f := tiny(t, nil)
		lie(f)
		_, err := modeltest.New(f)
		require.ErrorIs(t, err, gpuerr.Invalid, says)
		require.ErrorContains(t, err, says)
	}
}

func TestMaxDiff(t *testing.T) {
	diff, at := modeltest.MaxDiff([]float32{1, 2, 3}, []float64{1, 4, 2})
	require.Equal(t, 2.0, diff)
	require.Equal(t, 1, at)
	for _, want := range [][]float32{{1}, {1, float32(math.NaN())}} {
		diff, _ = modeltest.MaxDiff([]float64{1, 2}, want)
		require.True(t, math.IsInf(diff, 1))
	}
	require.EqualValues(t, 1, modeltest.Argmax([]float32{1, 5, 5, 2}))
}
