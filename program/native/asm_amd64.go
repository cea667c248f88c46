package native

import (
	"sync"

	"golang.org/x/sys/cpu"
)

// level is the instruction set in use; only tests change it.
var level = detect()

const (
	levelGo = iota
	levelAVX2
	levelAVX512
)

// assembly reports that the bodies run on it.
func assembly() bool { return level != levelGo }

func detect() int {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return levelGo
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL:
		return levelAVX2
	}
	return levelAVX512
}

// halves has the values of all halves, once fillHalves has been called.
var halves [1 << 16]float32

var fillHalves = sync.OnceFunc(func() {
	for h := range halves {
		halves[h] = f16(uint16(h))
	}
})

//go:noescape
func fillAVX2(dst []uint32, v uint32)

//go:noescape
func addAVX2(dst, a, b []float32)

//go:noescape
func saxpyAVX2(dst, x []float32, a float32)

//go:noescape
func scaleAVX2(dst, x []float32, s float32)

//go:noescape
func scaleHeadsAVX2(dst, x, total []float32, dim int)

//go:noescape
func scaleMulAVX2(dst, x, w []float32, s float32, subnormals subnormals)

//go:noescape
func normAVX2(dst, x, w, b []float32, mean, s float32, subnormals subnormals)

//go:noescape
func rotateAVX2(dst, c, s []float32)

//go:noescape
func expSumAVX2(dst, x []float32, sub float32) float32

//go:noescape
func swigluAVX2(dst, a, b []float32)

//go:noescape
func sumAVX2(x []float32, subnormals subnormals) float32

//go:noescape
func sumSquaresAVX2(x []float32, mean float32, subnormals subnormals) float32

//go:noescape
func maxAVX2(x []float32) float32

//go:noescape
func findAboveAVX2(x []float32, t float32) int

//go:noescape
func firstNumberAVX2(x []float32) int

//go:noescape
func dotRowsAVX2(y, m, x []float32, stride int)

//go:noescape
func dotRowsAVX512(y, m, x []float32, stride int)

//go:noescape
func axpyRowsAVX2(acc, m, p []float32, stride int)

//go:noescape
func dotRowsQ8AVX2(y []float32, w []byte, x []float32)

//go:noescape
func dotRowsQ8AVX512(y []float32, w []byte, x []float32)

//go:noescape
func expandQ8AVX2(dst []float32, w []byte)

//go:noescape
func gemm6x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)

//go:noescape
func gemm2x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)

//go:noescape
func gemm1x16AVX2(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)

//go:noescape
func gemm12x32AVX512(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)

//go:noescape
func gemm4x32AVX512(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)

//go:noescape
func gemm1x32AVX512(k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc int, add int)

//go:noescape
func dot16F32AVX512(y, w, x *float32, cols, groups, stride, add int)

//go:noescape
func dot1F32AVX512(w, x *float32, cols int) float32

//go:noescape
func tile4x4F32AVX512(y, w, x *float32, cols, quads, wstride, xstride, ystride, add int)

//go:noescape
func dot16F16AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16BF16AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q8AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q4AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q41AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q50AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q51AVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16IQ4NLAVX512(y *float32, w *byte, x *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q4KAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q5KAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)

//go:noescape
func dot16Q6KAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)

//go:noescape
func expandQ41AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ50AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ51AVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandIQ4NLAVX512(dst *float32, w *byte, blocks int)

//go:noescape
func expandQ4KAVX512(dst *float32, w *byte, scratch *float32, blocks int)

//go:noescape
func expandQ5KAVX512(dst *float32, w *byte, scratch *float32, blocks int)

//go:noescape
func expandQ6KAVX512(dst *float32, w *byte, scratch *float32, blocks int)

//go:noescape
func dot16IQ4XSAVX512(y *float32, w *byte, x, scratch *float32, cols, groups, stride, add int)

//go:noescape
func expandIQ4XSAVX512(dst *float32, w *byte, scratch *float32, blocks int)

//go:noescape
func dot16I8AVX512(y *float32, w *byte, s, x *float32, group, groups, wstride, sstride, add int)

//go:noescape
func dot8F32AVX2(y, w, x *float32, cols, groups, stride, add int)

//go:noescape
func dot1F32AVX2(w, x *float32, cols int) float32

//go:noescape
func tile4x2F32AVX2(y, w, x *float32, cols, quads, wstride, xstride, ystride, add int)

//go:noescape
func expandF16AVX2(dst []float32, w []byte)

//go:noescape
func expandBF16AVX2(dst []float32, w []byte)

//go:noescape
func expandQ4AVX2(dst []float32, w []byte)

//go:noescape
func expandI8AVX2(dst []float32, w []byte, s float32, subnormals subnormals)

//go:noescape
func rotateHalvesAVX2(x, c, s []float32)

//go:noescape
func scoresAVX512(dst, query, k *float32, places *uint64, runs, width, dim, groups, each, pitch int)

//go:noescape
func valuesAVX512(sums, weights, v *float32, places *uint64, n, width, dim, groups, each, pitch int)

//go:noescape
func weighAVX512(w *float32, n, heads, pitch int, most, sum *float32)

//go:noescape
func swigluAVX512(dst, a, b []float32)

//go:noescape
func dot16I8SmallAVX512(y *float32, w *byte, s, x *float32, cols, shift, sstride, add int)

//go:noescape
func expandI8GroupsAVX2(dst []float32, w []byte, s *float32, group int, subnormals subnormals)

//go:noescape
func expandI8OffsetsAVX2(dst []float32, w []byte, s, o *float32, group int, subnormals subnormals)

//go:noescape
func expandI8SmallAVX2(dst []float32, w []byte, s *float32, shift int, subnormals subnormals)

//go:noescape
func expandF16AVX512(dst []float32, w []byte)

//go:noescape
func expandBF16AVX512(dst []float32, w []byte)

//go:noescape
func expandQ8AVX512(dst []float32, w []byte)

//go:noescape
func expandQ4AVX512(dst []float32, w []byte)

// RestoreFloats makes the thread treat subnormal numbers as Go does. A caller that
// recovers from a memory fault in a Run calls it at once, on the thread of the
// fault (runtime.LockOSThread, before the Run), because the interrupted assembly
// did not reach its own restore.
//
//go:noescape
func RestoreFloats()
