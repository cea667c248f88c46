package tokenizer

import (
	"bytes"
	"encoding/binary"
	"math"

	"capgpu/gpuerr"
)

// FromLlama2c reads llama2.c's tokenizer.bin: the longest piece's length, then for each
// of vocab tokens a score (float32), a length (int32) and the text, little-endian
// (llama2.c run.c, build_tokenizer). Token 0 is unknown, 1 begins and 2 ends a text, the
// 256 bytes follow. Spaces are U+2581 in the Spec, as elsewhere.
func FromLlama2c(bin []byte, vocab int) (*Tokenizer, error) {
	if vocab < 1 || vocab > MaxVocab {
		return nil, gpuerr.New(gpuerr.Invalid, "tokenizer.bin: a vocabulary of %d is not within 1 to %d", vocab, MaxVocab)
	}
	if len(bin) < 4 {
		return nil, gpuerr.New(gpuerr.Invalid, "tokenizer.bin: %d bytes have no header", len(bin))
	}
	if most := (len(bin) - 4) / 8; vocab > most {
		return nil, gpuerr.New(gpuerr.Invalid, "tokenizer.bin: %d bytes have room for %d tokens, not %d", len(bin), most, vocab)
	}

	rest := bin[4:]
	s := Spec{
		Scheme: SentencePiece, Pieces: make([]Piece, vocab),
		BOS: -1, EOS: -1, EOT: -1, Unk: -1, SpacePrefix: true,
	}

	for i := range s.Pieces {
		if len(rest) < 8 {
			return nil, gpuerr.New(gpuerr.Invalid, "tokenizer.bin: ends before token %d of %d", i, vocab)
		}
		score := math.Float32frombits(binary.LittleEndian.Uint32(rest))
		size := int64(int32(binary.LittleEndian.Uint32(rest[4:])))
		rest = rest[8:]
		if size < 0 || size > MaxPiece || size > int64(len(rest)) {
			return nil, gpuerr.New(gpuerr.Invalid, "tokenizer.bin: token %d: a length of %d with %d bytes left", i, size, len(rest))
		}
		text := rest[:size]
		rest = rest[size:]
		s.Pieces[i] = Piece{Text: bytes.ReplaceAll(text, []byte(" "), []byte(space)), Score: score, Kind: llama2cKind(i, text)}
	}

	if len(rest) != 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "tokenizer.bin: %d bytes follow the last of %d tokens", len(rest), vocab)
	}

	s.Unk = 0
	if vocab > 2 {
		s.BOS, s.EOS, s.AddBOS = 1, 2, true
		s.Pieces[1].Text, s.Pieces[2].Text = []byte("<s>"), []byte("</s>")
	}

	return New(s)
}

// llama2cKind is the kind of a token in llama2.c, by its number.
func llama2cKind(i int, text []byte) Kind {
	switch {
	case i == 0:
		return Unknown
	case i < 3:
		return Control
	case i < 259:
		if _, ok := byteOf(text); ok {
			return Byte
		}
	}
	return Normal
}
