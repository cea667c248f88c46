package backendtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

var computeTests = []test{
	{name: "Copy", run: testCopy},
	{name: "CopyOverlap", run: testCopyOverlap, long: true},
	{name: "Fill", run: testFill, long: true},
	{name: "CopyProgram", run: testCopyProgram, needs: []string{"copy"}},
	{name: "FillProgram", run: testFillProgram, needs: []string{"fill_u32"}},
	{name: "Vecadd", run: testVecadd, needs: []string{"vecadd_f32"}},
	{name: "VecaddInPlace", run: testVecaddInPlace, needs: []string{"vecadd_f32"}},
	{name: "Saxpy", run: testSaxpy, needs: []string{"saxpy_f32"}},
	{name: "Matvec", run: testMatvec, needs: []string{"matvec_f32"}},
	{name: "EveryGridCoversEverything", run: testGrids, needs: []string{"vecadd_f32"}},
	{name: "LeastBindingCounts", run: testLeast, needs: []string{"vecadd_f32"}},
	{name: "SameJobSameResult", run: testDeterminism, needs: []string{"matvec_f32"}},
	{name: "NothingToDo", run: testEmpty},
}

// sizes in words, around what devices cut work into.
var sizes = []int{0, 1, 7, 8, 9, 255, 257, 1023, 32<<10 - 1, 32<<10 + 1, 300_000}

// sizes are those that the device can be asked for.
func (d *device) sizes() []int {
	return slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return d.most(4*n) < 4*n })
}

func source(t *testing.T) *rand.Rand { return rand.New(rand.NewPCG(1, uint64(len(t.Name())))) }

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// randomFloats are finite and of both signs and many sizes.
func randomFloats(r *rand.Rand, n int) []float32 {
	f := make([]float32, n)
	for i := range f {
		f[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(20)-10)))
	}
	return f
}

