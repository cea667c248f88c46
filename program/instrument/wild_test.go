package instrument_test

import (
	"encoding/binary"
	"math/rand/v2"

	"capgpu/program"
	"capgpu/program/lane/lanetest"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// guards are instructions by which random programs keep indices, divisors and
// amounts in range, all with two operands of the result's type.
var guards = map[spirv.Opcode]bool{spirv.OpBitwiseAnd: true, spirv.OpUMod: true}

// wilder takes away some of a program's guards and cuts its bindings, so that it
// traps more often than not. It returns nil if the verifier does not admit that.
func wilder(rng *rand.Rand, c *lanetest.Case, p *verify.Program) *verify.Program {
	module := make([]byte, 0, 4*len(p.Module.Words))
	words := append([]uint32(nil), p.Module.Words...)
	one := 1 + rng.IntN(24)
	for _, f := range p.Module.Functions {
		for _, b := range f.Blocks {
			for k := range b.Insts {
				if in := &b.Insts[k]; guards[in.Op] && rng.IntN(one) == 0 {
					at := in.Off / 4
					words[at] = words[at]&^0xFFFF | uint32(spirv.OpBitwiseXor)
				}
			}
		}
	}

	for _, w := range words {
		module = binary.LittleEndian.AppendUint32(module, w)
	}
	bundle, err := program.Encode(module, c.Manifest)
	if err != nil {
		return nil
	}
	q, err := verify.Admit(bundle, verify.DefaultLimits())
	if err != nil {
		return nil
	}

	for k, b := range c.Launch.Bindings {
		switch rng.IntN(10) {
		case 0:
			c.Launch.Bindings[k] = b[:rng.IntN(len(b)+1)]
		case 1:
			c.Launch.Bindings[k] = b[:max(len(b)-rng.IntN(40), 0)]
		}
	}
	return q
}
