package native

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
)

// paged is a batch and a cache in pages, with sequences of random lengths.
type paged struct {
	heads, kv, dim, page, pages, sequences, batch int

	window int
	limit  float32

	qkv, k, v, freqs []float32
	rows, table      []uint32
}

func newPaged(r *rand.Rand, heads, kv, dim, page, pages, sequences, batch int) *paged {
	p := &paged{heads: heads, kv: kv, dim: dim, page: page, pages: pages, sequences: sequences, batch: batch}
	floats := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(r.NormFloat64())
		}
		return f
	}

	p.qkv = floats(batch * (heads + 2*kv) * dim)
	p.table = make([]uint32, sequences*pages)
	for i, n := range r.Perm(len(p.table)) {
		p.table[i] = uint32(n)
	}

	p.k, p.v = floats(len(p.table)*page*kv*dim), floats(len(p.table)*page*kv*dim)
	p.freqs = floats(dim / 2)
	p.rows = make([]uint32, 2*batch)
	for b := range batch {
		p.rows[2*b], p.rows[2*b+1] = uint32(r.IntN(page*pages)), uint32(r.IntN(sequences))
		if b == 2 {
			p.rows[2*b+1] = padding
		}
	}

	return p
}

func (p *paged) String() string {
	return fmt.Sprintf("%d heads, %d of kv, dim %d, %d pages of %d, batch %d", p.heads, p.kv, p.dim, p.pages, p.page, p.batch)
}

func (p *paged) words(more ...int) []byte {
	w := []uint32{uint32(p.heads), uint32(p.kv), uint32(p.dim), uint32(p.batch)}
	for _, m := range more {
		w = append(w, uint32(m))
	}
	return inlineOf(w)
}

func (p *paged) call(bindings [][]byte, inline []byte) *Call {
	return &Call{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Block: program.Dim3{X: 64, Y: 1, Z: 1}, Bindings: bindings, Inline: inline}
}

func (p *paged) attention(out []float32) *Call {
	return p.call([][]byte{bytesOf(p.qkv), bytesOf(p.rows), bytesOf(p.table), bytesOf(p.k), bytesOf(p.v), bytesOf(out)},
		p.words(p.page, p.pages, p.window, int(math.Float32bits(inverseRoot(float32(p.dim)))), int(math.Float32bits(p.limit))))
}

// first is the first of the positions that count for one.
func (p *paged) first(position uint32) uint32 {
	if p.window == 0 || int(position) < p.window {
		return 0
	}
	return position - uint32(p.window) + 1
}

func (p *paged) rope(pairing int) *Call {
	return p.call([][]byte{bytesOf(p.qkv), bytesOf(p.freqs), bytesOf(p.rows), bytesOf(p.table), bytesOf(p.k), bytesOf(p.v)},
		p.words(pairing, p.page, p.pages, int(math.Float32bits(1))))
}

// alone is the paged with row b as its batch.
func (p *paged) alone(b int) *paged {
	one, width := *p, (p.heads+2*p.kv)*p.dim
	one.batch, one.qkv, one.rows = 1, p.qkv[b*width:][:width], p.rows[2*b:][:2]
	return &one
}

// at is the offset of a position's keys and values of a kv head.
func (p *paged) at(position, sequence uint32, head int) int {
	page := int(p.table[int(sequence)*p.pages+int(position)/p.page])
	return ((page*p.page+int(position)%p.page)*p.kv + head) * p.dim
}

// attended computes attention in plain loops.
func (p *paged) attended() []float32 {
	out := make([]float32, p.batch*p.heads*p.dim)
	for b := range p.batch {
		position, sequence := p.rows[2*b], p.rows[2*b+1]
		if sequence == padding {
			continue
		}

		for h := range p.heads {
			q := p.qkv[(b*(p.heads+2*p.kv)+h)*p.dim:][:p.dim]
			first := p.first(position)
			scores, most := make([]float64, position+1-first), math.Inf(-1)
			for i := range scores {
				k := p.k[p.at(first+uint32(i), sequence, h/(p.heads/p.kv)):]
				for d := range q {
					scores[i] += float64(q[d]) * float64(k[d])
				}
				scores[i] /= math.Sqrt(float64(p.dim))
				if p.limit > 0 {
					scores[i] = float64(p.limit) * math.Tanh(scores[i]/float64(p.limit))
				}
				most = max(most, scores[i])
			}

			total, sums := 0.0, make([]float64, p.dim)
			for i, s := range scores {
				w := math.Exp(s - most)
				total += w
				v := p.v[p.at(first+uint32(i), sequence, h/(p.heads/p.kv)):]
				for d := range sums {
					sums[d] += w * float64(v[d])
				}
			}

			for d := range sums {
				out[(b*p.heads+h)*p.dim+d] = float32(sums[d] / total)
			}
		}
	}

	return out
}

