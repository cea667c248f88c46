// Package tokenizer turns text into tokens and tokens into text.
//
//	tokenizer.json, tokenizer.bin, GGUF ─► Spec ─► New ─► Tokenizer
//	text ─► parts taken whole ─► pieces merged, the best pair first ─► tokens ─► Decoder ─► text
//
// A vocabulary comes from a file that nobody vouches for. New checks all of a Spec, and
// what it holds afterwards is in proportion to the Spec. The time of Encode is in
// proportion to the text, but for the logarithm of a heap and the longest piece: no text
// and no vocabulary make it quadratic. EncodeMost stops at a number of tokens, and refuses
// at once what must have more, as no token is of more text than MaxPieceBytes. A pattern runs on an automaton (package regexp),
// so none can blow up; what an automaton cannot do is refused by name.
//
// # Text is data
//
// A piece of kind Control is made from text in one case only: Encode.Special, or a Part
// that says so. Merging never makes one, whatever the file's merges say. So a text from
// outside, encoded without Special, cannot hold "<|eot_id|>" as a token, however it is
// spelled.
//
// Encoding and decoding give back the same text, if the vocabulary has all bytes and no
// normaliser changes the text, with one exception: SentencePiece writes a space as
// U+2581, so a U+2581 of the text comes back as a space.
package tokenizer
