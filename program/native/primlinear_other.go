//go:build !amd64

package native

func rowsOnce() uint64                                                     { return 1 }
func vectorsOnce() uint64                                                  { return noTiles }
func direct(t weightType) bool                                             { return t == typeF32 }
func dotsF32(y, w, x []float32, add int)                                   { dotsF32Go(y, w, x, add) }
func dotsOf(weightType, []float32, []byte, []float32, int, int)            {}
func dotsI8([]float32, []byte, []float32, []float32, int, int)             {}
func dot1(w, x []float32) float32                                          { return dotGo(w, x) }
func tileF32([]float32, []float32, []float32, int, int, int)               {}
func expandF16(dst []float32, w []byte)                                    { expandF16Go(dst, w) }
func expandBF16(dst []float32, w []byte)                                   { expandBF16Go(dst, w) }
func expandQ4(dst []float32, w []byte)                                     { expandQ4Go(dst, w) }
func expandI8(dst []float32, w []byte, s float32, _ subnormals)            { expandI8Go(dst, w, s) }
func expandAtOnce(weightType, []float32, []byte) bool                      { return false }
func groupsDirect(group, cols uint64) bool                                 { return false }
func groupsAtOnce(uint64) bool                                             { return false }
func expandGroups([]float32, []byte, []float32, uint64, subnormals) uint64 { return 0 }

func expandScales(dst []float32, q []byte, scales *[16]float32, group int, _ subnormals) {
	expandScalesGo(dst, q, scales, group)
}

func expandOffsets(dst []float32, q []byte, scales, offsets *[16]float32, group int, _ subnormals) {
	expandOffsetsGo(dst, q, scales, offsets, group)
}
