package glsl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/bench/glsl"
)

const source = `#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 7) const float s = 2.0;
layout(binding = 0) buffer A { float a[]; };
void main() { uint i = gl_GlobalInvocationID.x; a[i] = a[i] * s + a[i + 1]; }`

func TestExact(t *testing.T) {
	if err := glsl.Available(); err != nil {
		t.Skip(err)
	}

	module, err := glsl.Compile(source)
	require.NoError(t, err)
	ids, err := glsl.SpecIDs(module)
	require.NoError(t, err)
	require.ElementsMatch(t, []uint32{0, 7}, ids)
	exact, err := glsl.Exact(module)
	require.NoError(t, err)
	require.Len(t, exact, len(module)+2*12, "a decoration for the product and one for the sum")
	require.NoError(t, glsl.Validate(exact))
	_, err = glsl.Optimise(exact)
	require.NoError(t, err)
	_, err = glsl.Compile("#version 450\nvoid main() { x }")
	require.ErrorContains(t, err, "x")
}

func TestExactRefusesNoise(t *testing.T) {
	for _, b := range [][]byte{nil, {1, 2, 3}, make([]byte, 40), append([]byte{3, 2, 0x23, 7}, make([]byte, 20)...)} {
		_, err := glsl.Exact(b)
		require.Error(t, err)
		_, err = glsl.SpecIDs(b)
		require.Error(t, err)
	}
}
