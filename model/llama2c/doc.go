// Package llama2c reads and writes the checkpoints of llama2.c (its export.py and run.c),
// little-endian:
//
//	version 0  7 int32 of shape (a vocabulary below 0: classifier apart), float32 tensors
//	version 1  "ak42", version, shape, 1 byte: tied; 256 bytes in all; float32 tensors
//	version 2  the same and int32 group size; norms float32, matrices int8 with a float32
//	           scale for each group of elements, after each tensor's bytes
//
// Tensors are in the order of the format, the same tensor of all layers together. A
// file has no names for its parts, so errors use the names of run.c ("wq of layer
// 3"). The sum of all parts must be exactly the length of the file.
//
// Parameters that the format does not contain are llama2.c's: RMSNorm adds 1e-5,
// the base of the positions is 10,000, pairs are adjacent. The tables of angles in
// version 0 are skipped. The tokenizer is a file of its own: tokenizer.FromLlama2c,
// WriteTokenizer.
package llama2c
