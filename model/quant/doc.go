// Package quant is how the elements of a tensor are stored: plain Go that turns float32
// into each model.Type and back, and models of one type into models of another.
//
// It is the reference for writers and tests. The device's kernels read the stored forms
// themselves; nothing here is on the way of a model that is served, but for norms that a
// file stores in half precision, which become float32 by Decode.
//
// The block types are those of GGUF, made as its reference does it: the scale of 32
// elements is the largest over 127 (q8_0), or the one of largest magnitude over -8
// (q4_0), rounded to an F16. I8 is llama2.c's: a float32 scale apart.
package quant
