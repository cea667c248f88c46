package zing_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel/zing"
)

func TestModules(t *testing.T) {
	module, err := os.ReadFile("../../examples/vecadd/vecadd.spv")
	require.NoError(t, err)
	g := newGuest(t, func(c *zing.Config) { c.Modules = map[string][]byte{"mine": module, "broken": module[:40]} })
	require.Contains(t, string(g.ctl(2, 0, payload("accel", "default")).bytes), `"module_registry":["preload","config","extension"]`)
	a, b, c := g.buffer(4, 0), g.buffer(4, 0), g.buffer(4, 0)
	g.write(a, 1)
	g.write(b, 2)
	run := func(module, kernel string) (string, float32) {
		s, trace := g.open("accel", 3, 0, submission(module, kernel, [3]int{1, 1, 1}, [3]int{256, 1, 1}, 0, 0, ref(a), ref(b), ref(c)))
		if trace != "" {
			return trace, 0
		}
		require.Equal(t, []byte{0}, g.all(s))
		return "", g.floats(c)[0]
	}
	trace, sum := run("mine", "main")
	require.Empty(t, trace)
	require.Equal(t, float32(3), sum)
	trace, _ = run("mine", "other")
	require.Equal(t, "t_accel_kernel_not_found", trace)
	trace, _ = run("broken", "main")
	require.Equal(t, "t_accel_launch_failed", trace)

	load := func(hint string) string {
		return string(g.all(g.must("accel.ext", 7, 0, payload("spirv", "0", module, hint)))[4:])
	}
	require.Equal(t, "hint", load("hint"))
	digest := load("")
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", digest)
	require.Equal(t, digest, load(""), "the same again")
	_, trace = g.open("accel.ext", 7, 0, payload("spirv", "0", append(bytes.Clone(module), 0, 0, 0, 0), "hint"))
	require.Equal(t, "t_ctl_bad_params", trace, "a name is taken once")
	trace, sum = run(digest, "main")
	require.Empty(t, trace)
	require.Equal(t, float32(3), sum)
	require.Equal(t, []byte{1}, g.all(g.must("accel.ext", 8, 0, payload("spirv", "0", digest))))
	trace, _ = run(digest, "main")
	require.Equal(t, "t_accel_kernel_not_found", trace)
	_, trace = g.open("accel.ext", 8, 0, payload("spirv", "0", "mine"))
	require.Equal(t, "t_cap_denied", trace)
}

func TestExtension(t *testing.T) {
	g := newGuest(t, nil)
	one := func(mode int, timeout uint32, params ...any) []byte {
		t.Helper()
		return g.all(g.must("accel.ext", mode, timeout, payload(append([]any{"spirv", "0"}, params...)...)))
	}
	require.Equal(t, payload(1), one(1, 0, 1))
	require.Equal(t, payload(2), one(1, 0, 2))
	require.Equal(t, payload(1), one(3, 0, 0))
	require.Equal(t, payload(2), one(3, 0, 1))
	require.Equal(t, []byte{0}, one(5, 1000, 1, 1, 1000), "never recorded: pending")

	spin := submission("capgpu", "spin", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, 300)
	g.must("accel", 3, 0, spin)
	require.Equal(t, []byte{1}, one(4, 0, 1, 1), "recorded behind the default queue's work")
	require.Equal(t, []byte{0}, one(5, 0, 1, 1, 1000))
	require.Equal(t, []byte{0}, one(5, 1000, 1, 1, 0))
	require.Equal(t, []byte{2}, one(5, 1000, 1, 1, 1))
	_, trace := g.open("accel", 4, 1, payload("spirv", "0", "1"))
	require.Equal(t, "t_ctl_timeout", trace)
	require.Equal(t, []byte{1}, one(5, 5000, 0, 1, 5000))
	require.Equal(t, []byte{1}, g.all(g.must("accel", 4, 5000, payload("spirv", "0", "1"))))

	src, dst := g.buffer(8, 0), g.buffer(12, 0)
	g.write(src, 7, 8)
	require.Equal(t, []byte{1}, one(6, 0, src, dst, uint64(8), 1), "a peer copy on one device")
	require.Equal(t, []float32{7, 8, 0}, g.floats(dst))

	require.Equal(t, []byte{1}, one(2, 0, 1))
	_, trace = g.open("accel.ext", 2, 0, payload("spirv", "0", 1))
	require.Equal(t, "t_accel_invalid_handle", trace)
	require.Equal(t, payload(3), one(1, 0, 0), "an id is never used again")
}
