package librarytest

import (
	"fmt"
	"math"

	"capgpu/program"
)

// trap is a launch that must end in an out-of-range access of a binding.
type trap struct {
	why     string
	bytes   []uint32 // of each binding
	inline  []byte
	binding int
}

// These sizes have a product that is small in 32 bits, but not in truth.
const (
	wrapA = 0x10001
	wrapB = 0x10000 // wrapA * wrapB = 2^32 + 2^16
)

var traps = map[string][]trap{
	"reduce_f32":       {{"no result", []uint32{40, 0}, nil, 1}},
	"argmax_f32":       {{"no result", []uint32{40, 0}, nil, 1}},
	"matmul_f32":       matmulTraps,
	"matmul_tiled_f32": matmulTraps,
	"matvec_f32":       matvecTraps(4*12, 4*wrapB, 3, 4),
	"matvec_wg_f32":    matvecTraps(4*12, 4*wrapB, 3, 4),
	"matvec_q8_0":      append(matvecTraps(34*3, 34*wrapB, 3, 32), trap{"cols not a multiple of 32", []uint32{3400, 400, 400}, inline(u(1), u(33)), 0}),
	"matvec_wg_q8_0":   append(matvecTraps(34*3, 34*wrapB, 3, 32), trap{"cols not a multiple of 32", []uint32{3400, 400, 400}, inline(u(1), u(33)), 0}),
	"rmsnorm_f32": {
		{"short w", []uint32{4 * 20, 4 * 9, 4 * 20}, inline(u(10), float32(1)), 1},
		{"short y", []uint32{4 * 20, 4 * 10, 4 * 19}, inline(u(10), float32(1)), 2},
	},
	"layernorm_f32": {
		{"short w", []uint32{4 * 20, 4 * 9, 4 * 10, 4 * 20}, inline(u(10), float32(1)), 1},
		{"short b", []uint32{4 * 20, 4 * 10, 4 * 9, 4 * 20}, inline(u(10), float32(1)), 2},
		{"short y", []uint32{4 * 20, 4 * 10, 4 * 10, 4 * 19}, inline(u(10), float32(1)), 3},
	},
	"softmax_f32": {{"short y", []uint32{4 * 20, 4 * 19}, inline(u(10)), 1}},
	"rope_f32": {
		{"odd head_dim", []uint32{400}, inline(u(2), u(3), u(1), float32(10000)), 0},
		{"short x", []uint32{4 * 31}, inline(u(4), u(8), u(1), float32(10000)), 0},
		{"sizes that wrap", []uint32{4 * wrapB}, inline(u(wrapA), u(wrapB), u(1), float32(10000)), 0},
	},
	"attention_f32": {
		{"head_dim above 256", []uint32{4000, 4000, 4000, 4000}, inline(u(1), u(1), u(257), u(1)), 0},
		{"no kv heads", []uint32{4000, 4000, 4000, 4000}, inline(u(2), u(0), u(8), u(1)), 0},
		{"heads not a multiple of kv heads", []uint32{4000, 4000, 4000, 4000}, inline(u(3), u(2), u(8), u(1)), 0},
		{"more kv heads than heads", []uint32{4000, 4000, 4000, 4000}, inline(u(1), u(2), u(8), u(1)), 0},
		{"short q", []uint32{4 * 15, 4000, 4000, 4000}, inline(u(2), u(1), u(8), u(5)), 0},
		{"short k", []uint32{4 * 16, 4 * 39, 4 * 40, 4 * 16}, inline(u(2), u(1), u(8), u(5)), 1},
		{"short v", []uint32{4 * 16, 4 * 40, 4 * 39, 4 * 16}, inline(u(2), u(1), u(8), u(5)), 2},
		{"short out", []uint32{4 * 16, 4 * 40, 4 * 40, 4 * 15}, inline(u(2), u(1), u(8), u(5)), 3},
		{"a length that wraps", []uint32{4 * 16, 4 * 40, 4 * 40, 4 * 16}, inline(u(2), u(1), u(8), u(1<<29)), 1},
	},
	"embed_f32": {
		{"no such token", []uint32{4 * 40, 4 * 3, 4 * 24}, inline(u(8)), 0},
		{"half a row", []uint32{4 * 7, 4 * 1, 4 * 8}, inline(u(8)), 0},
		{"short y", []uint32{4 * 40, 4 * 3, 4 * 23}, inline(u(8)), 2},
		{"sizes that wrap", []uint32{4 * 40, 4 * 4, 4 * 40}, inline(u(1 << 30)), 2},
	},
	"embed_q8_0": {
		{"no such token", []uint32{34 * 5, 4 * 3, 4 * 96}, inline(u(32)), 0},
		{"short y", []uint32{34 * 5, 4 * 3, 4 * 95}, inline(u(32)), 2},
		{"dim not a multiple of 32", []uint32{34 * 5, 4 * 3, 4 * 200}, inline(u(31)), 2},
	},
	"embed_f16":           embed16Traps,
	"embed_bf16":          embed16Traps,
	"embed_q4_0":          embedBlockTraps(q4Bytes, 32),
	"embed_i8":            embedI8Traps,
	"linear_f32":          linearTraps(4, 1),
	"linear_f16":          linearTraps(2, 1),
	"linear_bf16":         linearTraps(2, 1),
	"linear_q8_0":         linearTraps(q8Bytes, 32),
	"linear_q4_0":         linearTraps(q4Bytes, 32),
	"linear_i8":           linearI8Traps(),
	"rope_cache_f32":      ropeCacheTraps(),
	"attention_cache_f32": attentionCacheTraps(),
	"head_norm_f32":       headNormTraps,
	"next_token_f32":      nextTokenTraps,
	"topk_f32": {
		{"k above 64", []uint32{4 * 100, 4 * 100, 4 * 100}, inline(u(65)), 1},
		{"short values", []uint32{4 * 100, 4 * 9, 4 * 100}, inline(u(10)), 1},
		{"short indices", []uint32{4 * 100, 4 * 10, 4 * 9}, inline(u(10)), 2},
	},
	"sample_topk_f32": {
		{"no k", []uint32{40, 40}, inline(u(0), float32(1), float32(0)), 1},
		{"k above 64", []uint32{4 * 100, 40}, inline(u(65), float32(1), float32(0)), 1},
		{"no result", []uint32{40, 0}, inline(u(1), float32(1), float32(0)), 1},
	},
	"trap": {{"always", []uint32{40}, nil, 0}, {"empty", []uint32{0}, nil, 0}},
}

