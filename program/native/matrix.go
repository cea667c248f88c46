package native

// Weights as model files store them.

// runWords is the number of words read in the time that a run of weights with one
// scale takes to begin.
const runWords = 16

// weightType is the storage format of weights.
type weightType uint8

const (
	typeF32 weightType = iota
	typeF16
	typeBF16
	typeQ8
	typeQ4
	typeI8
	typeQ41
	typeQ50
	typeQ51
	typeQ2K
	typeQ3K
	typeQ4K
	typeQ5K
	typeQ6K
	typeIQ4NL
	typeIQ4XS
	typeMXFP4
)

// inBlocks reports whether expandBlocks does a type.
func (t weightType) inBlocks() bool { return t > typeI8 }

// blocks are, for each type, the values of a block and its bytes.
var blocks = [...]struct{ values, bytes uint64 }{
	typeF32:  {1, 4},
	typeF16:  {1, 2},
	typeBF16: {1, 2},
	typeQ8:   {q8Values, q8Bytes},
	typeQ4:   {q4Values, q4Bytes},
	typeI8:   {1, 1},

	typeQ41:   {32, 20},
	typeQ50:   {32, 22},
	typeQ51:   {32, 24},
	typeQ2K:   {256, 84},
	typeQ3K:   {256, 110},
	typeQ4K:   {256, 144},
	typeQ5K:   {256, 176},
	typeQ6K:   {256, 210},
	typeIQ4NL: {32, 18},
	typeIQ4XS: {256, 136},
	typeMXFP4: {32, 17},
}

// alignment gives a shape the alignment that binding 0 has as blocks of a type.
func (s *shape) alignment(t weightType) {
	if blocks[t].bytes%2 == 0 {
		s.halves = 1 << 0
	} else {
		s.bytes = 1 << 0
	}
}

// matrix is the weights of a call: rows of cols values, or a table of them.
type matrix struct {
	t        weightType
	w        []byte
	scales   []float32 // of typeI8, one for each group of values
	group    uint64
	cols     uint64
	rowBytes uint64

	subnormals subnormals // of scales and what they make
}

// matrixOf is a matrix with rows of this many values. ok is false if they are not
// whole blocks.
func matrixOf(t weightType, w []byte, cols uint64) (m matrix, ok bool) {
	b := &blocks[t]
	return matrix{t: t, w: w, cols: cols, rowBytes: cols / b.values * b.bytes, subnormals: keep}, cols%b.values == 0
}

// expand makes dst the values of n rows from r on, which follow each other.
func (m *matrix) expand(dst []float32, r, n uint64) {
	dst = dst[:n*m.cols]
	switch w := m.w[r*m.rowBytes:][:n*m.rowBytes]; m.t {
	case typeF32:
		copy(dst, f32s(w))

	case typeF16:
		expandF16(dst, w)
	case typeBF16:
		expandBF16(dst, w)

	case typeQ8:
		expandQ8(dst, w)
	case typeQ4:
		expandQ4(dst, w)

	case typeI8:
		first, i := r*m.cols, uint64(0)
		if first%m.group == 0 {
			i = expandGroups(dst, w, m.scales[first/m.group:], m.group, m.subnormals)
		}
		for i < uint64(len(dst)) {
			at := (first + i) / m.group
			n := min(uint64(len(dst))-i, (at+1)*m.group-first-i)
			expandI8(dst[i:i+n], w[i:i+n], m.scales[at], m.subnormals)
			i += n
		}

	default:
		expandBlocks(m.t, dst, w, m.subnormals)
	}
}
