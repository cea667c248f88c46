// Package model is what a language model is before it is on a device: its shape, its
// tensors as they lie in a mapped file, and how it names tokens.
//
//	gguf, llama2c, safetensors ─► File ─► llama (tensors in GpuBuffers) ─► server ─► openai, rpc
//
// The packages below it go the way that a model goes: the loaders read a file into a
// File (load picks the right one), tokenizer turns text into tokens and back, llama puts
// the tensors into buffers of a session and runs them there, sample chooses tokens, and
// server shares one model among requests. Package lm is the contract between server and
// those who serve it to others.
//
// A file is not trusted: whoever made it may have lied about every number in it. A
// loader checks each against the size of the file and the bounds below before it is
// used for anything, allocates in proportion to the file only, and says what is wrong
// by name (gpuerr.Invalid).
package model
