// Package names has the names of built-in programs, for packages that decide which
// may be opened and read no program: a policy that names an unknown one is
// mistaken. The programs themselves are in package library and in the backends;
// their tests compare them with these names.
package names

// EduFactorial is the program of the edu device.
const EduFactorial = "edu.factorial"

// Library are the kernels of package library, sorted.
var Library = []string{
	"argmax_f32",
	"attention_cache_f32",
	"attention_f32",
	"copy",
	"embed_bf16",
	"embed_f16",
	"embed_f32",
	"embed_i8",
	"embed_q4_0",
	"embed_q8_0",
	"fill_u32",
	"histogram_u32",
	"layernorm_f32",
	"linear_bf16",
	"linear_f16",
	"linear_f32",
	"linear_i8",
	"linear_q4_0",
	"linear_q8_0",
	"matmul_f32",
	"matmul_tiled_f32",
	"matvec_f32",
	"matvec_q8_0",
	"matvec_wg_f32",
	"matvec_wg_q8_0",
	"next_token_f32",
	"reduce_f32",
	"rmsnorm_f32",
	"rope_cache_f32",
	"rope_f32",
	"sample_topk_f32",
	"saxpy_f32",
	"scan_f32",
	"scan_u32",
	"softmax_f32",
	"spin",
	"swiglu_f32",
	"swiglu_rows_f32",
	"topk_f32",
	"trap",
	"vecadd_f32",
}
