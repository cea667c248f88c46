package librarytest

import "math"

// linearTraps are traps of a kernel linear_* with this many bytes of weights for
// this many elements; it has columns in multiples of the elements.
func linearTraps(bytes, elements uint32) []trap {
	const rows, batch, stride, at = 40, 5, 41, 2 // rows of two workgroups
	const yWords = (batch-1)*stride + at + rows
	const most = math.MaxUint32
	cols := max(64, elements)
	w := func(n uint32) uint32 { return n / elements * bytes }
	sized := func(size ...uint32) []byte { return inline(size) }
	right := sized(rows, cols, batch, 0, stride, at)
	list := []trap{
		{"short w", []uint32{w(rows*cols) - 1, 4 * batch * cols, 4 * yWords}, right, 0},
		{"short x", []uint32{w(rows * cols), 4*batch*cols - 4, 4 * yWords}, right, 1},
		{"short y", []uint32{w(rows * cols), 4 * batch * cols, 4*yWords - 4}, right, 2},
		{"rows of y upon each other", []uint32{w(rows * cols), 4 * batch * cols, 400}, sized(rows, cols, batch, 0, rows-1, at), 2},
		{"y_at behind the end", []uint32{w(rows * cols), 4 * cols, 4 * yWords}, sized(rows, cols, 1, 0, 0, yWords-rows+1), 2},
		{"y_at and rows that wrap", []uint32{w(rows * cols), 4 * cols, 400}, sized(rows, cols, 1, 0, 0, most-1), 2},
		{"y_stride that wraps", []uint32{w(rows * cols), 4 * 3 * cols, 400}, sized(rows, cols, 3, 0, 1<<31, 0), 2},
		{"batch and y_stride that wrap", []uint32{0, 0, 400}, sized(rows, 0, wrapA, 0, wrapB, 0), 2},
		{"w that wraps", []uint32{w(wrapB * elements), 400, 400}, sized(wrapA, wrapB*elements, 1, 0, 0, 0), 0},
		{"x that wraps", []uint32{w(wrapB), 4 * wrapB, 400}, sized(1, wrapB, wrapA, 0, 1, 0), 1},
		{"huge", []uint32{400, 400, 400}, sized(most, most, most, most, most, most), 0},
		{"nothing of much", []uint32{0, 0, 400}, sized(most, 0, 1, 0, 0, 0), 2},
	}

	if elements > 1 {
		list = append(list, trap{"cols not a multiple of 32", []uint32{4000, 4000, 4000}, sized(rows, cols+1, batch, 0, stride, at), 0})
	}

	return list
}

// linearI8Traps are the traps of linear_f32 with enough scales for groups of 8, and
// traps of the scales.
func linearI8Traps() []trap {
	var list []trap
	for _, t := range linearTraps(1, 1) {
		if t.binding > 0 {
			t.binding++
		}
		list = append(list, trap{t.why, []uint32{t.bytes[0], 4 * (t.bytes[0] + 7) / 8, t.bytes[1], t.bytes[2]}, append(t.inline, inline(u(8))...), t.binding})
	}
	sized := func(group uint32) []byte { return inline([]uint32{3, 10, 2, 0, 3, 0, group}) }
	return append(list,
		trap{"no group", []uint32{30, 400, 80, 24}, sized(0), 1},
		trap{"short s", []uint32{30, 4 * 3, 80, 24}, sized(8), 1},
		trap{"short s for the last rows", []uint32{400, 4 * 6, 40, 160}, inline([]uint32{40, 10, 1, 0, 0, 0, 64}), 1},
		trap{"no s", []uint32{30, 3, 80, 24}, sized(math.MaxUint32), 1})
}