// spoil sets all positions that no row attends to to NaN: they must have no effect.
func (p *paged) spoil() {
	used := map[[2]uint32]bool{}
	for b := range p.batch {
		if s := p.rows[2*b+1]; s != padding {
			for i := p.first(p.rows[2*b]); i <= p.rows[2*b]; i++ {
				used[[2]uint32{s, i}] = true
			}
		}
	}
	for s := range uint32(p.sequences) {
		for i := range uint32(p.page * p.pages) {
			if used[[2]uint32{s, i}] {
				continue
			}
			at := p.at(i, s, 0)
			for d := range p.kv * p.dim {
				p.k[at+d], p.v[at+d] = float32(math.NaN()), float32(math.NaN())
			}
		}
	}
}

// TestAttentionToPages: every row and head equals plain loops; the result alone
// equals that in a batch, for every division of the call.
func TestAttentionToPages(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(81, 82))
		for _, s := range [][5]int{ // heads, kv heads, dim, page, pages
			{8, 4, 8, 16, 32}, {8, 8, 8, 32, 4}, {3, 1, 8, 64, 3}, {40, 2, 8, 16, 5}, {2, 2, 8, 16, 80},
			{6, 6, 48, 16, 16}, {12, 4, 64, 32, 8}, {4, 2, 128, 16, 10}, {2, 1, 256, 16, 4}, {36, 2, 16, 16, 40},
			{5, 5, 3, 16, 3}, {2, 2, 72, 16, 6}, {4, 1, 80, 16, 5}, {20, 20, 12, 16, 3}, {4, 2, 7, 1, 40},
			{4, 2, 8, 4, 33}, {2, 1, 64, 8, 9}, {1, 1, 1, 2, 11}, {4, 4, 8, 1024, 2}, {34, 17, 24, 16, 2},
		} {
			p := newPaged(r, s[0], s[1], s[2], s[3], s[4], 3, 1+r.IntN(7))
			if r.IntN(2) == 0 {
				p.window = 1 + r.IntN(s[3]*s[4])
			}
			if r.IntN(2) == 0 {
				p.limit = 1 + 2*r.Float32()
			}
			p.spoil()
			out := make([]float32, p.batch*p.heads*p.dim)
			require.True(t, whole(t, attentionCacheBody, p.attention(out)), p)
			for i, want := range p.attended() {
				require.InDelta(t, want, out[i], 1e-5+1e-4*math.Abs(float64(want)), "%v: element %d", p, i)
			}
			cut := make([]float32, len(out))
			inPieces(t, r, attentionCacheBody, p.attention(cut))
			require.True(t, bytes.Equal(bytesOf(out), bytesOf(cut)), p)
			for b := range p.batch {
				alone := make([]float32, p.heads*p.dim)
				require.True(t, whole(t, attentionCacheBody, p.alone(b).attention(alone)), p)
				require.True(t, bytes.Equal(bytesOf(alone), bytesOf(out[b*len(alone):][:len(alone)])), "%v: row %d", p, b)
			}
		}
	})
}

