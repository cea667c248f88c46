// Package gguf reads and writes GGUF, the file format of llama.cpp, versions 2 and 3:
// metadata, a tokenizer and tensors in one file (docs/gguf.md of the ggml repository).
//
// The file goes through two steps. Parse finds the metadata and the places of the
// tensors, whatever they mean: every count, length and offset is held against the size
// of the file, and what is allocated is in proportion to the part of the file that was
// read. Load makes a model of them: architecture llama, tensors of F32, F16, BF16, Q8_0
// and Q4_0, as they lie in the file, and of Q6_K, which become Q8_0. What would change
// the result and is not supported (biases, experts, other ways to stretch the positions,
// a tensor that is not known) is refused by name, never left out.
//
// data may be a mapped file that another changes meanwhile: every number is read once
// and bounded at each reading. The caller guards against truncation (mapped.Guard).
//
// Write is the other way, from a model.File of any loader.
package gguf