// ropeCacheTraps and attentionCacheTraps: all rows are of position 7 and sequence 7,
// and all positions are in page 7.
func ropeCacheTraps() []trap {
	const heads, kvHeads, dim, batch = 4, 2, 6, 3
	const qkv, freqs, rows, table, cache = 4 * batch * (heads + 2*kvHeads) * dim, 4 * 3, 8 * batch, 4 * 8, 4 * 8 * 8 * kvHeads * dim
	enough := []uint32{qkv, freqs, rows, table, cache, cache}
	with := func(binding int, bytes uint32) []uint32 {
		out := append([]uint32(nil), enough...)
		out[binding] = bytes
		return out
	}

	sized := func(heads, kvHeads, dim, batch, pairing, page, pages uint32) []byte {
		return inline([]uint32{heads, kvHeads, dim, batch, pairing, page, pages}, float32(1))
	}

	right, with16 := sized(heads, kvHeads, dim, batch, 0, 8, 1), sized(heads, kvHeads, dim, batch, 0, 16, 1)
	return []trap{
		{"odd head_dim", enough, sized(heads, kvHeads, 5, batch, 0, 8, 1), 0},
		{"no such pairing", enough, sized(heads, kvHeads, dim, batch, 2, 8, 1), 0},
		{"no kv heads", enough, sized(heads, 0, dim, batch, 0, 8, 1), 0},
		{"heads not a multiple of kv heads", enough, sized(3, kvHeads, dim, batch, 0, 8, 1), 0},
		{"no page", enough, sized(heads, kvHeads, dim, batch, 0, 0, 1), 0},
		{"page no power of two", enough, sized(heads, kvHeads, dim, batch, 0, 12, 1), 0},
		{"short qkv", with(0, qkv-4), right, 0},
		{"heads that wrap", enough, sized(1<<31, 1<<31, dim, batch, 0, 8, 1), 0},
		{"kv heads that wrap", enough, sized(0, 1<<31, 2, batch, 0, 8, 1), 0},
		{"heads that wrap with kv heads", enough, sized(math.MaxUint32-1, kvHeads, dim, batch, 0, 8, 1), 0},
		{"a row that wraps", enough, sized(wrapA-1, 1, wrapB, batch, 0, 8, 1), 0},
		{"a batch that wraps", with(0, 4*wrapB), sized(2, 1, 4, 1<<28, 0, 8, 1), 0},
		{"short freqs", with(1, freqs-4), right, 1},
		{"short freqs of a long head", []uint32{4 * 2 * 600, 4 * 299, 8, table, 4 * 8 * 8 * 600, 4 * 8 * 8 * 600}, sized(0, 1, 600, 1, 0, 8, 1), 1},
		{"short rows", with(2, rows-4), right, 2},
		{"short rows of many", []uint32{qkv / batch * 40, freqs, 8*40 - 4, table, cache, cache}, sized(heads, kvHeads, dim, 40, 0, 8, 1), 2},
		{"a position that is not in the table", with(4, 0), sized(heads, kvHeads, dim, batch, 0, 4, 1), 3},
		{"a table of no pages", enough, sized(heads, kvHeads, dim, batch, 0, 8, 0), 3},
		{"a sequence that is not in the table", with(3, table-4), right, 3},
		{"a sequence and pages that wrap", with(3, 400), sized(heads, kvHeads, dim, batch, 0, 8, 0x24924925), 3},
		{"a page that is not in k", with(4, cache-4), right, 4},
		{"a page that is not in v", with(5, cache-4), right, 5},
		{"a page that k has half of", []uint32{qkv, freqs, rows, table, cache / 64 * (7*16 + 8), 2 * cache}, with16, 4},
		{"a page that v has half of", []uint32{qkv, freqs, rows, table, 2 * cache, cache / 64 * (7*16 + 8)}, with16, 5},
		{"no k", with(4, 0), right, 4},
		{"a page that wraps", enough, sized(heads, kvHeads, dim, batch, 0, 1<<31, 1), 4},
	}
}

