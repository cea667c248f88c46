package native

import (
	"sync"
	"sync/atomic"

	"capgpu/program"
	"capgpu/program/library"
)

// Call is one launch: as the program's Info says, bounded and copied.
type Call struct {
	Grid, Block program.Dim3
	Bindings    [][]byte // may change or vanish under the body at any time
	Inline      []byte

	// Stop, if it is there, ends a Run early, with false, soon after it is not 0.
	Stop *atomic.Uint32

	// Of elementwise bodies; Items says.
	elements uint64
	floats   [3][]float32 // the bindings
}

// Body is a fast body of one program.
type Body struct {
	// Items is how many independent pieces of work a call has (rows, blocks of
	// elements, heads). ok is false for a call that the body cannot do exactly as the
	// program would: one that would trap, is misaligned, or whose bindings overlap.
	// The lane engine does those. It is called before all else, and notes in the call what
	// the others use.
	Items func(c *Call) (items uint64, ok bool)
	// Run does items lo to hi-1 of a call whose Items were ok. Ranges may run beside
	// each other and in any order; no result depends on how they are cut. A range of
	// Grain items takes a millisecond or so at the most, and some 50 ms where all
	// pages that it touches are gone and must be made; where an item may take longer, as
	// in attention to a cache, Run looks at Stop as often.
	//
	// It returns false when the data, not the shapes, make the program do what the
	// body does not (a token beyond the table, a NaN among values to be ordered).
	// What was written until then is of no account: the lane engine must do the whole
	// launch, after all ranges have ended. A body that changes what it reads (Read
	// and write bindings, or in place) returns false only where the program traps, if
	// memory does not change meanwhile: nobody counts on what is there after a trap.
	Run   func(c *Call, lo, hi uint64) bool
	Grain func(c *Call) uint64
	// Nanos is about how long all items of a call whose Items were ok take together,
	// in nanoseconds, with the memory in the caches: for small calls it is of the right
	// order. Where the shapes bound what the data make of it, as in attention to a cache,
	// it is of half of the most. It is nil if that depends on the data otherwise, and ok
	// is false if it does so on this machine. A Run of a body that has it allocates nothing.
	Nanos func(c *Call) (nanos uint64, ok bool)
}

// bodies is the table, by the names of the library's programs. Variants of one
// program share a body: they differ in the order of their sums only.
var bodies = map[string]*Body{
	"argmax_f32":          argmaxBody,
	"attention_f32":       attentionBody,
	"attention_cache_f32": attentionCacheBody,
	"copy":                copyBody,
	"embed_bf16":          embedOf(typeBF16, pace{words: 192}),
	"embed_f16":           embedOf(typeF16, pace{words: 192}),
	"embed_f32":           embedOf(typeF32, pace{words: 192}),
	"embed_i8":            embedOf(typeI8, pace{words: 2048}),
	"embed_q4_0":          embedOf(typeQ4, pace{words: 256}),
	"embed_q8_0":          embedOf(typeQ8, pace{words: 256}),
	"fill_u32":            fillBody,
	"layernorm_f32":       layernormBody,
	"linear_bf16":         linearOfType(typeBF16),
	"linear_f16":          linearOfType(typeF16),
	"linear_f32":          linearOfType(typeF32),
	"linear_i8":           linearOfType(typeI8),
	"linear_q4_0":         linearOfType(typeQ4),
	"linear_q8_0":         linearOfType(typeQ8),
	"matmul_f32":          matmulBody,
	"matmul_tiled_f32":    matmulBody,
	"matvec_f32":          matvecBody,
	"matvec_q8_0":         matvecQ8Body,
	"matvec_wg_f32":       matvecBody,
	"matvec_wg_q8_0":      matvecQ8Body,
	"next_token_f32":      nextTokenBody,
	"reduce_f32":          reduceBody,
	"rmsnorm_f32":         rmsnormBody,
	"rope_cache_f32":      ropeCacheBody,
	"rope_f32":            ropeBody,
	"saxpy_f32":           saxpyBody,
	"softmax_f32":         softmaxBody,
	"swiglu_f32":          swigluBody,
	"swiglu_rows_f32":     swigluRowsBody,
	"topk_f32":            topkBody,
	"vecadd_f32":          vecaddBody,
}

// Lookup finds the body of a bundle by its digest.
func Lookup(digest [32]byte) (*Body, bool) {
	b, ok := byDigest()[digest]
	return b, ok
}

// ByName finds the body of a program of the library by its name.
func ByName(name string) (*Body, bool) {
	b, ok := bodies[name]
	return b, ok
}

// byDigest is the table by digests. A body whose program the library does not have
// is not in it; a test looks that there is none.
var byDigest = sync.OnceValue(func() map[[32]byte]*Body {
	table := map[[32]byte]*Body{}
	for name, b := range bodies {
		if digest, ok := library.Digest(name); ok {
			table[digest] = b
		}
	}
	return table
})
