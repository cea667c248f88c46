package gguf

import (
	"capgpu/model"
	"capgpu/model/quant"
)

// Files of q4_0 mostly have one matrix of q6_k: the classifier. The kernels have no
// such type, so Load converts it to q8_0: 30% larger, and in memory of its own.
//
// A block of q6_k is 256 elements in 210 bytes (ggml-quants.c, block_q6_K): the low four
// bits, the high two, a signed scale for each 16, and an F16 scale of all.
const (
	typeQ6K  = 14
	q6kPer   = 256
	q6kBytes = 210
)

// layoutOf returns how many elements of a type make how many bytes; ok is false for
// a type that is not supported.
func layoutOf(ggml uint32) (per, bytes uint64, ok bool) {
	if ggml == typeQ6K {
		return q6kPer, q6kBytes, true
	}
	t, ok := elementOf(ggml)
	p, b := t.Block()
	return uint64(p), uint64(b), ok
}

// fromQ6K converts a matrix of q6_k to q8_0. data has as many bytes as the shape
// requires.
func fromQ6K(data []byte, rows, cols int) (model.Tensor, error) {
	out := model.Tensor{Type: model.Q8_0, Rows: rows, Cols: cols}
	out.Data = make([]byte, 0, out.Bytes())
	row := make([]float32, cols)
	for range rows {
		for at := 0; at < cols; at += q6kPer {
			block := data[:q6kBytes]
			data = data[q6kBytes:]
			decodeQ6K((*[q6kBytes]byte)(block), row[at:][:q6kPer])
		}
		t, err := quant.Encode(model.Q8_0, 1, cols, 0, row)
		if err != nil {
			return out, err
		}
		out.Data = append(out.Data, t.Data...)
	}

	return out, nil
}

func decodeQ6K(b *[q6kBytes]byte, out []float32) {
	low, high, scales := b[:128], b[128:192], b[192:208]
	d := quant.FromF16(le.Uint16(b[208:]))
	for i := range q6kPer {
		half, k := i/128, i%128 // of 128 elements each; k/32 is which quarter
		l := low[half*64+k%64]
		if k >= 64 {
			l >>= 4
		}
		h := high[half*32+k%32] >> (k / 32 * 2) & 3
		q := int(l&15|h<<4) - 32
		out[i] = d * float32(int8(scales[i/16])) * float32(q)
	}
}
