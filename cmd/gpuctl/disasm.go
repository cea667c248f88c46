package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"capgpu/gpuerr"
	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/spirv"
	"capgpu/program/verify"
)

type disasmCmd struct {
	constArgs   `embed:""`
	compileArgs `embed:""`
	Why         bool   `help:"List everything of the module that is outside the profile, not only what it is refused for, and leave its text out."`
	Program     string `arg:"" help:"A module (.spv), GLSL to be compiled (.comp, .glsl), a bundle, or the name of a program that comes with the service."`
}

// Help is shown by "gpuctl disasm --help".
func (disasmCmd) Help() string {
	return `Needs no service. What the verifier refuses or warns of is marked at its place.

Exit status: 0 if the program is admitted, 1 if not.`
}

// Run prints the module.
func (c *disasmCmd) Run(ctx context.Context, a *app) error {
	bundle, err := c.localProgram(ctx, c.Program, true)
	if err != nil {
		return err
	}

	if bundle, err = c.apply(c.Program, bundle); err != nil {
		return err
	}

	parsed, err := program.Parse(bundle)
	if err != nil {
		return err
	}

	// A refusal is shown with the module around it, as far as that can be read.
	admitted, refused := verify.Admit(bundle, verify.DefaultLimits())
	var refusal *program.Refusal
	if refused != nil && !errors.As(refused, &refusal) {
		return refused
	}

	v := verdict{Program: c.Program, Digest: program.DigestName(parsed.Digest), Admitted: refusal == nil, Warnings: []program.Diagnostic{}}
	if refusal != nil {
		v.Refusal = &refusal.Diagnostic
	} else {
		v.set(&admitted.Info)
	}

	var text bytes.Buffer
	if c.Why {
		v.Causes = verify.Why(bundle, verify.DefaultLimits())
	} else if m, err := spirv.Parse(parsed.SPIRV); err == nil {
		if err := m.Disassemble(&text, v.note); err != nil {
			return err
		}
	}

	v.Text = text.String()
	if a.json {
		a.printJSON(v)
	} else {
		fmt.Fprint(a.out, visibleText(v.Text))
		v.print(a)
	}

	if refusal != nil {
		return &failedWork{exitFailed}
	}

	return nil
}

// localProgram is the bundle of a file or of a program of the library.
func (c *compileArgs) localProgram(ctx context.Context, arg string, debug bool) ([]byte, error) {
	bundle, isFile, err := c.programFile(ctx, arg, debug)
	if isFile || err != nil {
		return bundle, err
	}
	bundle, ok := library.Bundle(arg)
	if !ok {
		return nil, &hinted{gpuerr.New(gpuerr.NoProgram, "no program %.64q comes with the service", arg), "There are: " + strings.Join(library.Names(), ", ") + "."}
	}
	return bundle, nil
}

// verdict is the verifier's result.
type verdict struct {
	Program     string               `json:"program"`
	Digest      string               `json:"digest"`
	Admitted    bool                 `json:"admitted"`
	Refusal     *program.Diagnostic  `json:"refusal,omitempty"`
	Causes      []program.Diagnostic `json:"causes,omitempty"` // with --why: the refusal and all else
	Warnings    []program.Diagnostic `json:"warnings"`
	Bindings    []program.Binding    `json:"bindings,omitempty"`
	Inline      []program.Field      `json:"inline,omitempty"`
	Block       [3]uint32            `json:"block"`
	BlockFree   bool                 `json:"blockFree"`
	SharedBytes uint32               `json:"sharedBytes"`
	StackBytes  uint32               `json:"stackBytes"`
	Features    []program.Feature    `json:"features,omitempty"`
	Text        string               `json:"text"`
}

func (v *verdict) set(i *program.Info) {
	v.Warnings = append(v.Warnings, i.Warnings...)
	v.Bindings, v.Inline, v.Features = i.Bindings, i.Inline, i.Features
	v.Block, v.BlockFree = [3]uint32{i.Block.X, i.Block.Y, i.Block.Z}, i.BlockFree
	v.SharedBytes, v.StackBytes = i.SharedBytes, i.StackBytes
}

// note is the remark about an instruction of the text.
func (v *verdict) note(i *spirv.Inst) string {
	if v.Refusal != nil && v.Refusal.Off == i.Off {
		return "REFUSED " + v.Refusal.Code + ": " + v.Refusal.Message
	}
	for _, w := range v.Warnings {
		if w.Off == i.Off {
			return w.Code + ": " + w.Message
		}
	}
	return ""
}

func (v *verdict) print(a *app) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "  %-9s %s\n", name, visible(fmt.Sprintf(format, args...)))
	}

	if v.Text != "" {
		fmt.Fprintln(a.out)
	}
	if v.Refusal != nil {
		fmt.Fprintf(a.out, "refused: %s\n", visible(v.Refusal.String()))
		for _, c := range v.Causes[min(1, len(v.Causes)):] {
			fmt.Fprintf(a.out, "also:    %s\n", visible(c.String()))
		}
		return
	}

	fmt.Fprintf(a.out, "admitted: %s\n", visible(v.Program))
	line("digest", "%s", v.Digest)
	text := programText{Bindings: v.Bindings, Inline: v.Inline, Block: v.Block, BlockFree: v.BlockFree}
	row := text.row()
	line("block", "%s", row[1])
	line("inline", "%s", row[2])
	line("bindings", "%s", row[3])
	line("memory", "%d bytes shared, %d bytes private", v.SharedBytes, v.StackBytes)
	for _, f := range v.Features {
		line("needs", "%s", f)
	}

	for _, w := range v.Warnings {
		line("warning", "%s", w)
	}
}
