package kernelgen_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/bench/glsl"
	"capgpu/bench/kernelgen"
)

func options(seed uint64) kernelgen.Options {
	if seed%5 == 4 {
		return kernelgen.Options{Survey: 1 + int(seed), Wide: true}
	}
	return kernelgen.Options{Subgroup: seed%4 == 1, Wide: seed%4 == 2, Narrow: seed%4 == 3}
}

func TestDeterministic(t *testing.T) {
	for seed := range uint64(50) {
		a, b := kernelgen.Generate(seed, options(seed)), kernelgen.Generate(seed, options(seed))
		require.Equal(t, a.Source(), b.Source())
		require.Equal(t, a.Bindings, b.Bindings)
	}
	require.NotEqual(t, kernelgen.Generate(1, kernelgen.Options{}).Source(), kernelgen.Generate(2, kernelgen.Options{}).Source())
}

func TestOpenCL(t *testing.T) {
	glslOnly := regexp.MustCompile(`\b(?:[biu]?vec[234]|u64vec\d|inout|out|u?int64_t|gl_LocalInvocationIndex|barrier\(\))\W|\$|#\[`)
	for seed := range uint64(50) {
		k := kernelgen.Generate(seed, options(seed))
		c, ok := k.OpenCL()
		require.Equal(t, !k.Options.Subgroup, ok)
		if !ok {
			continue
		}
		require.Empty(t, glslOnly.FindString(c.Source), "seed %d", seed)
		for i, b := range c.Back(c.Bindings) {
			require.Equal(t, k.Bindings[i], b, "seed %d binding %d", seed, i)
		}
		again, _ := k.OpenCL()
		require.Equal(t, c.Source, again.Source)
	}
}

func TestCompiles(t *testing.T) {
	if err := glsl.Available(); err != nil {
		t.Skip(err)
	}
	for seed := range uint64(16) {
		k := kernelgen.Generate(seed, options(seed))
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			module, err := glsl.Compile(k.Source())
			require.NoError(t, err)
			module, err = glsl.Exact(module)
			require.NoError(t, err)
			require.NoError(t, glsl.Validate(module))
		})
	}
}
