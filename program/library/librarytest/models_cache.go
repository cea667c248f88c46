package librarytest

import (
	"math"
	"math/rand/v2"
)

// padding is the sequence of a row of a batch for which nothing is done.
const padding = math.MaxUint32

// cache is a page table and rows of a batch. Unneeded pages have numbers outside of
// the caches.
type cache struct {
	page, pages uint32
	rows        []uint32 // [batch][2]: position and sequence
	table       []uint32 // [sequences][pages]
	count       uint32   // of pages in each cache
}

// drawCache draws rows, some of them padding, with no two at the same place, and a
// table. The rows need the pages of as many positions as window says, up to their own; 0:
// of all.
func drawCache(r *rand.Rand, batch, page, pages, sequences, window uint32) *cache {
	c := &cache{page: page, pages: pages, rows: bits(r, 2*batch+slack(r)), table: bits(r, sequences*pages+slack(r))}
	taken := map[[2]uint32]bool{}
	needed := map[uint32]bool{}
	for b := range batch {
		row := c.rows[2*b : 2*b+2]
		row[1] = padding
		if uint32(len(taken)) == sequences*pages*page || batch > 1 && r.IntN(5) == 0 {
			continue
		}

		for {
			row[0], row[1] = r.Uint32N(pages*page), r.Uint32N(sequences)
			if at := [2]uint32{row[0], row[1]}; !taken[at] {
				taken[at] = true
				break
			}
		}

		index := row[0] / page
		needed[row[1]*pages+index] = true
		for i := firstOf(row[0], window) / page; i < index; i++ {
			needed[row[1]*pages+i] = true
		}
	}

	c.count = uint32(len(needed)) + r.Uint32N(3)
	numbers := r.Perm(int(c.count))
	for i := range c.table {
		if needed[uint32(i)] {
			c.table[i], numbers = uint32(numbers[0]), numbers[1:]
		}
	}

	return c
}

// at is a position's place in the cache, in units of a position's keys or values.
func (c *cache) at(sequence, position uint32) uint32 {
	return c.table[sequence*c.pages+position/c.page]*c.page + position%c.page
}

var ropeCacheNames = []string{"heads", "kv_heads", "head_dim", "batch", "pairing", "page", "pages", "sequences"}

var ropeCacheEdges = [][]uint32{{4, 2, 8, 0, 0, 16, 2, 1}, {4, 2, 0, 3, 0, 16, 2, 1}, {0, 3, 4, 2, 1, 1, 1, 5}, {1, 1, 2, 1, 0, 1, 1, 1},
	{1, 1, 2, 1, 1, 1, 2000, 1}, {8, 4, 8, 1, 0, 16, 32, 1}, {8, 4, 8, 7, 1, 16, 4, 3}, {6, 3, 48, 5, 0, 32, 40, 2}, {4, 1, 128, 3, 1, 32, 60, 4},
	{2, 2, 6, 20, 1, 2, 3, 3}, {3, 1, 10, 33, 0, 8, 1, 9}}

func drawRopeCache(r *rand.Rand) []uint32 {
	kv := 1 + r.Uint32N(4)
	page := uint32(1) << r.Uint32N(6)
	return []uint32{kv * r.Uint32N(4), kv, 2 * (1 + upTo(r, 40)), upTo(r, 15), r.Uint32N(2), page, 1 + r.Uint32N(2000/page), 1 + r.Uint32N(5)}
}

func fillRopeCache(r *rand.Rand, size []uint32, c *Case) {
	heads, kvHeads, dim, batch, pairing, page, pages := size[0], size[1], size[2], size[3], size[4], size[5], size[6]
	wide, row := kvHeads*dim, (heads+2*kvHeads)*dim
	paged := drawCache(r, batch, page, pages, size[7], 1)
	freqs := ones(r, dim/2+slack(r))
	for i := range dim / 2 {
		freqs[i] = float32(math.Pow(10000, -2*float64(i)/float64(dim)))
		if r.IntN(9) == 0 {
			freqs[i] = 0
		}
	}

	qkv := ones(r, batch*row+slack(r))
	k, v := ones(r, paged.count*page*wide+slack(r)), ones(r, paged.count*page*wide+slack(r))
	c.Bindings = [][]byte{raw(qkv), raw(freqs), raw(paged.rows), raw(paged.table), raw(k), raw(v)}
	scale := 0.5 + r.Float32()
	c.Inline = inline(size[:7], scale)
	for b := range batch {
		position, sequence := paged.rows[2*b], paged.rows[2*b+1]
		if sequence == padding || dim == 0 {
			continue
		}

		place := paged.at(sequence, position) * wide
		for h := range heads + kvHeads {
			from := qkv[b*row+h*dim:][:dim]
			to := from
			if h >= heads {
				to = k[place+(h-heads)*dim:][:dim]
			}
			for i := range dim / 2 {
				one, two := 2*i, 2*i+1
				if pairing == 1 {
					one, two = i, i+dim/2
				}
				s, cos := math.Sincos(float64(position) * float64(freqs[i]))
				if freqs[i] != 0 {
					s, cos = s*float64(scale), cos*float64(scale)
				}
				re, im := float64(from[one]), float64(from[two])
				to[one], to[two] = float32(re*cos-im*s), float32(re*s+im*cos)
			}
		}

		copy(v[place:][:wide], qkv[b*row+(heads+kvHeads)*dim:])
	}

	c.Want[0], c.Want[4], c.Want[5] = raw(qkv), raw(k), raw(v)
}

var attentionCacheNames = []string{"heads", "kv_heads", "head_dim", "batch", "page", "pages", "sequences", "window"}

