package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// interesting are the values on which operations differ.
var interesting = []uint32{
	0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
	0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFE0, 0x00FFFFFF, 0x01000001,
	0x3F800000, 0xBF800000, 0x3F000000, 0xBF000000, 0x3FC00000, 0x40200000, 0x3F7FFFFF, 0x3F800001, // ±1, ±0.5, 1.5, 2.5
	0x4B000000, 0x4B000001, 0x4AFFFFFF, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0xCF000001, 0x4F7FFFFF, 0x4F800000, 0xCF800000,
	0x00000001, 0x007FFFFF, 0x00800000, 0x80000001, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, // denormals, the greatest
	0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FC12345, 0xFF812345, // infinities, NaNs
	0x33000000, 0x33000001, 0x32FFFFFF, 0x477FEFFF, 0x477FF000, 0x38800000, 0x387FC000, 0x387FE000, 0x33800000, // about halves
	0x40490FDB, 0x42B17218, 0xC2CFF1B5, 0x3EAAAAAB, 0xB0000000, 0x41200000,
}

func wordOf(r *rand.Rand) uint32 {
	switch r.IntN(4) {
	case 0:
		return interesting[r.IntN(len(interesting))]
	case 1:
		return math.Float32bits(float32(r.NormFloat64() * 100))
	case 2:
		return uint32(r.IntN(80)) - 8
	}
	return r.Uint32()
}

func longOf(r *rand.Rand) uint64 {
	switch r.IntN(5) {
	case 0:
		return math.Float64bits(float64(math.Float32frombits(interesting[r.IntN(len(interesting))])))
	case 1:
		return math.Float64bits(r.NormFloat64() * 1000)
	case 2:
		return uint64(r.IntN(140)) - 10
	case 3:
		return uint64(wordOf(r))<<32 | uint64(wordOf(r))
	}
	return r.Uint64()
}

func words(r *rand.Rand, n int) []uint32 {
	s := make([]uint32, n)
	for i := range s {
		s[i] = wordOf(r)
	}
	return s
}

func longs(r *rand.Rand, n int) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = longOf(r)
	}
	return s
}

func masks(r *rand.Rand, n int) []uint32 {
	s := make([]uint32, n)
	p := r.IntN(5) // none … all
	for i := range s {
		if r.IntN(4) < p {
			s[i] = math.MaxUint32
		}
	}
	return s
}

// both runs f with the loops in Go, and with the assembly if there is any.
func both(t *testing.T, f func(t *testing.T)) {
	defer ForceGo(ForceGo(true))
	t.Run("go", f)
	ForceGo(false)
	if !hasFast {
		t.Log("no assembly for this processor")
		return
	}
	t.Run("assembly", f)
}

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// same32 compares lanes; exact false lets any NaN stand for any other.
func same32(exact bool, a, b uint32) bool {
	return a == b || !exact && nan(a) && nan(b)
}

func nan(x uint32) bool { f := math.Float32frombits(x); return f != f }

func nanL(x uint64) bool { f := math.Float64frombits(x); return f != f }

// equal is require.Equal for one lane: there are many.
func equal[T comparable](t *testing.T, want, got T, format string, args ...any) {
	if want != got {
		t.Helper()
		t.Fatalf("%v, not %v: "+format, append([]any{got, want}, args...)...)
	}
}
