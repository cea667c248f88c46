package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/cmd/gpuctl/hostcheck"
)

// TestDoctor: it needs no service, and its exit status is its verdict.
func TestDoctor(t *testing.T) {
	run := func(args ...string) (string, string, int) {
		var out, errs bytes.Buffer
		a := &app{out: &out, err: &errs, getenv: func(string) string { return "" }}
		code := a.run(t.Context(), args)
		return out.String(), errs.String(), code
	}

	text, errs, code := run("doctor")
	require.Empty(t, errs)
	require.Contains(t, []int{exitOK, exitFailed}, code)
	require.Contains(t, text, "IOMMU")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "change ") {
			require.LessOrEqual(t, len(strings.TrimRight(line, "\n")), 120, "%q", line)
		}
	}

	text, _, jsonCode := run("--json", "doctor")
	require.Equal(t, code, jsonCode)
	var verdict struct {
		Good   bool              `json:"good"`
		Checks []hostcheck.Check `json:"checks"`
	}

	require.NoError(t, json.Unmarshal([]byte(text), &verdict))
	require.Equal(t, code == exitOK, verdict.Good)
	require.NotEmpty(t, verdict.Checks)

	_, errs, code = run("doctor", "here")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "0000:01:00.0")

	text, _, code = run("doctor", "ffff:ff:1f.7")
	require.Equal(t, exitFailed, code)
	require.Contains(t, text, "there is no such PCI function")
}

func TestWrap(t *testing.T) {
	require.Equal(t, []string{""}, wrap("", 10))
	require.Equal(t, []string{"one two", "three", "overlong-word", "x"}, wrap("one two three overlong-word x", 8))
}
