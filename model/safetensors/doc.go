// Package safetensors reads and writes models as Hugging Face keeps them: a folder with
//
//	config.json                      the shape, of the classes of model.Arch
//	model.safetensors                tensors of F32, F16 and BF16
//	model.safetensors.index.json     with several files: which tensor is in which
//	tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json
//
// A safetensors file is the length of its header (64 bits, little-endian), the
// header in JSON (type, shape and place of each tensor by its name) and the
// tensors' bytes (https://huggingface.co/docs/safetensors). Header and
// configuration are copied before they are read; tensors stay in the mapped file.
// Every place is checked against the size of the file, and no two tensors may share
// a byte.
//
// Queries and keys are in the order for heads in halves (model.RopeHalves).
// Unsupported features that would change the result (experts, quantisation, other
// ways to stretch the positions, an unknown tensor) are refused by name.
package safetensors
