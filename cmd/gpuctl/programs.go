package main

import (
	"context"
	"fmt"
	"strings"

	"capgpu/client"
	"capgpu/program"
)

type programsCmd struct {
	Device string `help:"Index or name of the device. Default: the first that is ready." short:"d" placeholder:"DEVICE"`
}

// Run prints the programs of a device.
func (c *programsCmd) Run(ctx context.Context, a *app) (err error) {
	s, _, end, err := a.openSession(ctx, c.Device)
	if err != nil {
		return err
	}
	defer func() {
		if e := end(); err == nil {
			err = e
		}
	}()

	d, err := s.Describe(ctx)
	if err != nil {
		return err
	}

	programs := []programText{}
	for _, name := range d.Programs {
		p, err := s.OpenProgram(ctx, name)
		if err != nil {
			return err
		}
		programs = append(programs, programTextOf(p.Info()))
		if err := p.Close(ctx); err != nil {
			return err
		}
	}

	if a.json {
		a.printJSON(programs)
		return nil
	}
	if len(programs) == 0 {
		fmt.Fprintln(a.out, "This tenant may not run programs on the device.")
		return nil
	}

	var rows [][]string
	for _, p := range programs {
		rows = append(rows, p.row())
	}

	table(a.out, []string{"PROGRAM", "BLOCK", "INLINE", "BINDINGS"}, rows)
	return nil
}

// programText is a program for people and scripts.
type programText struct {
	Name        string            `json:"name"`
	Digest      string            `json:"digest"`
	Bindings    []program.Binding `json:"bindings"`
	Inline      []program.Field   `json:"inline"`
	InlineBytes uint32            `json:"inlineBytes"`
	Block       [3]uint32         `json:"block"`
	BlockFree   bool              `json:"blockFree"`
	SharedBytes uint32            `json:"sharedBytes"`
	Features    []string          `json:"features"`
}

func programTextOf(p client.ProgramInfo) programText {
	i := infoOfClient(p)
	t := programText{
		Name: p.Name, Digest: program.DigestName(p.Digest), Bindings: i.Bindings, Inline: i.Inline, InlineBytes: p.InlineBytes,
		Block: [3]uint32{p.Block.X, p.Block.Y, p.Block.Z}, BlockFree: p.BlockFree, SharedBytes: p.SharedBytes, Features: p.Features,
	}
	// Empty lists, not null, for scripts.
	if t.Bindings == nil {
		t.Bindings = []program.Binding{}
	}
	if t.Inline == nil {
		t.Inline = []program.Field{}
	}
	if t.Features == nil {
		t.Features = []string{}
	}

	return t
}

// row is the program's line in the table.
func (p *programText) row() []string {
	var bindings, fields alike
	for _, b := range p.Bindings {
		text := b.Access.String()
		if b.Type != "" {
			text = string(b.Type) + " " + text
		}
		bindings.add(b.Name, text)
	}

	for _, f := range p.Inline {
		fields.add(f.Name, string(f.Type))
	}

	block := fmt.Sprintf("%dx%dx%d", p.Block[0], p.Block[1], p.Block[2])
	if p.BlockFree {
		block = "any"
	}

	return []string{p.Name, block, orDash(fields.String()), orDash(bindings.String())}
}

// alike is a list of names in order; neighbours of one kind are grouped: "a, b (f32
// read), c (f32 write)".
type alike struct{ names, kinds []string }

func (l *alike) add(name, kind string) {
	if n := len(l.kinds); n > 0 && l.kinds[n-1] == kind {
		l.names[n-1] += ", " + name
		return
	}
	l.names, l.kinds = append(l.names, name), append(l.kinds, kind)
}

func (l *alike) String() string {
	var parts []string
	for i, names := range l.names {
		parts = append(parts, fmt.Sprintf("%s (%s)", names, l.kinds[i]))
	}
	return strings.Join(parts, ", ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
