// Package model describes a language model before it is on a device: its shape, its
// tensors in a mapped file, and its vocabulary.
//
//	gguf, llama2c, safetensors ─► File ─► llama (tensors in GpuBuffers) ─► server ─► openai, rpc
//
// The packages below it follow a model's path: the loaders read a file into a File
// (load picks the right one), tokenizer turns text into tokens and back, llama puts
// the tensors into buffers of a session and runs them there, sample chooses tokens,
// and server shares one model among requests. Package lm is the contract between
// server and the packages that serve it to others.
//
// A file is not trusted: every number in it may be a lie. A loader checks each
// number against the size of the file and the bounds below before using it,
// allocates only in proportion to the file, and names the part that is wrong
// (gpuerr.Invalid).
package model
