package instrument_test

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/verify"
)

// room are limits for instrumented programs: they are larger than the profile's.
func room() verify.Limits {
	lim := verify.DefaultLimits()
	lim.InlineBytes += 4
	lim.StackBytes *= 2
	lim.RegisterBytes *= 64
	lim.Instructions *= 64
	return lim
}

// again admits an instrumented program.
func again(t testing.TB, p *verify.Program, i *instrument.Program) *verify.Program {
	t.Helper()
	m := &program.Manifest{Name: "instrumented", Tolerance: &p.Info.Tolerance}
	m.Constants = append(m.Constants, constants(p)...)
	bundle, err := program.Encode(i.Module, m)
	require.NoError(t, err)
	out, err := verify.Admit(bundle, room())
	require.NoError(t, err)
	return out
}

// constants are what the manifest of a program set.
func constants(p *verify.Program) (all []program.Constant) {
	for id, v := range p.Constants {
		d, ok := p.Module.Decoration(id, 1) // SpecId
		if ok && !slices.ContainsFunc(all, func(c program.Constant) bool { return c.ID == d.Args[2] }) {
			all = append(all, program.Constant{ID: d.Args[2], Value: v})
		}
	}
	return all
}

func environment(module []byte) string {
	switch version := binary.LittleEndian.Uint32(module[4:]); {
	case version >= 0x00010600:
		return "vulkan1.3"
	case version >= 0x00010500:
		return "vulkan1.2"
	case version >= 0x00010400:
		return "vulkan1.1spv1.4"
	}
	return "vulkan1.1"
}

// spirvVal runs Khronos's validator: "" if it accepts the module.
func spirvVal(t testing.TB, module []byte) string {
	cmd := exec.Command("spirv-val", "--target-env", environment(module), "--scalar-block-layout", "-")
	cmd.Stdin = bytes.NewReader(module)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return ""
	}
	require.IsType(t, &exec.ExitError{}, err)
	return strings.TrimSpace(string(out)) + " "
}
