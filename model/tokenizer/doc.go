// Package tokenizer turns text into tokens and tokens into text.
//
//	tokenizer.json, tokenizer.bin, GGUF ─► Spec ─► New ─► Tokenizer
//	text ─► parts taken whole ─► pieces merged, the best pair first ─► tokens ─► Decoder ─► text
//
// The file of a vocabulary is not trusted. New checks all of a Spec, and the memory
// of the result is in proportion to the Spec. The time of Encode is in proportion
// to the text, times the logarithm of a heap and the longest piece: no text and no
// vocabulary make it quadratic. EncodeMost stops at a number of tokens, and refuses
// at once a text that must have more, because no token stands for more text than
// MaxPieceBytes. A pattern runs on an automaton (package regexp), so none can blow
// up; features that an automaton lacks are refused by name.
//
// # Text is data
//
// Text becomes a piece of kind Control only with Encode.Special, or in a Part with
// Special. Merging never makes one, whatever the file's merges say. A text from
// outside, encoded without Special, therefore cannot contain "<|eot_id|>" as a
// token, however it is spelled.
//
// Encoding and decoding give back the same text, if the vocabulary has all bytes and no
// normaliser changes the text, with one exception: SentencePiece writes a space as
// U+2581, so a U+2581 of the text comes back as a space.
package tokenizer
