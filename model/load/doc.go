// Package load opens the file of a model, whatever its format.
//
//	"GGUF" at the beginning                  package gguf
//	a folder with config.json, or a file
//	of one: *.safetensors, its index         package safetensors
//	anything else                            package llama2c, and a tokenizer beside it
//
// The tensors of the File are in the mapped files; read them by mapped.Copy.
package load
