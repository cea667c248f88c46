package instrument_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/lane"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
	"capgpu/program/verify"
)

// accepted instruments a program, and has the result verified by ours and by
// Khronos's verifier.
func accepted(t testing.TB, p *verify.Program) *instrument.Program {
	t.Helper()
	i, err := instrument.Instrument(p)
	require.NoError(t, err)
	again(t, p, i)
	if _, err := exec.LookPath("spirv-val"); err != nil {
		t.Log("SKIPPED: spirv-val is not here; install Debian's spirv-tools")
		return i
	}
	require.Empty(t, spirvVal(t, i.Module))
	return i
}

// blocks are workgroups of one, two and three dimensions.
var blocks = []program.Dim3{{X: 64, Y: 1, Z: 1}, {X: 1, Y: 1, Z: 1}, {X: 8, Y: 4, Z: 2}, {X: 33, Y: 1, Z: 1}}

// TestLibrary: the kernels of the library, instrumented, do what they do plain, and
// record the traps that the engine has.
func TestLibrary(t *testing.T) {
	for _, name := range library.Names() {
		t.Run(name, func(t *testing.T) {
			data, _ := library.Bundle(name)
			p, err := verify.Admit(data, verify.DefaultLimits())
			require.NoError(t, err)
			i := accepted(t, p)
			t.Logf("%d bytes, %d before", len(i.Module), 4*len(p.Module.Words))
			if name == "spin" {
				return
			}

			rng := rand.New(rand.NewPCG(7, uint64(len(name))))
			trapped := 0
			for _, c := range append(librarytest.Cases(name, rng, 4), librarytest.Traps(name)...) {
				if !c.Traps && size(c.Bindings) > 64<<10 {
					continue
				}
				o := lane.Options{Block: p.Info.Block}
				if p.Info.BlockFree {
					o.Block = blocks[rng.IntN(len(blocks))]
				}

				l := &lane.Launch{Grid: c.Natural(), Bindings: c.Bindings, Inline: c.Inline}
				v, err := difference(t, p, o, l, 1<<20)
				require.NoError(t, err, c.Name)
				require.False(t, v.long || v.dirty, "%s: %+v", c.Name, v)
				require.Equal(t, c.Traps, v.trapped, c.Name)
				require.Equal(t, v.trapped, v.same && v.trapped, "%s: %+v", c.Name, v)
				if c.Traps {
					trapped++
					if !findsNumbers(name) {
						require.Equal(t, c.Fresh(), v.after, "%s: a kernel that traps has written", c.Name)
					}
				}
			}
			require.Equal(t, len(librarytest.Traps(name)), trapped)
		})
	}
}

// findsNumbers reports that a kernel may have written when it traps: it checks
// numbers that it finds in its bindings as it comes to them. Others check their sizes
// first.
func findsNumbers(kernel string) bool {
	return strings.HasPrefix(kernel, "embed_") || strings.HasSuffix(kernel, "_cache_f32")
}

func size(bindings [][]byte) (n int) {
	for _, b := range bindings {
		n += len(b)
	}
	return n
}

// TestShaders: modules of compilers that the verifier's tests keep.
func TestShaders(t *testing.T) {
	var files []string
	for _, dir := range []string{"../spirv/testdata", "../verify/testdata"} {
		more, err := filepath.Glob(filepath.Join(dir, "*.spv"))
		require.NoError(t, err)
		files = append(files, more...)
	}

	require.NotEmpty(t, files)
	n := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		if p, err := verify.Admit(data, verify.DefaultLimits()); err == nil {
			n++
			t.Run(filepath.Base(file), func(t *testing.T) { shader(t, p, 6) })
		}
	}
	require.Greater(t, n, 10)
}

// shader compares launches of a program over bytes that suit many programs.
func shader(t *testing.T, p *verify.Program, count int) {
	accepted(t, p)
	rng := rand.New(rand.NewPCG(5, uint64(len(p.Module.Words))))
	for range count {
		o := lane.Options{SubgroupSize: 32, Block: p.Info.Block}
		for k, n := range []*uint32{&o.Block.X, &o.Block.Y, &o.Block.Z} {
			if p.BlockIDs[k] != 0 {
				*n = 1 + rng.Uint32N(8)
			}
		}
		if n := p.Info.DynamicElementBytes; n > 0 {
			o.SharedBytes = n * uint32(o.Block.Count())
		}

		l := &lane.Launch{Grid: program.Dim3{X: 1 + rng.Uint32N(3), Y: 1 + rng.Uint32N(2), Z: 1}}
		for range p.Info.Bindings {
			b := make([]byte, rng.IntN(8192)*rng.IntN(2)+rng.IntN(256))
			for k := range b {
				if k%4 == 0 || rng.IntN(40) == 0 {
					b[k] = byte(rng.IntN(40))
				}
			}
			l.Bindings = append(l.Bindings, b)
		}
		for range p.Info.InlineBytes {
			l.Inline = append(l.Inline, byte(rng.IntN(3)))
		}

		_, err := difference(t, p, o, l, 1<<13)
		require.NoError(t, err, "%+v", o)
	}
}

// TestUsersKernels: kernels as users have sent them. They are not part of the
// repository; those that the verifier does not admit are counted.
func TestUsersKernels(t *testing.T) {
	const dir = "../../../shared/inputs/kernels"
	files, _ := filepath.Glob(dir + "/*")
	if len(files) == 0 {
		t.Skipf("SKIPPED: no kernels in %s", dir)
	}
	for _, tool := range []string{"glslangValidator", "spirv-as"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not here; install Debian's glslang-tools and spirv-tools", tool)
		}
	}

	var refused []string
	for _, file := range files {
		base := filepath.Base(file)
		p, err := verify.Admit(compiled(t, file), verify.DefaultLimits())
		if err != nil {
			refused = append(refused, base)
			continue
		}
		if p.Chosen != nil {
			_, err := instrument.Instrument(p)
			require.ErrorContains(t, err, "SPV-2910", base)
			continue
		}
		t.Run(base, func(t *testing.T) { shader(t, p, 6) })
	}

	slices.Sort(refused)
	require.Less(t, len(refused), len(files), "nothing was compared")
	t.Logf("%d of %d kernels are not in the profile: %s", len(refused), len(files), strings.Join(refused, " "))
}

// compiled is the module of a file in GLSL, in SPIR-V's text, or as it is.
func compiled(t *testing.T, file string) []byte {
	out := filepath.Join(t.TempDir(), "a.spv")
	var cmd *exec.Cmd
	switch filepath.Ext(file) {
	case ".comp":
		env := "vulkan1.1"
		for _, newer := range []string{"vulkan1.3", "spirv-1.5"} {
			if strings.Contains(file, newer) {
				env = "vulkan1.3"
			}
		}
		cmd = exec.Command("glslangValidator", "-V", "--target-env", env, "-o", out, file)
	case ".spvasm":
		cmd = exec.Command("spirv-as", "--target-env", "spv1.3", "-o", out, file)
	default:
		out = file
	}

	if cmd != nil {
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Logf("%s: %s", file, said)
			return nil
		}
	}
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	return data
}
