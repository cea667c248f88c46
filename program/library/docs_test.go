package library

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
)

// The table of docs/kernels.md agrees with the manifests.
func TestKernelsDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/kernels.md")
	require.NoError(t, err)
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.SplitN(line, "|", 3); len(cells) == 3 && strings.HasPrefix(cells[1], " `") {
			rows[strings.Trim(cells[1], " `")] = strings.TrimSpace(line)
		}
	}
	for _, name := range Names() {
		require.Equal(t, tableRow(t, name), rows[name])
		delete(rows, name)
	}
	require.Empty(t, rows, "rows of kernels that are not there")
}

func tableRow(t *testing.T, name string) string {
	bundle, _ := Bundle(name)
	b, err := program.Parse(bundle)
	require.NoError(t, err)
	source, err := os.ReadFile(name + ".comp")
	require.NoError(t, err)
	m := b.Manifest

	var bindings, fields, block []string
	for _, b := range m.Bindings {
		s := b.Name + map[program.Access]string{program.Read: " r", program.Write: " w", program.ReadWrite: " rw"}[b.Access]
		bindings = append(bindings, s+" "+string(b.Type))
	}

	for _, f := range m.Inline {
		fields = append(fields, f.Name+" "+string(f.Type))
	}

	lanes := uint32(1)
	for _, n := range m.Block {
		block = append(block, fmt.Sprint(n))
		lanes *= n
	}

	size := strings.Join(block, "×")
	if strings.Contains(string(source), "local_size_x_id") {
		size += ", or any"
	}

	grid := fmt.Sprintf("shortest / %d", lanes)
	if g := m.Grid; g != nil {
		per := g.PerGroup
		if per == 0 {
			per = lanes
		}
		cover := g.Cover
		if g.ElementBytes > 0 {
			cover += fmt.Sprintf(" in %d bytes", g.ElementBytes)
		}
		grid = fmt.Sprintf("%s / %d", cover, per)
		if g.Groups > 0 {
			grid = fmt.Sprint(g.Groups)
		}
	}

	tolerance := "exact"
	if m.Tolerance != nil {
		tolerance = fmt.Sprintf("%g + %g·v", m.Tolerance.Abs, m.Tolerance.Rel)
	}

	needs := make([]string, len(m.Features))
	for i, f := range m.Features {
		needs[i] = string(f)
	}

	cells := []string{"`" + name + "`", strings.Join(bindings, ", "), strings.Join(fields, ", "), size, grid, tolerance,
		strings.Join(needs, ", ")}
	row := "|"
	for _, cell := range cells {
		row += " " + strings.ReplaceAll(strings.TrimSpace(cell), " ,", ",") + " |"
	}

	return row
}
