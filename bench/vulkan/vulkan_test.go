package vulkan_test

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/glsl"
	"capgpu/bench/vulkan"
	"capgpu/engine/vk"
)

func TestMain(m *testing.M) {
	vulkan.Main()
	os.Exit(m.Run())
}

func open(t *testing.T) *vulkan.Process {
	t.Helper()
	if err := glsl.Available(); err != nil {
		t.Skip(err)
	}
	driver, err := vk.System()
	if err != nil {
		t.Skip(err)
	}
	p, err := vulkan.Open(driver)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func compile(t *testing.T, source string) []byte {
	t.Helper()
	module, err := glsl.Compile(source)
	require.NoError(t, err)
	return module
}

func words(v ...uint32) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

const scale = `#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 4) const uint add = 1u;
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 2) buffer B { uint b[]; };
layout(push_constant) uniform P { uint by; };
shared uint s[4];
void main() {
	uint i = gl_LocalInvocationID.x;
	s[i] = a[i];
	barrier();
	b[gl_GlobalInvocationID.x] = s[3u - i] * by + add;
}`

func TestRun(t *testing.T) {
	p := open(t)
	d := p.Device()
	require.True(t, d.CPU)
	require.NotEmpty(t, d.Driver)
	require.GreaterOrEqual(t, d.SharedBytes, uint32(16<<10))
	require.GreaterOrEqual(t, d.SubgroupSize, uint32(4))

	in := [][]byte{words(1, 2, 3, 4), nil, make([]byte, 40)}
	out, err := p.Run(&vulkan.Job{
		SPIRV: compile(t, scale), Grid: [3]uint32{2, 1, 1}, Inline: words(10),
		Constants: []vulkan.Constant{{ID: 0, Value: 4, Bytes: 4}, {ID: 4, Value: 7, Bytes: 4}},
		Bindings:  in,
	})
	require.NoError(t, err)
	require.Equal(t, words(47, 37, 27, 17, 47, 37, 27, 17, 0, 0), out[2])
	require.Equal(t, in[0], out[0])
	require.Equal(t, make([]byte, 40), in[2], "the job's own buffers stay as they were")
}

// A job that the driver refuses, and one that kills it, affects no other job.
func TestTroubleStaysInTheChild(t *testing.T) {
	p := open(t)
	good := &vulkan.Job{
		SPIRV: compile(t, scale), Grid: [3]uint32{1, 1, 1}, Inline: words(1),
		Constants: []vulkan.Constant{{ID: 0, Value: 4, Bytes: 4}},
		Bindings:  [][]byte{words(1, 2, 3, 4), nil, make([]byte, 16)},
	}

	endless := &vulkan.Job{
		SPIRV: compile(t, `#version 450
			layout(local_size_x = 1) in;
			layout(binding = 0) buffer B { uint b[]; };
			void main() { for (;;) { for (uint i = 0; i < 60000; i++) atomicAdd(b[0], i & b[1]); if (b[1] == 9) return; } }`),
		Grid: [3]uint32{60000, 60000, 1}, Bindings: [][]byte{words(0, 1)}, Timeout: 300 * time.Millisecond,
	}

	start := time.Now()
	_, err := p.Run(endless)
	require.ErrorIs(t, err, vulkan.ErrTimeout)
	require.Less(t, time.Since(start), 10*time.Second)

	_, err = p.Run(&vulkan.Job{SPIRV: []byte{1, 2, 3}, Grid: [3]uint32{1, 1, 1}})
	require.Error(t, err)
	noise := make([]byte, 400)
	copy(noise, good.SPIRV[:60])
	_, err = p.Run(&vulkan.Job{SPIRV: noise, Grid: [3]uint32{1, 1, 1}})
	require.Error(t, err)

	out, err := p.Run(good)
	require.NoError(t, err)
	require.Equal(t, words(5, 4, 3, 2), out[2])
}

// Mesa before 25 silently ends every loop after 65535 rounds. Compared kernels stay
// below that; this reports which drivers do it.
func TestLongLoops(t *testing.T) {
	p := open(t)
	n, err := vulkan.LoopLimit(p, compile(t, vulkan.LoopLimitSource))
	require.NoError(t, err)
	if n == 0 {
		t.Logf("%s: loops run to their end", p.Device().Driver)
	} else {
		t.Logf("%s: loops end after %d rounds", p.Device().Driver, n)
		require.GreaterOrEqual(t, n, uint32(65535), "our kernels loop up to 65535 times")
	}
}

func TestUnpackedNeedsAPackage(t *testing.T) {
	_, err := vk.Unpacked(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}
