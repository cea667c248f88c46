package vec

import (
	"testing"

	"capgpu/program/spirv"
)

// The time of one call on 256 lanes: go test -run '^$' -bench . -benchtime 20ms
func BenchmarkLanes(b *testing.B) {
	const n = 256
	r := random()
	x, y, z, dst := words(r, n), words(r, n), words(r, n), make([]uint32, n)
	ones, mixed := make([]uint32, n), masks(r, n)
	Splat(ones, ^uint32(0))
	for i := range x { // usual numbers: denormals and NaNs cost more
		x[i], y[i], z[i] = fb(float64(i)*0.37-20), fb(float64(i)*0.11+3), fb(1/float64(i+1))
		mixed[i] = boolean(i%3 == 0)
	}

	mem := make([]byte, 1<<20)
	seq, same, row, any := make([]uint32, n), make([]uint32, n), make([]uint32, n), make([]uint32, n)
	Splat(same, 500)
	for i := range any {
		seq[i], row[i] = uint32(77+i), uint32(512*i)
		any[i] = uint32(r.IntN(len(mem) / 8))
	}

	long, longDst := longs(r, n), make([]uint64, n)

	type bench struct {
		name string
		make func() func()
	}

	var all []bench
	add := func(name string, f func()) { all = append(all, bench{name, func() func() { return f }}) }
	for _, op := range []spirv.Opcode{spirv.OpIAdd, spirv.OpIMul, spirv.OpUDiv, spirv.OpUMod, spirv.OpSDiv, spirv.OpShiftLeftLogical,
		spirv.OpBitwiseAnd, spirv.OpFAdd, spirv.OpFMul, spirv.OpFDiv, spirv.OpULessThan, spirv.OpSLessThan, spirv.OpFOrdLessThan} {
		all = append(all, bench{op.String()[2:], func() func() { f, _ := Binary(op); return func() { f(dst, x, y) } }})
		all = append(all, bench{op.String()[2:] + "/vs", func() func() { f, _, _ := BinaryS(op); return func() { f(dst, x, 33) } }})
	}

	for _, g := range []spirv.GLSL{spirv.GLSLFMin, spirv.GLSLNMax, spirv.GLSLSMin, spirv.GLSLPow} {
		all = append(all, bench{g.String(), func() func() { f, _ := GLSL2(g); return func() { f(dst, x, y) } }})
	}

	for _, op := range []spirv.Opcode{spirv.OpNot, spirv.OpFNegate, spirv.OpConvertFToS, spirv.OpConvertFToU, spirv.OpConvertSToF, spirv.OpConvertUToF} {
		all = append(all, bench{op.String()[2:], func() func() { f, _ := Unary(op); return func() { f(dst, x) } }})
	}

	for _, g := range []spirv.GLSL{spirv.GLSLFloor, spirv.GLSLSqrt, spirv.GLSLInverseSqrt, spirv.GLSLFSign, spirv.GLSLExp, spirv.GLSLLog,
		spirv.GLSLExp2, spirv.GLSLSin, spirv.GLSLCos, spirv.GLSLTanh} {
		all = append(all, bench{g.String(), func() func() { f, _ := GLSL1(g); return func() { f(dst, x) } }})
	}

	for _, g := range []spirv.GLSL{spirv.GLSLFClamp, spirv.GLSLFMix, spirv.GLSLFma} {
		all = append(all, bench{g.String(), func() func() { f, _ := GLSL3(g); return func() { f(dst, x, y, z) } }})
	}

	all = append(all, bench{"HalfToFloat", func() func() { f, _ := Convert(spirv.OpFConvert, 16, 32); return func() { f(dst, x) } }})
	all = append(all, bench{"FloatToHalf", func() func() { f, _ := Convert(spirv.OpFConvert, 32, 16); return func() { f(dst, x) } }})
	all = append(all, bench{"SConvert8To32", func() func() { f, _ := Convert(spirv.OpSConvert, 8, 32); return func() { f(dst, x) } }})
	all = append(all, bench{"IAddL", func() func() { f, _ := BinaryL(spirv.OpIAdd); return func() { f(longDst, long, long) } }})
	add("MulAdd", func() { MulAdd(dst, x, y, z) })
	add("MulAddS", func() { MulAddS(dst, x, fb(2), z) })
	add("Select", func() { Select(dst, mixed, x, y) })
	add("Blend", func() { Blend(dst, x, mixed) })
	add("Splat", func() { Splat(dst, 5) })
	add("Split", func() { Split(dst, y, mixed, ones) })
	add("All", func() { All(ones) })
	add("Same", func() { Same(same, nil) })
	add("AnyZero", func() { AnyZero(ones, ones) })
	for _, p := range []struct {
		name string
		idx  []uint32
	}{{"Seq", seq}, {"Same", same}, {"Row", row}, {"Random", any}} {
		add("Gather32/"+p.name, func() { Gather32(dst, p.idx, mem) })
		add("GatherMask/"+p.name, func() { GatherMask(dst, p.idx, mixed, mem) })
	}

	for _, p := range []struct {
		name string
		a    Affine
	}{
		{"Linear", Affine{At: 64, X: 4, Y: 64, Z: 1024, W: 16, H: 16}},
		{"RowOf16", Affine{X: 4, W: 16, H: 16}},
		{"SplatOf16", Affine{Y: 2048, W: 16, H: 16}},
		{"Rows", Affine{X: 2048, W: 256, H: 1}},
	} {
		add("LoadAffine32/"+p.name, func() { LoadAffine32(dst, mem, p.a) })
		add("StoreAffine32/"+p.name, func() { StoreAffine32(mem, p.a, x) })
	}

	tile := Affine{Y: 2048, W: 16, H: 16}
	line := Affine{X: 4, W: 16, H: 16}
	add("MulAddAffine", func() {
		if !MulAddAffine(dst, mem, tile, mem, line, z) {
			LoadAffine32(x, mem, tile)
			LoadAffine32(y, mem, line)
			MulAdd(dst, x, y, z)
		}
	})

	defer ForceGo(ForceGo(false))
	for _, t := range all {
		for _, slow := range []bool{true, false} {
			ForceGo(slow)
			f := t.make()
			name := t.name + "/asm"
			if slow {
				name = t.name + "/go"
			}
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					f()
				}
			})
		}
	}
}
