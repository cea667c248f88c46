// Package quant stores the elements of tensors: plain Go that converts float32 to
// each model.Type and back, and models of one type into models of another.
//
// It is the reference for writers and tests. The device's kernels read the stored
// forms themselves. The only part that serving a model uses is Decode, for norms
// that a file stores in half precision.
//
// The block types are those of GGUF, computed as its reference does: the scale of
// 32 elements is the largest over 127 (q8_0), or the one of largest magnitude over
// -8 (q4_0), rounded to an F16. I8 is llama2.c's: a float32 scale apart.
package quant