func attentionCacheTraps() []trap {
	const heads, kvHeads, dim, batch = 4, 2, 5, 3
	const qkv, rows, table, cache, out = 4 * batch * (heads + 2*kvHeads) * dim, 8 * batch, 4 * 8, 4 * 8 * 8 * kvHeads * dim, 4 * batch * heads * dim
	enough := []uint32{qkv, rows, table, cache, cache, out}
	with := func(binding int, bytes uint32) []uint32 {
		list := append([]uint32(nil), enough...)
		list[binding] = bytes
		return list
	}

	sized := func(heads, kvHeads, dim, batch, page, pages uint32) []byte {
		return inline([]uint32{heads, kvHeads, dim, batch, page, pages, 0}, float32(1), float32(0))
	}

	right, with16 := sized(heads, kvHeads, dim, batch, 8, 1), sized(heads, kvHeads, dim, batch, 16, 1)
	return []trap{
		{"head_dim above 256", []uint32{40000, rows, table, cache, cache, 40000}, sized(2, 1, 257, 1, 8, 1), 0},
		{"no kv heads", enough, sized(heads, 0, dim, batch, 8, 1), 0},
		{"heads not a multiple of kv heads", enough, sized(3, kvHeads, dim, batch, 8, 1), 0},
		{"more kv heads than heads", enough, sized(1, kvHeads, dim, batch, 8, 1), 0},
		{"no page", enough, sized(heads, kvHeads, dim, batch, 0, 1), 0},
		{"page no power of two", enough, sized(heads, kvHeads, dim, batch, 7, 1), 0},
		{"short qkv", with(0, qkv-4), right, 0},
		{"heads that wrap", enough, sized(1<<31, 1<<30, dim, batch, 8, 1), 0},
		{"heads that wrap with kv heads", enough, sized(math.MaxUint32-1, kvHeads, dim, batch, 8, 1), 0},
		{"a row that wraps", enough, sized(1<<24, 1<<23, 256, batch, 8, 1), 0},
		{"a batch that wraps", with(0, 4*wrapB), sized(2, 1, 4, 1<<28, 8, 1), 0},
		{"short rows", with(1, rows-4), right, 1},
		{"short out", with(5, out-4), right, 5},
		{"a position that is not in the table", with(3, 0), sized(heads, kvHeads, dim, batch, 4, 1), 2},
		{"a table of no pages", enough, sized(heads, kvHeads, dim, batch, 8, 0), 2},
		{"a sequence that is not in the table", with(2, table-4), right, 2},
		{"a sequence and pages that wrap", with(2, 400), sized(heads, kvHeads, dim, batch, 8, 0x24924925), 2},
		{"a page that is not in k", with(3, cache-4), right, 3},
		{"a page that is not in v", with(4, cache-4), right, 4},
		{"a page that k has half of", []uint32{qkv, rows, table, cache / 64 * (7*16 + 8), 2 * cache, out}, with16, 3},
		{"a page that v has half of", []uint32{qkv, rows, table, 2 * cache, cache / 64 * (7*16 + 8), out}, with16, 4},
		{"no v", with(4, 0), right, 4},
		{"a page that wraps", enough, sized(heads, kvHeads, dim, batch, 1<<31, 1), 3},
	}
}

var embed16Traps = []trap{
	{"no such token", []uint32{2 * 40, 4 * 3, 4 * 24}, inline(u(8)), 0},
	{"half a row", []uint32{2 * 63, 4 * 1, 4 * 8}, inline(u(8)), 0},
	{"the most of a row", []uint32{2*8*300 - 2, 4 * 1, 4 * 300}, inline(u(300)), 0},
	{"half an element", []uint32{2*64 - 1, 4 * 1, 4 * 8}, inline(u(8)), 0},
	{"short y", []uint32{2 * 40, 4 * 3, 4 * 23}, inline(u(8)), 2},
	{"sizes that wrap", []uint32{2 * 40, 4 * 4, 4 * 40}, inline(u(1 << 30)), 2},
}

