//go:build !amd64

package native

func fill(dst []uint32, v uint32)                                { fillGo(dst, v) }
func add(dst, a, b []float32)                                    { addGo(dst, a, b) }
func saxpy(dst, x []float32, a float32)                          { saxpyGo(dst, x, a) }
func scale(dst, x []float32, s float32)                          { scaleGo(dst, x, s) }
func scaleHeads(dst, x, total []float32, dim int)                { scaleHeadsGo(dst, x, total, dim) }
func scaleMul(dst, x, w []float32, s float32, _ subnormals)      { scaleMulGo(dst, x, w, s) }
func norm(dst, x, w, b []float32, mean, s float32, _ subnormals) { normGo(dst, x, w, b, mean, s) }
func rotate(dst, c, s []float32)                                 { rotateGo(dst, c, s) }
func rotateHalves(x, c, s []float32)                             { rotateHalvesGo(x, c, s) }
func expSum(dst, x []float32, sub float32) float32               { return expSumGo(dst, x, sub) }
func swiglu(dst, a, b []float32)                                 { swigluGo(dst, a, b) }
func sum(x []float32, _ subnormals) float32                      { return sumGo(x) }
func sumSquares(x []float32, mean float32, _ subnormals) float32 { return sumSquaresGo(x, mean) }
func largest(x []float32) float32                                { return largestGo(x) }
func findAbove(x []float32, t float32) int                       { return findAboveGo(x, t) }
func firstNumber(x []float32) int                                { return firstNumberGo(x) }
func dotRows(y, m, x []float32, stride int)                      { dotRowsGo(y, m, x, stride) }
func axpyRows(acc, m, p []float32, stride int)                   { axpyRowsGo(acc, m, p, stride) }
func dotRowsQ8(y []float32, w []byte, x []float32)               { dotRowsQ8Go(y, w, x) }
func expandQ8(dst []float32, w []byte)                           { expandQ8Go(dst, w) }
func tileCols() int                                              { return 32 }
func mostFlops() uint64                                          { return mostFlopsGo }
func assembly() bool                                             { return false }

func tile(rows, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, add int) int {
	gemm1x32Go(k, a, b, ldb, c, add)
	return 1
}
