package vulkan

import "encoding/binary"

// LoopLimitSource is the kernel of LoopLimit, in GLSL.
const LoopLimitSource = `#version 450
layout(local_size_x = 1) in;
layout(binding = 0) buffer B { uint rounds; uint wanted; };
void main() {
	uint n = 0u;
	for (uint i = 0u; i < wanted; i++) n += 1u + (i >> 31);
	rounds = n;
}`

// LoopLimit counts the rounds after which a driver silently ends a loop, as Mesa
// before 25 does; 0 if a loop of 200,000 rounds runs to its end. Module is
// LoopLimitSource, compiled.
func LoopLimit(p *Process, module []byte) (uint32, error) {
	const wanted = 200_000
	b := binary.LittleEndian.AppendUint32(make([]byte, 4), wanted)
	out, err := p.Run(&Job{SPIRV: module, Grid: [3]uint32{1, 1, 1}, Bindings: [][]byte{b}})
	if err != nil {
		return 0, err
	}
	if n := binary.LittleEndian.Uint32(out[0]); n != wanted {
		return n, nil
	}
	return 0, nil
}
