package native

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/library/librarytest"
)

// linearNames are the programs by the type of their weights.
var linearNames = [...]string{
	typeF32: "linear_f32", typeF16: "linear_f16", typeBF16: "linear_bf16",
	typeQ8: "linear_q8_0", typeQ4: "linear_q4_0", typeI8: "linear_i8",
	typeQ41: "linear_q4_1", typeQ50: "linear_q5_0", typeQ51: "linear_q5_1", typeQ2K: "linear_q2_k", typeQ3K: "linear_q3_k",
	typeQ4K: "linear_q4_k", typeQ5K: "linear_q5_k", typeQ6K: "linear_q6_k", typeIQ4NL: "linear_iq4_nl", typeIQ4XS: "linear_iq4_xs",
}

// layer is a linear layer with weights of a type, to be called with any batch.
type layer struct {
	t          weightType
	rows, cols int
	group      int
	w          []byte
	scales     []float32
}

func newLayer(r *rand.Rand, t weightType, rows, cols, group int) *layer {
	l := &layer{t: t, rows: rows, cols: cols, group: group}
	b := blocks[t]
	l.w = make([]byte, uint64(rows*cols)/b.values*b.bytes)
	for i := range l.w {
		l.w[i] = byte(r.Uint32())
	}

	switch t {
	case typeF32:
		for i, f := 0, f32s(l.w); i < len(f); i++ {
			f[i] = 2*r.Float32() - 1
		}

	case typeF16: // below 2
		for i := 1; i < len(l.w); i += 2 {
			l.w[i] &= 0xbf
		}

	case typeBF16:
		for i := 0; i < len(l.w); i += 2 {
			binary.LittleEndian.PutUint16(l.w[i:], uint16(math.Float32bits(2*r.Float32()-1)>>16))
		}

	case typeQ8, typeQ4: // scales below 1/64
		for i := 1; i < len(l.w); i += int(b.bytes) {
			l.w[i] &= 0xa3
		}

	case typeI8:
		l.scales = make([]float32, (rows*cols+group-1)/group)
		for i := range l.scales {
			l.scales[i] = r.Float32() / 128
		}

	default:
		packed := librarytest.BlockTypes[linearNames[t][len("linear_"):]]
		for at := 0; at < len(l.w); at += int(b.bytes) {
			block := packed.Draw(r)
			packed.Shrink(block, 5)
			copy(l.w[at:], block)
		}
	}

	return l
}

// call is the layer with rows of x; y has room for stride elements of each.
func (l *layer) call(x, y []float32, batch, add, stride, at int) *Call {
	c := &Call{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Block: program.Dim3{X: 256, Y: 1, Z: 1}}
	c.Bindings = [][]byte{l.w, bytesOf(x), bytesOf(y)}
	words := []uint32{uint32(l.rows), uint32(l.cols), uint32(batch), uint32(add), uint32(stride), uint32(at)}
	if l.t == typeI8 {
		c.Bindings = [][]byte{l.w, bytesOf(l.scales), bytesOf(x), bytesOf(y)}
		words = append(words, uint32(l.group))
	}
	c.Inline = inlineOf(words)
	return c
}

func (l *layer) String() string {
	return fmt.Sprintf("%s %dx%d/%d", linearNames[l.t], l.rows, l.cols, l.group)
}

func (l *layer) body() *Body { return bodies[linearNames[l.t]] }

// expanded is the layer with the same weights as f32.
func (l *layer) expanded() *layer {
	m, _ := matrixOf(l.t, l.w, uint64(l.cols))
	m.scales, m.group = l.scales, uint64(l.group)
	values := make([]float32, l.rows*l.cols)
	for r := range l.rows {
		m.expand(values[r*l.cols:], uint64(r), 1)
	}
	return &layer{t: typeF32, rows: l.rows, cols: l.cols, w: bytesOf(values)}
}