func encode(f []float32) []byte {
	b := make([]byte, 0, 4*len(f))
	for _, v := range f {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func decode(b []byte) []float32 {
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func sameBytes(t *testing.T, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		for i := range want {
			if want[i] != got[i] {
				require.FailNow(t, "wrong bytes", "first at %d of %d: want %#x, got %#x", i, len(want), want[i], got[i])
			}
		}
		require.FailNow(t, "wrong length")
	}
}

func testCopy(t *testing.T, d *device) {
	r := source(t)
	for _, n := range []int{0, 1, 3, 2047, 4097, 256<<10 + 1, 3 << 20} {
		if d.most(n) < n {
			continue
		}
		data := randomBytes(r, n)
		src, dst := d.span(data), d.span(randomBytes(r, n+2))
		before := bytes.Clone(dst.Host)
		part := backend.Span{Host: dst.Host[1 : n+1], IOVA: dst.IOVA + 1}
		require.Equal(t, outcome.Success, d.run(&backend.Job{ID: d.id(), Op: backend.OpCopy, Spans: []backend.Span{part, src}}))
		sameBytes(t, data, part.Host)
		sameBytes(t, data, src.Host)
		require.Equal(t, before[0], dst.Host[0], "written before the span")
		require.Equal(t, before[n+1], dst.Host[n+1], "written behind the span")
	}
}

func testCopyOverlap(t *testing.T, d *device) {
	r := source(t)
	n := d.most(2 << 20)
	far, page := min(300_000, n-1), min(4096, n/2)
	for _, shift := range []int{0, 1, page, far, -1, -page, -far} {
		all := d.span(randomBytes(r, n+far))
		from, to := max(0, -shift), max(0, shift)
		want := bytes.Clone(all.Host)
		copy(want[to:to+n], bytes.Clone(want[from:from+n]))
		job := &backend.Job{ID: d.id(), Op: backend.OpCopy, Spans: []backend.Span{
			{Host: all.Host[to : to+n], IOVA: all.IOVA + uint64(to)},
			{Host: all.Host[from : from+n], IOVA: all.IOVA + uint64(from)},
		}}
		require.Equal(t, outcome.Success, d.run(job))
		sameBytes(t, want, all.Host)
	}
}

// fillReference is n bytes of a pattern.
func fillReference(pattern uint32, n int) []byte {
	return bytes.Repeat(words(pattern), n/4)
}

func testFill(t *testing.T, d *device) {
	for i, n := range d.sizes() {
		s := d.span(make([]byte, 4*n+8))
		part := backend.Span{Host: s.Host[4 : 4+4*n], IOVA: s.IOVA + 4}
		pattern := 0xdeadbeef + uint32(i)
		require.Equal(t, outcome.Success, d.run(&backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{part}, Pattern: pattern}))
		sameBytes(t, fillReference(pattern, 4*n), part.Host)
		sameBytes(t, words(0), s.Host[:4])
		sameBytes(t, words(0), s.Host[4+4*n:])
	}
}

func testCopyProgram(t *testing.T, d *device) {
	p, r := d.program(t, "copy"), source(t)
	for _, n := range d.sizes() {
		data := randomBytes(r, 4*n)
		src, dst := d.span(data), d.span(make([]byte, 4*n))
		require.Equal(t, outcome.Success, d.run(d.launch(p, nil, src, dst)))
		sameBytes(t, data, dst.Host)
	}
}

func testFillProgram(t *testing.T, d *device) {
	p := d.program(t, "fill_u32")
	for i, n := range sizes {
		pattern := 0x01020304 * uint32(i+1)
		s := d.span(make([]byte, 4*n))
		require.Equal(t, outcome.Success, d.run(d.launch(p, words(pattern), s)))
		sameBytes(t, fillReference(pattern, 4*n), s.Host)
	}
}

func testVecadd(t *testing.T, d *device) {
	p, r := d.program(t, "vecadd_f32"), source(t)
	for _, n := range sizes {
		a, b := randomFloats(r, n), randomFloats(r, n)
		want := make([]float32, n)
		for i := range want {
			want[i] = a[i] + b[i]
		}
		sa, sb, sc := d.span(encode(a)), d.span(encode(b)), d.span(make([]byte, 4*n))
		require.Equal(t, outcome.Success, d.run(d.launch(p, nil, sa, sb, sc)))
		sameBytes(t, encode(want), sc.Host)
		sameBytes(t, encode(a), sa.Host)
		sameBytes(t, encode(b), sb.Host)
	}
}

func testVecaddInPlace(t *testing.T, d *device) {
	p, r := d.program(t, "vecadd_f32"), source(t)
	a := randomFloats(r, 300_000)
	want := make([]float32, len(a))
	for i := range want {
		want[i] = a[i] + a[i]
	}
	s := d.span(encode(a))
	require.Equal(t, outcome.Success, d.run(d.launch(p, nil, s, s, s)))
	sameBytes(t, encode(want), s.Host)
}

func testSaxpy(t *testing.T, d *device) {
	p, r := d.program(t, "saxpy_f32"), source(t)
	for _, n := range sizes {
		x, y, a := randomFloats(r, n), randomFloats(r, n), randomFloats(r, 1)[0]
		want := make([]float32, n)
		for i := range want {
			product := float32(a * x[i])
			want[i] = product + y[i]
		}
		sx, sy := d.span(encode(x)), d.span(encode(y))
		require.Equal(t, outcome.Success, d.run(d.launch(p, words(math.Float32bits(a)), sx, sy)))
		sameBytes(t, encode(want), sy.Host)
	}
}

func testMatvec(t *testing.T, d *device) {
	p, r := d.program(t, "matvec_f32"), source(t)
	for _, dim := range [][2]int{{0, 0}, {0, 5}, {5, 0}, {1, 1}, {3, 7}, {17, 8}, {64, 65}, {1000, 300}, {2, 70_001}, {1, 300_000}} {
		rows, cols := dim[0], dim[1]
		m, x := randomFloats(r, rows*cols), randomFloats(r, cols)
		sm, sx, sy := d.span(encode(m)), d.span(encode(x)), d.span(encode(randomFloats(r, rows+1)))
		rest := bytes.Clone(sy.Host[4*rows:])
		require.Equal(t, outcome.Success, d.run(d.launch(p, words(uint32(rows), uint32(cols)), sm, sx, sy)))
		sameBytes(t, rest, sy.Host[4*rows:])
		for i, got := range decode(sy.Host[:4*rows]) {
			want, scale := 0.0, 0.0
			for j := range cols {
				term := float64(m[i*cols+j]) * float64(x[j])
				want += term
				scale += math.Abs(term)
			}
			// Any order of summation stays within cols roundings of the sum of sizes.
			require.InDelta(t, want, got, scale*float64(cols+1)*math.Exp2(-24)+1e-30, "row %d of %dx%d", i, rows, cols)
		}
	}
}

func testGrids(t *testing.T, d *device) {
	p, r := d.program(t, "vecadd_f32"), source(t)
	const n = 10_000
	a, b := randomFloats(r, n), randomFloats(r, n)
	want := make([]float32, n)
	for i := range want {
		want[i] = a[i] + b[i]
	}
	sa, sb := d.span(encode(a)), d.span(encode(b))
	for _, shape := range [][2]backend.Dim3{
		{{X: 1, Y: 1, Z: 1}, {X: 1, Y: 1, Z: 1}},
		{{X: 3, Y: 2, Z: 1}, {X: 5, Y: 1, Z: 2}},
		{{X: 1, Y: 1, Z: 1}, {X: 256, Y: 1, Z: 1}},
		{{X: 1000, Y: 1, Z: 1}, {X: 64, Y: 1, Z: 1}},
	} {
		sc := d.span(make([]byte, 4*n))
		job := d.launch(p, nil, sa, sb, sc)
		job.Grid, job.Block = shape[0], shape[1]
		require.Equal(t, outcome.Success, d.run(job))
		sameBytes(t, encode(want), sc.Host)
	}
}

func testLeast(t *testing.T, d *device) {
	p := d.program(t, "vecadd_f32")
	for short := range 3 {
		var spans [3]backend.Span
		for i := range spans {
			n := 1000
			if i == short {
				n = 300
			}
			spans[i] = d.span(encode(make([]float32, n)))
		}
		for i := range spans[0].Host {
			spans[0].Host[i] = 1
		}
		require.Equal(t, outcome.Success, d.run(d.launch(p, nil, spans[0], spans[1], spans[2])))
		sameBytes(t, bytes.Repeat([]byte{1}, 1200), spans[2].Host[:1200])
		sameBytes(t, make([]byte, len(spans[2].Host)-1200), spans[2].Host[1200:])
	}
}

func testDeterminism(t *testing.T, d *device) {
	p, r := d.program(t, "matvec_f32"), source(t)
	const rows, cols = 301, 2003
	sm, sx := d.span(encode(randomFloats(r, rows*cols))), d.span(encode(randomFloats(r, cols)))
	var first []byte
	for range 5 {
		sy := d.span(make([]byte, 4*rows))
		require.Equal(t, outcome.Success, d.run(d.launch(p, words(rows, cols), sm, sx, sy)))
		if first == nil {
			first = bytes.Clone(sy.Host)
		}
		sameBytes(t, first, sy.Host)
	}
}

func testEmpty(t *testing.T, d *device) {
	s := d.span(make([]byte, 4))
	none := backend.Span{Host: s.Host[:0], IOVA: s.IOVA}
	p := d.simple(t)
	spans := slices.Repeat([]backend.Span{none}, len(p.Info().Bindings))
	require.Equal(t, outcome.Success, d.run(d.launch(p, make([]byte, p.Info().InlineBytes), spans...)))
	require.Equal(t, outcome.Success, d.run(&backend.Job{ID: d.id(), Op: backend.OpFill, Spans: []backend.Span{none}, Pattern: 1}))
	require.Equal(t, outcome.Success, d.run(&backend.Job{ID: d.id(), Op: backend.OpCopy, Spans: []backend.Span{none, none}}))
	sameBytes(t, words(0), s.Host)
}