// TestAttentionOfAbsentRows: the program traps, so the body must refuse.
func TestAttentionOfAbsentRows(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(83, 84))
		for _, spoil := range []func(p *paged){
			func(p *paged) { p.rows[2] = uint32(p.page * p.pages) },
			func(p *paged) { p.rows[2] = padding },
			func(p *paged) { p.rows[3] = uint32(p.sequences) },
			func(p *paged) { p.rows[3] = padding - 1 },
			func(p *paged) { p.rows[2], p.table[int(p.rows[3])*p.pages] = 100, uint32(len(p.table)) },
			func(p *paged) { p.rows[2], p.table[int(p.rows[3])*p.pages+3] = 100, padding },
		} {
			p := newPaged(r, 4, 2, 8, 16, 8, 3, 2)
			out := make([]float32, p.batch*p.heads*p.dim)
			require.True(t, whole(t, attentionCacheBody, p.attention(out)))
			spoil(p)
			require.False(t, whole(t, attentionCacheBody, p.attention(out)))
		}
	})
}

// TestLongAttention: a row that is longer than a grain is done, and does not affect
// the others; if pages have room for whole runs, their size changes nothing.
func TestLongAttention(t *testing.T) {
	r := rand.New(rand.NewPCG(87, 88))
	p := newPaged(r, 2, 1, mostHeadDim, 16, 600, 1, 3)
	out := make([]float32, p.batch*p.heads*p.dim)
	call := p.attention(out)
	most := uint32((&cached{dim: mostHeadDim, page: 16, pages: 600}).most(call))
	require.EqualValues(t, mostHeadValues/(mostHeadDim+positionWords), most)
	p.rows = []uint32{200, 0, 9599, 0, most, 0}
	require.Greater(t, p.rows[2], most)
	call = p.attention(out)
	want := p.attended()
	atLevel(t, func(t *testing.T) {
		clear(out)
		require.True(t, whole(t, attentionCacheBody, call))
		for i := range want {
			require.InDelta(t, want[i], out[i], 1e-4, i)
		}
		for b := range p.batch {
			alone := make([]float32, p.heads*p.dim)
			require.True(t, whole(t, attentionCacheBody, p.alone(b).attention(alone)))
			require.True(t, bytes.Equal(bytesOf(alone), bytesOf(out[b*len(alone):][:len(alone)])), b)
		}
		cut := make([]float32, len(out))
		inPieces(t, r, attentionCacheBody, p.attention(cut))
		require.True(t, bytes.Equal(bytesOf(out), bytesOf(cut)))
	})

	small := newPaged(r, 4, 2, 24, 16, 80, 1, 1)
	large := *small
	large.page, large.pages, large.table = 128, 10, []uint32{9, 3, 1, 0, 2, 4, 5, 8, 7, 6}
	large.k, large.v = make([]float32, len(small.k)), make([]float32, len(small.v))
	for i := range uint32(1280) {
		from, to := small.at(i, 0, 0), large.at(i, 0, 0)
		copy(large.k[to:][:48], small.k[from:])
		copy(large.v[to:][:48], small.v[from:])
	}

	for _, small.rows[0] = range []uint32{0, 15, 16, 127, 511, 512, 700, 1279} {
		a, b := make([]float32, 96), make([]float32, 96)
		require.True(t, whole(t, attentionCacheBody, small.attention(a)))
		require.True(t, whole(t, attentionCacheBody, large.attention(b)))
		require.Equal(t, bytesOf(a), bytesOf(b), small.rows[0])
	}
}

// TestTurnsAreScaled: by the scale of the call, but for a frequency of 0.
func TestTurnsAreScaled(t *testing.T) {
	turns := new(turns)
	for _, scale := range []float32{2, 1, 3} {
		turns.prepare([]float32{0, 0.5}, false, scale)
		cos, sin := turns.to(7)
		s, co := math.Sincos(3.5)
		require.Equal(t, []float32{1, float32(co) * scale}, cos)
		require.Equal(t, []float32{0, float32(s) * scale}, sin)
	}
}

