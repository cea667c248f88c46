package qemu

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const passing = `
SeaBIOS

ok 1 - memory: 4096 bytes
# a remark
ok 2 - the rest
capgpu-smoke: PASS 2 checks
[    3.141592] reboot: Power down`

func TestGoldenCheck(t *testing.T) {
	golden := ParseGolden("// for the reader\nok {n} - memory: {n} bytes\n\nok {n} - the {}\ncapgpu-smoke: PASS {n} checks\n")
	require.Len(t, golden, 3)

	tests := map[string]struct {
		old, new string // replaced in the passing transcript
		wantErr  string // "" = passes
	}{
		"as it should be":          {"", "", ""},
		"other numbers":            {"4096", "123.5", ""},
		"a line is missing":        {"# a remark\nok 2 - the rest", "ok 2 - something", "no line \"ok {n} - the {}\""},
		"out of order":             {"ok 1 - memory: 4096 bytes\n# a remark\nok 2 - the rest", "ok 1 - the rest\nok 2 - memory: 4096 bytes", "no line \"ok {n} - the {}\" after"},
		"a failed check":           {"# a remark", "not ok 2 - a remark", "1 checks failed, first: not ok 2"},
		"a number is skipped":      {"ok 2", "ok 3", "check 2 is missing"},
		"no verdict":               {"capgpu-smoke: PASS 2 checks\n", "", "not one verdict PASS"},
		"the verdict is FAIL":      {"PASS 2 checks", "FAIL for a reason", "FAIL for a reason"},
		"the verdict is not last":  {"[    3.141592] reboot: Power down", "a late word", "a late word"},
		"two verdicts":             {"# a remark", "capgpu-smoke: PASS 1 checks", "not one verdict"},
		"the verdict counts wrong": {"PASS 2", "PASS 3", "counts 3 checks, but 2 were printed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(passing, tt.old, tt.new, 1)
			checks, err := golden.Check(Transcript(strings.Split(text, "\n")))
			if tt.wantErr == "" {
				require.NoError(t, err)
				require.Equal(t, 2, checks)
				return
			}
			require.ErrorContains(t, err, tt.wantErr)
		})
	}
}

func TestSmokeGoldenEndsWithTheVerdict(t *testing.T) {
	g := SmokeGolden()
	require.Greater(t, len(g), 10, "expected lines")
	require.Equal(t, "capgpu-smoke: PASS {n} checks", g[len(g)-1])
}
