package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
)

// modelShape is a model of the Llama kind.
type modelShape struct {
	name                                           string
	dim, hidden, layers, heads, kv, vocab, context int
	t                                              weightType
	group                                          int
}

var modelShapes = []modelShape{
	{"260K", 64, 172, 5, 8, 4, 512, 512, typeF32, 0},
	{"260K_i8", 64, 172, 5, 8, 4, 512, 512, typeI8, 4},
	{"15M", 288, 768, 6, 6, 6, 32000, 256, typeF32, 0},
	{"15M_f16", 288, 768, 6, 6, 6, 32000, 256, typeF16, 0},
	{"15M_q8_0", 288, 768, 6, 6, 6, 32000, 256, typeQ8, 0},
	{"15M_q4_0", 288, 768, 6, 6, 6, 32000, 256, typeQ4, 0},
	{"15M_i8", 288, 768, 6, 6, 6, 32000, 256, typeI8, 32},
}

// launch is a call that is ready to run.
type launch struct {
	name  string
	body  *Body
	call  Call
	items uint64
}

// pass is a model's pass over a batch, as launches.
type pass struct {
	launches []launch
	rows     []uint32
	tokens   []uint32
	logits   []float32
}

// newPass makes the launches for rows of one sequence each, or all of one.
func newPass(tb testing.TB, m *modelShape, batch int, apart bool) *pass {
	const page = 16
	r := rand.New(rand.NewPCG(1, uint64(m.dim)))
	p := &pass{}
	floats := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(r.NormFloat64()) / 8
		}
		return f
	}

	add := func(name string, bindings [][]byte, inline ...uint32) {
		l := launch{name: name, body: bodies[name]}
		l.call = Call{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Block: program.Dim3{X: 64, Y: 1, Z: 1}, Bindings: bindings, Inline: inlineOf(inline)}
		var ok bool
		l.items, ok = l.body.Items(&l.call)
		require.True(tb, ok, name)
		p.launches = append(p.launches, l)
	}

	n := uint32(batch)
	linear := func(rows, cols int, x, y []float32, adds, last uint32) {
		l := newLayer(r, m.t, rows, cols, m.group)
		c := l.call(x[len(x)-int(last)*cols:], y, int(last), int(adds), rows, 0)
		words := append([]uint32(nil), u32s(c.Inline)...)
		add(linearNames[m.t], c.Bindings, words...)
	}

	norm := func(x, y []float32) {
		add("rmsnorm_f32", [][]byte{bytesOf(x), bytesOf(floats(m.dim)), bytesOf(y)}, uint32(m.dim), math.Float32bits(1e-5))
	}

	headDim, kvDim := m.dim/m.heads, m.dim/m.heads*m.kv
	pages := (m.context + page - 1) / page
	sequences := 1
	if apart {
		sequences = batch
	}

	table := make([]uint32, sequences*pages)
	for i, v := range r.Perm(len(table)) {
		table[i] = uint32(v)
	}

	p.rows, p.tokens = make([]uint32, 2*batch), make([]uint32, batch)
	x, normed, qkv := floats(batch*m.dim), floats(batch*m.dim), floats(batch*(m.dim+2*kvDim))
	out, gates, acts := floats(batch*m.dim), floats(batch*2*m.hidden), floats(batch*m.hidden)
	freqs := make([]float32, headDim/2)
	for i := range freqs {
		freqs[i] = float32(math.Pow(10000, -2*float64(i)/float64(headDim)))
	}

	embedding := newLayer(r, m.t, m.vocab, m.dim, m.group)
	if m.t == typeI8 {
		add("embed_i8", [][]byte{embedding.w, bytesOf(embedding.scales), bytesOf(p.tokens), bytesOf(x)}, uint32(m.dim), uint32(m.group))
	} else {
		add("embed"+linearNames[m.t][len("linear"):], [][]byte{embedding.w, bytesOf(p.tokens), bytesOf(x)}, uint32(m.dim))
	}

	h, kv, d, c := uint32(m.heads), uint32(m.kv), uint32(headDim), uint32(pages)
	for range m.layers {
		k, v := floats(len(table)*page*kvDim), floats(len(table)*page*kvDim)
		norm(x, normed)
		linear(m.dim+2*kvDim, m.dim, normed, qkv, 0, n)
		add("rope_cache_f32", [][]byte{bytesOf(qkv), bytesOf(freqs), bytesOf(p.rows), bytesOf(table), bytesOf(k), bytesOf(v)}, h, kv, d, n, 0, page, c, math.Float32bits(1))
		add("attention_cache_f32", [][]byte{bytesOf(qkv), bytesOf(p.rows), bytesOf(table), bytesOf(k), bytesOf(v), bytesOf(out)}, h, kv, d, n, page, c, 0, math.Float32bits(inverseRoot(float32(d))), 0)
		linear(m.dim, m.dim, out, x, 1, n)
		norm(x, normed)
		linear(2*m.hidden, m.dim, normed, gates, 0, n)
		add("swiglu_rows_f32", [][]byte{bytesOf(gates), bytesOf(acts)}, uint32(m.hidden))
		linear(m.dim, m.hidden, acts, x, 1, n)
	}

	norm(x, normed)
	last := n // rows with requested logits
	if !apart {
		last = 1
	}

	p.logits = floats(int(last) * m.vocab)
	linear(m.vocab, m.dim, normed, p.logits, 0, last)
	history := make([]uint32, int(last)*64)
	add("next_token_f32", [][]byte{bytesOf(p.logits), bytesOf(p.tokens[:last]), bytesOf(p.rows[:2*last]), bytesOf(history)}, uint32(m.vocab), last, 64)
	p.at(batch, apart, 0)
	return p
}

// at puts the batch behind positions that are already there.
func (p *pass) at(batch int, apart bool, position int) {
	for b := range batch {
		p.tokens[b] = uint32(b)
		p.rows[2*b], p.rows[2*b+1] = uint32(position+b), 0
		if apart {
			p.rows[2*b], p.rows[2*b+1] = uint32(position), uint32(b)
		}
	}
}

func (p *pass) run() {
	for i := range p.launches {
		l := &p.launches[i]
		l.body.Run(&l.call, 0, l.items)
	}
}

// BenchmarkStep is one pass of a whole model: decoding behind this many positions, of one
// sequence or several, and a prompt of 32.
func BenchmarkStep(b *testing.B) {
	for i := range modelShapes {
		m := &modelShapes[i]
		for _, c := range []struct {
			batch    int
			apart    bool
			position int
		}{{1, true, 16}, {1, true, 128}, {1, true, 255}, {4, true, 128}, {8, true, 128}, {32, false, 0}} {
			kind := "decode"
			if !c.apart {
				kind = "prefill"
			}

			p := newPass(b, m, c.batch, c.apart)
			b.Run(fmt.Sprintf("%s/%s%d_at_%d", m.name, kind, c.batch, c.position), func(b *testing.B) {
				said := uint64(0)
				for i := range p.launches {
					l := &p.launches[i]
					n, _ := l.body.Nanos(&l.call)
					said += n
				}
				b.ReportAllocs()
				for b.Loop() {
					p.at(c.batch, c.apart, c.position)
					p.run()
				}
				b.ReportMetric(float64(said), "said-ns")
			})
		}
	}
}