var attentionCacheEdges = [][]uint32{{4, 2, 8, 0, 16, 2, 1, 0}, {0, 2, 8, 3, 16, 2, 1, 0}, {4, 2, 0, 3, 16, 2, 1, 9}, {1, 1, 1, 1, 1, 1, 1, 1},
	{2, 2, 48, 1, 16, 1, 1, 0}, {8, 4, 8, 3, 16, 13, 1, 40}, {6, 3, 48, 4, 32, 5, 2, 1}, {8, 1, 64, 2, 64, 2, 1, 0}, {2, 1, 256, 3, 8, 25, 2, 63},
	{3, 3, 65, 6, 1, 130, 2, 5}, {2, 1, 6, 33, 2, 40, 5, 0}, {4, 4, 16, 5, 16, 80, 2, 600}}

func drawAttentionCache(r *rand.Rand) []uint32 {
	kv := 1 + r.Uint32N(3)
	page := uint32(1) << r.Uint32N(6)
	return []uint32{kv * (1 + r.Uint32N(3)), kv, 1 + upTo(r, 100), upTo(r, 8), page, 1 + r.Uint32N(200/page), 1 + r.Uint32N(4), r.Uint32N(2) * r.Uint32N(250)}
}

func fillAttentionCache(r *rand.Rand, size []uint32, c *Case) {
	heads, kvHeads, dim, batch, page, pages := size[0], size[1], size[2], size[3], size[4], size[5]
	wide, row := kvHeads*dim, (heads+2*kvHeads)*dim
	window, scale, limit := size[7], float32(1/math.Sqrt(float64(max(dim, 1)))*(0.5+r.Float64())), float32(r.IntN(2))*(1+3*r.Float32())
	paged := drawCache(r, batch, page, pages, size[6], window)
	room := paged.count * page * wide
	qkv, k, v := scaled(r, batch*row+slack(r), 2), scaled(r, room+slack(r), 2), ones(r, room+slack(r))
	out := ones(r, batch*heads*dim+slack(r))
	c.Bindings = [][]byte{raw(qkv), raw(paged.rows), raw(paged.table), raw(k), raw(v), raw(out)}
	c.Inline = inline(size[:6], window, scale, limit)
	for b := range batch {
		position, sequence := paged.rows[2*b], paged.rows[2*b+1]
		for h := range heads {
			to := out[(b*heads+h)*dim:][:dim]
			if sequence == padding {
				clear(to)
				continue
			}
			q := qkv[b*row+h*dim:][:dim]
			places := make([]uint32, position+1-firstOf(position, window))
			for p := range places {
				at := firstOf(position, window) + uint32(p)
				places[p] = paged.at(sequence, at)*wide + h/(heads/kvHeads)*dim
			}
			attend(to, q, k, v, places, float64(scale), float64(limit))
		}
	}

	c.Want[5] = raw(out)
}

// firstOf is the first of the positions that count for one.
func firstOf(position, window uint32) uint32 {
	if window == 0 || position < window {
		return 0
	}
	return position - window + 1
}

// attend is the mean of the values at places, weighted with the softmax of the keys
// there times q and scale, within a limit if that is not 0.
func attend(out, q, k, v []float32, places []uint32, scale, limit float64) {
	most, total := math.Inf(-1), 0.0
	scores := make([]float64, len(places))
	for p, at := range places {
		for d := range q {
			scores[p] += float64(q[d]) * float64(k[int(at)+d]) * scale
		}
		if limit > 0 {
			scores[p] = limit * math.Tanh(scores[p]/limit)
		}
		most = max(most, scores[p])
	}

	for p, score := range scores {
		scores[p] = math.Exp(score - most)
		total += scores[p]
	}

	for d := range out {
		var sum float64
		for p, at := range places {
			sum += scores[p] / total * float64(v[int(at)+d])
		}
		out[d] = float32(sum)
	}
}

var nextEdges = [][]uint32{{5, 0, 3}, {0, 3, 1}, {1, 1, 1}, {257, 1, 4}, {256, 5, 1}, {512, 9, 7}, {4099, 2, 100}, {3, 40, 2}}

func drawNext(r *rand.Rand) []uint32 {
	return []uint32{upTo(r, 1500), upTo(r, 9), 1 + upTo(r, 50)}
}

func fillNext(r *rand.Rand, size []uint32, c *Case) {
	vocab, batch, keep := size[0], size[1], size[2]
	logits, tokens := coarse(r, batch*vocab+slack(r)), bits(r, batch+slack(r))
	rows, history := bits(r, 2*batch+slack(r)), bits(r, batch*keep+slack(r))
	for b := range batch {
		switch r.IntN(6) {
		case 0:
			if batch > 1 {
				rows[2*b+1] = padding
			}
		case 1:
			rows[2*b] = math.MaxUint32 // the next is 0
		case 2:
			for i := range logits[b*vocab:][:vocab] {
				logits[b*vocab+uint32(i)] = float32(math.NaN())
			}
		}
	}

	c.Bindings = [][]byte{raw(logits), raw(tokens), raw(rows), raw(history)}
	c.Inline = inline(size)
	for b := range batch {
		if rows[2*b+1] == padding {
			continue
		}
		token, found := uint32(0), uint32(none)
		if at := order(logits[b*vocab:][:vocab]); len(at) > 0 {
			token, found = at[0], at[0]
		}
		tokens[b], history[b*keep+rows[2*b]%keep] = token, found
		rows[2*b]++
	}

	c.Want[1], c.Want[2], c.Want[3] = raw(tokens), raw(rows), raw(history)
}