// embedBlockTraps are of a table of blocks of n elements.
func embedBlockTraps(bytes, n uint32) []trap {
	return []trap{
		{"no such token", []uint32{bytes * 5, 4 * 3, 4 * 3 * n}, inline(n), 0},
		{"half a row", []uint32{bytes*16 - 1, 4 * 1, 4 * 2 * n}, inline(2 * n), 0},
		{"the most of a row", []uint32{bytes*80 - 1, 4 * 1, 4 * 10 * n}, inline(10 * n), 0},
		{"short y", []uint32{bytes * 5, 4 * 3, 4 * (3*n - 1)}, inline(n), 2},
		{"dim not whole blocks", []uint32{bytes * 5, 4 * 3, 4 * 7 * n}, inline(n - 1), 2},
	}
}

var embedI8Traps = []trap{
	{"no such token", []uint32{40, 400, 4 * 3, 4 * 24}, inline(u(8), u(8)), 0},
	{"half a row", []uint32{63, 400, 4 * 1, 4 * 8}, inline(u(8), u(8)), 0},
	{"the most of a row", []uint32{8*300 - 1, 4 * 8, 4 * 1, 4 * 300}, inline(u(300), u(300)), 0},
	{"no such scale", []uint32{64, 4 * 7, 4 * 1, 4 * 8}, inline(u(8), u(8)), 1},
	{"no group", []uint32{64, 400, 4 * 1, 4 * 8}, inline(u(8), u(0)), 1},
	{"short y", []uint32{400, 400, 4 * 3, 4 * 23}, inline(u(8), u(8)), 3},
	{"sizes that wrap", []uint32{40, 400, 4 * 4, 4 * 40}, inline(u(1<<30), u(8)), 3},
}

var headNormTraps = []trap{
	{"short qkv", []uint32{4 * 63, 4 * 4, 4 * 4}, inline(u(4), u(2), u(4), u(2), float32(1)), 0},
	{"short q", []uint32{4 * 64, 4 * 3, 4 * 4}, inline(u(4), u(2), u(4), u(2), float32(1)), 1},
	{"short k", []uint32{4 * 64, 4 * 4, 4 * 3}, inline(u(4), u(2), u(4), u(2), float32(1)), 2},
	{"heads that wrap", []uint32{400, 400, 400}, inline(u(1<<31), u(1<<30), u(4), u(1), float32(1)), 0},
	{"a row that wraps", []uint32{4 * wrapB, 4 * wrapB, 4 * wrapB}, inline(u(wrapA-2), u(1), u(wrapB), u(1), float32(1)), 0},
	{"a batch that wraps", []uint32{4 * 32, 16, 16}, inline(u(4), u(2), u(4), u(1<<27), float32(1)), 0},
}

var nextTokenTraps = []trap{
	{"short logits", []uint32{4 * 29, 4 * 3, 4 * 6, 4 * 6}, inline(u(10), u(3), u(2)), 0},
	{"logits that wrap", []uint32{4 * wrapB, 4 * wrapB, 400, 400}, inline(u(wrapA), u(wrapB), u(1)), 0},
	{"short tokens", []uint32{4 * 30, 4 * 2, 4 * 6, 4 * 6}, inline(u(10), u(3), u(2)), 1},
	{"short rows", []uint32{4 * 30, 4 * 3, 4 * 5, 4 * 6}, inline(u(10), u(3), u(2)), 2},
	{"no room to keep", []uint32{4 * 30, 4 * 3, 4 * 6, 4 * 6}, inline(u(10), u(3), u(0)), 3},
	{"short history", []uint32{4 * 30, 4 * 3, 4 * 6, 4 * 5}, inline(u(10), u(3), u(2)), 3},
	{"history that wraps", []uint32{0, 4 * 4, 4 * 8, 400}, inline(u(0), u(4), u(1<<30)), 3},
	{"a batch that wraps", []uint32{0, 4 * 4, 4 * 8, 400}, inline(u(0), u(1<<31), u(2)), 1},
}