// TestTurnsAreForTheirFrequencies: cached angles are not used for other
// frequencies.
func TestTurnsAreForTheirFrequencies(t *testing.T) {
	turns := new(turns)
	freqs := []float32{1, 0.1, 0.01, 0.001}
	for i, c := range []struct {
		freqs []float32
		pairs bool
	}{{freqs, true}, {freqs, false}, {freqs[:2], false}, {freqs, false}, {[]float32{1, 0.2, 0.01, 0.001}, false}, {[]float32{1, 0.2}, true}, {freqs, true}} {
		for _, position := range []uint64{3, 3 + turnSlots, 3, 0, 1<<32 - 1, 40 + uint64(i/2), 50 + uint64(i+1)/2} {
			turns.prepare(c.freqs, c.pairs, 1)
			cos, sin := turns.to(position)
			for i, f := range c.freqs {
				s, co := math.Sincos(float64(float32(position) * f))
				if c.pairs {
					require.Zero(t, len(cos)%(2*len(c.freqs)))
					for at := 2 * i; at < len(cos); at += 2 * len(c.freqs) {
						require.Equal(t, []float32{float32(co), float32(co)}, cos[at:at+2])
						require.Equal(t, []float32{-float32(s), float32(s)}, sin[at:at+2])
					}
				} else {
					require.Len(t, cos, len(c.freqs))
					require.Equal(t, []float32{float32(co), float32(s)}, []float32{cos[i], sin[i]})
				}
			}
		}
	}
}

// TestRopeToPages: every pair equals the definition, bit for bit; memory outside
// the rows is unchanged, and a row's result equals that alone.
func TestRopeToPages(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(85, 86))
		for range 4 {
			for _, s := range [][3]int{{8, 4, 8}, {6, 6, 48}, {4, 2, 64}, {5, 1, 2}, {2, 1, 256}, {3, 3, 10}, {40, 8, 8}, {1, 1, 100}} {
				for pairing := range 2 {
					p := newPaged(r, s[0], s[1], s[2], 16, 20, 2, 1+r.IntN(9))
					for b := range p.batch { // no two rows at one place
						p.rows[2*b] = p.rows[2*b]/uint32(p.batch)*uint32(p.batch) + uint32(b)
						if p.rows[2*b] >= uint32(p.page*p.pages) {
							p.rows[2*b] = uint32(b)
						}
					}
					want := p.roped(pairing)
					require.True(t, whole(t, ropeCacheBody, p.rope(pairing)), p)
					bits(t, want.qkv, p.qkv, p.String())
					bits(t, want.k, p.k, p.String())
					bits(t, want.v, p.v, p.String())
				}
			}
		}
	})
}

// roped is the memory after rope_cache_f32.
func (p *paged) roped(pairing int) *paged {
	to := *p
	to.qkv = append([]float32(nil), p.qkv...)
	to.k, to.v = append([]float32(nil), p.k...), append([]float32(nil), p.v...)
	half := p.dim / 2
	turn := func(dst, src []float32, position uint32) {
		for i := range half {
			one, two := 2*i, 2*i+1
			if pairing == 1 {
				one, two = i, i+half
			}
			sin, cos := math.Sincos(float64(float32(position) * p.freqs[i]))
			s, c, re, im := float32(sin), float32(cos), src[one], src[two]
			dst[one] = float32(re*c) - float32(im*s)
			dst[two] = float32(re*s) + float32(im*c)
		}
	}

	for b := range p.batch {
		position, sequence := p.rows[2*b], p.rows[2*b+1]
		if sequence == padding {
			continue
		}
		row := (b * (p.heads + 2*p.kv)) * p.dim
		for h := range p.heads {
			turn(to.qkv[row+h*p.dim:], p.qkv[row+h*p.dim:], position)
		}
		for h := range p.kv {
			at := p.at(position, sequence, h)
			turn(to.k[at:], p.qkv[row+(p.heads+h)*p.dim:], position)
			copy(to.v[at:][:p.dim], p.qkv[row+(p.heads+p.kv+h)*p.dim:])
		}
	}

	return &to
}

// TestBest: the first of the largest, beside any other values.
func TestBest(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	atLevel(t, func(t *testing.T) {
		for _, c := range []struct {
			x    []float32
			want uint32
		}{
			{nil, none}, {[]float32{nan, nan}, none}, {[]float32{nan, -inf, -inf}, 1}, {[]float32{1, 3, nan, 3}, 1},
			{[]float32{inf, inf}, 0}, {[]float32{-inf, -math.MaxFloat32}, 1}, {[]float32{float32(math.Copysign(0, -1)), 0}, 0}, {[]float32{nan, 0}, 1},
		} {
			require.Equal(t, c.want, best(c.x), c.x)
		}
	})
}
