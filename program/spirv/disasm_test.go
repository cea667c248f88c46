package spirv_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

func disassemble(t testing.TB, data []byte, note func(*spirv.Inst) string) string {
	m, err := spirv.Parse(data)
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, m.Disassemble(&b, note))
	return b.String()
}

func TestDisassemblyIsGolden(t *testing.T) {
	for name, data := range modules(t) {
		t.Run(name, func(t *testing.T) {
			got := disassemble(t, data, nil)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// tool runs one of Debian's spirv-tools on a file, and returns what it writes.
func tool(t *testing.T, input []byte, name string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("SKIPPED: %s is not here; install Debian's spirv-tools", name)
	}
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(in, input, 0o600))
	text, err := exec.Command(name, append(args, in, "-o", out)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	data, err := os.ReadFile(out)
	require.NoError(t, err)
	return data
}

// An assembler numbers ids in the order of their appearance, so two equivalent
// texts become the same bytes, whatever names they use.
func TestDisassemblyMatchesSpirvDis(t *testing.T) {
	for name, data := range modules(t) {
		t.Run(name, func(t *testing.T) {
			ours := disassemble(t, data, nil)
			ours = strings.ReplaceAll(ours, `\n`, "\n") // of a source's text; spirv-as knows no such escape
			theirs := tool(t, data, "spirv-dis", "--no-header")
			a := tool(t, []byte(ours), "spirv-as", "--target-env", "spv1.3")
			b := tool(t, theirs, "spirv-as", "--target-env", "spv1.3")
			require.True(t, bytes.Equal(a, b), "spirv-as makes another module of our text than of spirv-dis's")
		})
	}
}

var resultLine = regexp.MustCompile(`(?m)^ *(%\d+) = (Op\w+)`)

// Results have the numbers that spirv-dis gives them.
func TestResultsAreThoseOfSpirvDis(t *testing.T) {
	for name, data := range modules(t) {
		t.Run(name, func(t *testing.T) {
			m, err := spirv.Parse(data)
			require.NoError(t, err)
			theirs := tool(t, data, "spirv-dis", "--raw-id", "--no-header")
			results := 0
			for _, line := range resultLine.FindAllStringSubmatch(string(theirs), -1) {
				results++
				var id spirv.ID
				for _, digit := range line[1][1:] {
					id = 10*id + spirv.ID(digit-'0')
				}
				if line[2] == "OpLabel" {
					require.Nil(t, m.Def(id))
					continue
				}
				require.NotNil(t, m.Def(id), "%%%d", id)
				require.Equal(t, line[2], m.Def(id).Op.String())
			}

			require.Equal(t, results, strings.Count(disassemble(t, data, nil), " = Op"))
		})
	}
}

func TestNotesAreAskedForEachInstruction(t *testing.T) {
	data := modules(t)["reduce"]
	m, err := spirv.Parse(data)
	require.NoError(t, err)
	var last uint32
	text := disassemble(t, data, func(in *spirv.Inst) string {
		require.Greater(t, in.Off, last)
		last = in.Off
		if in.Op == spirv.OpAtomicIAdd {
			return "at " + m.Source(in.Line) + "\nand more"
		}
		return ""
	})
	require.Contains(t, text, "OpAtomicIAdd %uint %72 %uint_1 %uint_0 %74  ; at reduce.comp:17; and more\n")
	require.Equal(t, 1, strings.Count(text, "; at"))
}
