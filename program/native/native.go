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

	// Stop, if not nil, ends a Run early, with false, soon after it is set.
	Stop *atomic.Uint32

	// Items sets this for elementwise bodies.
	elements uint64
	floats   [3][]float32 // the bindings
}

// Body is a fast body of one program.
type Body struct {
	// Items is the number of independent pieces of work in a call (rows, blocks of
	// elements, heads). ok is false for a call that the body cannot do exactly as
	// the program would: one that would trap, is misaligned, or has overlapping
	// bindings. The lane engine does those. Items is called first, and notes in the
	// call values that the other functions use.
	Items func(c *Call) (items uint64, ok bool)
	// Run does items lo to hi-1 of a call that Items has accepted. Ranges may run
	// concurrently and in any order; no result depends on their division. A range
	// of Grain items takes at most about a millisecond, and some 50 ms if all pages
	// that it touches are gone and must be faulted in. If an item may take longer,
	// as in attention to a cache, Run checks Stop as often.
	//
	// It returns false if the data, not the shapes, lead the program to an
	// operation that the body lacks (a token beyond the table, a NaN among values
	// to be ordered). Values that were written until then are invalid: the lane
	// engine must do the whole launch, after all ranges have ended. A body that
	// changes its inputs (ReadWrite bindings, or in place) returns false only if
	// the program traps, unless memory changes meanwhile: nobody relies on memory
	// after a trap.
	Run   func(c *Call, lo, hi uint64) bool
	Grain func(c *Call) uint64
	// Nanos approximates the time of all items of a call that Items has accepted,
	// in nanoseconds, with the memory in the caches: for small calls it has the
	// right order of magnitude. If the shapes bound the effect of the data, as in
	// attention to a cache, it is half of the maximum. It is nil if the time
	// depends on the data otherwise, and ok is false if it does so on this machine.
	// A Run of a body with Nanos allocates nothing.
	Nanos func(c *Call) (nanos uint64, ok bool)
}

// bodies is the table, by the names of the library's programs. Variants of one
// program share a body: they differ only in the order of their sums.
var bodies = map[string]*Body{
	"argmax_f32":          argmaxBody,
	"attention_cache_f32": attentionCacheBody,
	"attention_f32":       attentionBody,
	"copy":                copyBody,
	"embed_bf16":          embedOf(typeBF16, pace{words: 192}),
	"embed_f16":           embedOf(typeF16, pace{words: 192}),
	"embed_f32":           embedOf(typeF32, pace{words: 192}),
	"embed_i8":            embedOf(typeI8, pace{words: 2048}),
	"embed_iq4_nl":        embedOf(typeIQ4NL, pace{words: 800}),
	"embed_iq4_xs":        embedOf(typeIQ4XS, pace{words: 800}),
	"embed_mxfp4":         embedOf(typeMXFP4, pace{words: 800}),
	"embed_q2_k":          embedOf(typeQ2K, pace{words: 800}),
	"embed_q3_k":          embedOf(typeQ3K, pace{words: 800}),
	"embed_q4_0":          embedOf(typeQ4, pace{words: 256}),
	"embed_q4_1":          embedOf(typeQ41, pace{words: 800}),
	"embed_q4_k":          embedOf(typeQ4K, pace{words: 800}),
	"embed_q5_0":          embedOf(typeQ50, pace{words: 800}),
	"embed_q5_1":          embedOf(typeQ51, pace{words: 800}),
	"embed_q5_k":          embedOf(typeQ5K, pace{words: 800}),
	"embed_q6_k":          embedOf(typeQ6K, pace{words: 800}),
	"embed_q8_0":          embedOf(typeQ8, pace{words: 256}),
	"fill_u32":            fillBody,
	"geglu_rows_f32":      gegluRowsBody,
	"head_norm_f32":       headNormBody,
	"layernorm_f32":       layernormBody,
	"linear_bf16":         linearOfType(typeBF16),
	"linear_f16":          linearOfType(typeF16),
	"linear_f32":          linearOfType(typeF32),
	"linear_i8":           linearOfType(typeI8),
	"linear_iq4_nl":       linearOfType(typeIQ4NL),
	"linear_iq4_xs":       linearOfType(typeIQ4XS),
	"linear_mxfp4":        linearOfType(typeMXFP4),
	"linear_q2_k":         linearOfType(typeQ2K),
	"linear_q3_k":         linearOfType(typeQ3K),
	"linear_q4_0":         linearOfType(typeQ4),
	"linear_q4_1":         linearOfType(typeQ41),
	"linear_q4_k":         linearOfType(typeQ4K),
	"linear_q5_0":         linearOfType(typeQ50),
	"linear_q5_1":         linearOfType(typeQ51),
	"linear_q5_k":         linearOfType(typeQ5K),
	"linear_q6_k":         linearOfType(typeQ6K),
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
	"softcap_f32":         softcapBody,
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

// byDigest is the table by digests. A body without a program in the library is not
// in it; a test checks that there is none.
var byDigest = sync.OnceValue(func() map[[32]byte]*Body {
	table := map[[32]byte]*Body{}
	for name, b := range bodies {
		if digest, ok := library.Digest(name); ok {
			table[digest] = b
		}
	}
	return table
})
