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

func mulAddFast(dst, a, b, c []uint32)                       {}
func mulAddSFast(dst, a []uint32, s uint32, c []uint32)      {}
func sext8Fast(dst, a []uint32)                              {}
func sext16Fast(dst, a []uint32)                             {}
func halfToFloatFast(dst, a []uint32)                        {}
func floatToHalfFast(dst, a []uint32)                        {}
func andFast(dst, a, b []uint32)                             {}
func orFast(dst, a, b []uint32)                              {}
func andNotFast(dst, a, b []uint32)                          {}
func selectFast(dst, cond, a, b []uint32)                    {}
func blendFast(dst, src, mask []uint32)                      {}
func splatFast(dst []uint32, s uint32)                       {}
func anyFast(mask []uint32) bool                             { return false }
func allFast(mask []uint32) bool                             { return false }
func gather32Fast(dst, idx []uint32, mem []byte) int         { return -1 }
func gatherMaskFast(dst, idx, mask []uint32, mem []byte) int { return -1 }
func outsideFast(idx []uint32, n uint64) int                 { return -1 }
func loadSeq32Fast(dst []uint32, mem []byte)                 {}
func storeSeq32Fast(mem []byte, src []uint32)                {}