// layers are of all types and many shapes.
func layers(r *rand.Rand) (all []*layer) {
	for t := range linearNames {
		t := weightType(t)
		sizes := [][2]int{{1, 32}, {3, 64}, {16, 32}, {17, 96}, {40, 352}, {64, 4128}, {21, 16416}}
		if blocks[t].values == 256 {
			sizes = [][2]int{{3, 256}, {17, 768}, {40, 512}}
		} else if t.inBlocks() {
			sizes = [][2]int{{3, 64}, {17, 96}, {40, 352}}
		}
		for _, size := range sizes {
			all = append(all, newLayer(r, t, size[0], size[1], 32))
		}
		if b := blocks[t]; b.values == 1 {
			for _, size := range [][3]int{{5, 1, 1}, {18, 7, 4}, {64, 172, 4}, {33, 17, 64}, {16, 48, 16}, {2, 32768, 48},
				{19, 43, 1}, {16, 30, 2}, {40, 104, 8}, {20, 56, 4}, {24, 96, 12}, {17, 40, 24}, {18, 12, 8}} {
				all = append(all, newLayer(r, t, size[0], size[1], size[2]))
			}
		}
	}
	return all
}

// TestARowIsTheSameInAnyBatch: a row's result is the same with any others in the
// batch, at any place and for any division of the call; and the type of the weights
// changes no bits beyond their values.
func TestARowIsTheSameInAnyBatch(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(71, 72))
		for _, l := range layers(r) {
			for _, batch := range []int{2, 3, 4, 7, 13, 67} {
				if l.cols > 4000 && batch > 13 || l.t.inBlocks() && (batch%2 == 0 || raceEnabled && batch != 7) {
					continue
				}

				add, at := r.IntN(2), r.IntN(3)
				stride := l.rows + r.IntN(3)
				x, y := make([]float32, batch*l.cols), make([]float32, batch*stride+at)
				for i := range x {
					x[i] = 2*r.Float32() - 1
				}

				for i := range y {
					y[i] = float32(r.NormFloat64())
				}

				before := append([]float32(nil), y...)
				want := append([]float32(nil), y...)
				for b := range batch {
					one := want[b*stride:][:at+l.rows]
					require.True(t, whole(t, l.body(), l.call(x[b*l.cols:][:l.cols], one, 1, add, 0, at)), l)
				}

				what := fmt.Sprint(l, " batch ", batch)
				require.True(t, whole(t, l.body(), l.call(x, y, batch, add, stride, at)), what)
				require.True(t, bytes.Equal(bytesOf(want), bytesOf(y)), what)
				cut := append([]float32(nil), before...)
				inPieces(t, r, l.body(), l.call(x, cut, batch, add, stride, at))
				require.True(t, bytes.Equal(bytesOf(want), bytesOf(cut)), what)
				same, e := append([]float32(nil), before...), l.expanded()
				require.True(t, whole(t, e.body(), e.call(x, same, batch, add, stride, at)), what)
				require.True(t, bytes.Equal(bytesOf(want), bytesOf(same)), what)
			}
		}
	})
}

func BenchmarkLinear(b *testing.B) {
	for t := range linearNames {
		t := weightType(t)
		for _, size := range [][3]int{{128, 64, 1}, {64, 64, 1}, {344, 64, 1}, {64, 172, 1}, {512, 64, 1}, {512, 64, 8}, {512, 64, 32},
			{864, 288, 1}, {32000, 288, 1}, {864, 288, 2}, {864, 288, 4}, {864, 288, 32}, {288, 768, 32}, {4096, 4096, 1}, {1024, 4096, 32}} {
			if uint64(size[1])%blocks[t].values != 0 {
				continue
			}

			group := 32
			if size[1]%32 != 0 {
				group = 4
			}

			r := rand.New(rand.NewPCG(1, 2))
			l := newLayer(r, t, size[0], size[1], group)
			batch := size[2]
			x, y := make([]float32, batch*l.cols), make([]float32, batch*l.rows)
			c := l.call(x, y, batch, 0, l.rows, 0)
			b.Run(fmt.Sprintf("%s/%dx%dx%d", linearNames[t], size[0], size[1], batch), func(b *testing.B) {
				n, ok := l.body().Items(c)
				require.True(b, ok)
				said, _ := l.body().Nanos(c)
				b.SetBytes(int64(len(l.w) + 4*len(l.scales)))
				for b.Loop() {
					l.body().Run(c, 0, n)
				}
				b.ReportMetric(float64(said), "said-ns")
			})
		}
	}
}
