package native

import (
	"encoding/binary"
	"math"
)

// The functions of primlinear_amd64.go, in Go.

const (
	noTiles = math.MaxUint32 // vectors of a tile where there are none

	q4Values = 32
	q4Bytes  = 18
)

func dotsF32Go(y, w, x []float32, add int) {
	for r := range y {
		s := dotGo(w[r*len(x):][:len(x)], x)
		if add != 0 {
			s += y[r]
		}
		y[r] = s
	}
}

func expandF16Go(dst []float32, w []byte) {
	for i := range dst {
		dst[i] = f16(binary.LittleEndian.Uint16(w[2*i:]))
	}
}

func expandBF16Go(dst []float32, w []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(w[2*i:])) << 16)
	}
}

func expandQ4Go(dst []float32, w []byte) {
	for len(dst) > 0 {
		d := f16(binary.LittleEndian.Uint16(w))
		for j, b := range w[2:q4Bytes] {
			dst[j] = d * float32(int(b&15)-8)
			dst[j+q4Values/2] = d * float32(int(b>>4)-8)
		}
		dst, w = dst[q4Values:], w[q4Bytes:]
	}
}

func expandI8Go(dst []float32, w []byte, s float32) {
	for i := range dst {
		dst[i] = s * float32(int8(w[i]))
	}
}
