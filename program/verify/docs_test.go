package verify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

// rows are the tables of a page, by the code in their first column: the second.
func rows(t *testing.T, page string) map[string]string {
	data, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]+-(?:GPU-)?\d{4}) \| (.*?) \|`).FindAllStringSubmatch(string(data), -1) {
		require.NotContains(t, found, m[1], "%s twice in %s", m[1], page)
		found[m[1]] = m[2]
	}
	return found
}

// TestProfilePage: docs/program-profile.md has the codes of the code, and no others.
func TestProfilePage(t *testing.T) {
	page := rows(t, "program-profile.md")
	want := map[string]string{}
	for code, says := range verify.Codes {
		if strings.HasPrefix(code, "SPV-") {
			want[code] = says
		}
	}

	for _, c := range spirv.Codes {
		want[c.Code] = c.Meaning
	}

	for _, code := range []string{program.CodeTooLarge, program.CodeNotBundle, program.CodeVersion, program.CodeLengths, program.CodeManifestSize,
		program.CodeManifestJSON, program.CodeManifestTwin, program.CodeManifest} {
		require.NotEmpty(t, page[code], "the page lacks %s", code)
		want[code] = page[code]
	}

	engine, err := filepath.Glob("../lane/*.go")
	require.NoError(t, err)
	devices, err := filepath.Glob("../instrument/*.go")
	require.NoError(t, err)
	engine = append(engine, devices...)
	for _, file := range engine {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, code := range regexp.MustCompile(`SPV-29\d\d`).FindAllString(string(source), -1) {
			require.NotEmpty(t, page[code], "the page lacks %s of %s", code, file)
			want[code] = page[code]
		}
	}

	require.Equal(t, want, page)
}

// machine are the diagnostics of the Abstract Device Machine, clause 21.
var machine = strings.Fields(`E-GPU-4001 E-GPU-4005 E-GPU-4006 E-GPU-4010 E-GPU-4011 E-GPU-4012 E-GPU-4013 E-GPU-4014 E-GPU-4016 E-GPU-4017
	E-GPU-4020 E-GPU-4021 E-GPU-4022 E-GPU-4030 E-GPU-4031 E-GPU-4032 W-GPU-4033 W-GPU-4040 E-GPU-4041 E-GPU-4050 W-GPU-4051
	E-GPU-4060 E-GPU-4061 W-GPU-4062 W-GPU-4070 P-GPU-5001 P-GPU-5002 P-GPU-5003 P-GPU-5004`)

// TestMachinePage: docs/adm.md has every diagnostic of the clause, and states for
// those without a code that they cannot arise.
func TestMachinePage(t *testing.T) {
	data, err := os.ReadFile("../../docs/adm.md")
	require.NoError(t, err)
	page := rows(t, "adm.md")
	for _, code := range machine {
		require.Contains(t, page, code)
		line := string(regexp.MustCompile(`(?m)^\| ` + code + ` .*$`).Find(data))
		_, have := verify.Codes[code]
		have = have || code == "E-GPU-4017" // beside the code of the instruction
		switch {
		case have && code[0] == 'W':
			require.Contains(t, line, "Warned of")
		case have:
			require.Contains(t, line, "Refused")
		case code[0] != 'P':
			require.Contains(t, line, "Cannot arise", code)
		}
	}

	// Each code that the page calls refused or warned of has a test.
	tested := map[string]bool{"E-GPU-4017": true, verify.WarnSystem: true} // TestSystemScope
	for _, c := range machineCases {
		tested[c.code] = true
	}
	marked, err := filepath.Glob("testdata/warn/*.comp")
	require.NoError(t, err)
	for _, file := range marked {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, code := range regexp.MustCompile(`W-GPU-\d+`).FindAllString(string(source), -1) {
			tested[code] = true
		}
	}
	for code := range verify.Codes {
		require.True(t, tested[code] || strings.HasPrefix(code, "SPV-"), "no test has %s", code)
	}

	for _, limit := range []int{program.MaxStackBytes, program.MaxSharedBytes} {
		require.Contains(t, string(data), fmt.Sprintf("%d,%03d bytes", limit/1000, limit%1000))
	}

	require.Len(t, page, len(machine), "a diagnostic that the clause does not have")
	for code := range verify.Codes {
		if !strings.HasPrefix(code, "SPV-") {
			require.Contains(t, page, code)
		}
	}
}
