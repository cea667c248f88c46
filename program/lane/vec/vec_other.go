//go:build !amd64

package vec

import "capgpu/program/spirv"

const hasFast = false

var accelerated = false

var (
	unaryFast       map[spirv.Opcode]Op1
	unaryFastGLSL   map[spirv.GLSL]Op1
	binaryFast      map[spirv.Opcode]forms
	compareFast     map[spirv.Opcode]forms
	binaryFastGLSL  map[spirv.GLSL]forms
	binaryLFast     map[spirv.Opcode]formsL
	ternaryFastGLSL map[spirv.GLSL]Op3
)

// Never called: accelerated is false.

func orAVX2(dst, a, b []uint32)                                                             {}
func selectAVX2(dst, a, b, c []uint32)                                                      {}
func splatAVX2(dst []uint32, s uint32)                                                      {}
func splitAVX2(yes, no, cond, mask []uint32) (anyYes, anyNo bool)                           { return false, false }
func firstAVX2(mask []uint32) int                                                           { return -1 }
func firstZeroAVX2(a []uint32) int                                                          { return -1 }
func firstZeroOnAVX2(a, mask []uint32) int                                                  { return -1 }
func mulAddAVX2(dst, a, b, c []uint32)                                                      {}
func mulAddSAVX2(dst, a []uint32, s uint32, c []uint32)                                     {}
func gather32AVX2(dst, idx []uint32, mem []byte) int                                        { return -1 }
func gatherMaskAVX2(dst, idx, mask []uint32, mem []byte) int                                { return -1 }
func sext8AVX2(dst, a []uint32)                                                             {}
func sext16AVX2(dst, a []uint32)                                                            {}
func halfToFloatAVX2(dst, a []uint32)                                                       {}
func floatToHalfAVX2(dst, a []uint32)                                                       {}
func copyRowsAVX2(dst []uint32, mem []byte, at, step, w int)                                {}
func splatRowsAVX2(dst []uint32, mem []byte, at, step, w int)                               {}
func gatherRowsAVX2(dst []uint32, mem []byte, at, x, step, w int, shift, keep uint32)       {}
func uncopyRowsAVX2(mem []byte, at, step, w int, src []uint32)                              {}
func udivByAVX2(dst, a []uint32, c uint64)                                                  {}
func umodByAVX2(dst, a []uint32, c uint64, s uint32)                                        {}
func sdivByAVX2(dst, a []uint32, c uint64, s uint32)                                        {}
func sremByAVX2(dst, a []uint32, c uint64, s uint32)                                        {}
func sameAVX2(a []uint32) bool                                                              { return false }
func mulAddRowsAVX2(dst, c []uint32, p []byte, pAt, pStep int, q []byte, qAt, qStep, w int) {}
func uncopyRowsMaskAVX2(mem []byte, at, step, w int, src, mask []uint32)                    {}
func blendSAVX2(dst []uint32, s uint32, mask []uint32)                                      {}