var matmulTraps = []trap{
	{"short a", []uint32{4 * 11, 4 * 20, 4 * 15}, inline(u(3), u(5), u(4)), 0},
	{"short b", []uint32{4 * 12, 4 * 19, 4 * 15}, inline(u(3), u(5), u(4)), 1},
	{"short c", []uint32{4 * 12, 4 * 20, 4 * 14}, inline(u(3), u(5), u(4)), 2},
	{"a that wraps", []uint32{4 * wrapB, 4 * wrapB, 400}, inline(u(wrapA), u(1), u(wrapB)), 0},
	{"b that wraps", []uint32{4 * wrapB, 4 * wrapB, 400}, inline(u(1), u(wrapA), u(wrapB)), 1},
	{"c that wraps", []uint32{4 * wrapA, 4 * wrapB, 4 * wrapB}, inline(u(wrapA), u(wrapB), u(1)), 2},
	{"huge", []uint32{40, 40, 40}, inline(u(math.MaxUint32), u(math.MaxUint32), u(math.MaxUint32)), 0},
	{"nothing of much", []uint32{0, 40, 40}, inline(u(math.MaxUint32), u(math.MaxUint32), u(0)), 2},
}

// matvecTraps are traps of a matrix of this many bytes, rows and cols.
func matvecTraps(bytes, wrapped, rows, cols uint32) []trap {
	perBlock := cols
	if bytes%34 != 0 {
		perBlock = 1
	}
	return []trap{
		{"short matrix", []uint32{bytes - 1, 4 * cols, 4 * rows}, inline(rows, cols), 0},
		{"short x", []uint32{bytes, 4*cols - 4, 4 * rows}, inline(rows, cols), 1},
		{"short y", []uint32{bytes, 4 * cols, 4*rows - 4}, inline(rows, cols), 2},
		{"sizes that wrap", []uint32{wrapped, 400, 4 * wrapA}, inline(u(wrapA), u(wrapB)*perBlock), 0},
		{"huge", []uint32{40, 40, 40}, inline(u(math.MaxUint32), u(math.MaxUint32)), 0},
		{"nothing of much", []uint32{40, 40, 40}, inline(u(math.MaxUint32), u(0)), 2},
	}
}

// u gives a constant its type.
func u(v uint32) uint32 { return v }

// Traps are launches of a kernel with sizes that do not fit. Each must end in a
// trap of the kind out-of-bounds that names the binding Case.Trap. Words of the
// bindings are 7: no such token of a small table. Words of written bindings are 9,
// except the first, which is no mean of sevens.
func Traps(kernel string) []Case {
	access := manifest(kernel).Bindings
	var cases []Case
	for _, t := range traps[kernel] {
		c := blank(kernel)
		c.Name = fmt.Sprintf("%s: %s", kernel, t.why)
		for i, size := range t.bytes {
			b := make([]byte, size)
			for at := 0; at+4 <= len(b); at += 4 {
				b[at] = 7
				if i > 0 && access[i].Access != program.Read {
					b[at] = 9
				}
			}
			c.Bindings = append(c.Bindings, b)
			c.Want[i] = nil
		}

		c.Inline = t.inline
		c.Traps, c.Trap = true, t.binding
		cases = append(cases, c)
	}

	return cases
}
