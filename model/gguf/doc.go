// Package gguf reads and writes GGUF, the file format of llama.cpp, versions 2 and 3:
// metadata, a tokenizer and tensors in one file (docs/gguf.md of the ggml repository).
//
// There are two steps. Parse finds the metadata and the places of the tensors,
// whatever they mean. It checks every count, length and offset against the size of
// the file, and allocates in proportion to the part of the file that was read. Load
// makes a model of them: the architectures of model.Arch, tensors in place in the file. It
// refuses by name, and never ignores, unsupported features that would change the result
// (experts, other ways to stretch the positions, an unknown tensor). Where the format leaves
// a number to the architecture, it is the one of all models of it (config.go).
//
// data may be a mapped file that another process changes meanwhile, so every number
// is read once and bounded at each read. The caller guards against truncation
// (mapped.Guard).
//
// Write is the inverse, from a model.File of any loader.
package gguf
