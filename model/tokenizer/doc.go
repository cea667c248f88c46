// Package tokenizer turns text into tokens and back, by the two schemes that models of
// the Llama family come with: SentencePiece's BPE with byte fallback, and the byte-level
// BPE of Hugging Face.
package tokenizer
