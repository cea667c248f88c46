package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Machine is the machine of the figures.
type Machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	// Load is the number of other processes that wanted a CPU at the start: the
	// load average of the last minute. Figures measured under a large load are
	// worth little.
	Load float64 `json:"load"`
	// Service is the measured service's version or commit.
	Service string `json:"service"`
}

func (m Machine) String() string {
	return fmt.Sprintf("%s on %d CPUs of %s, Linux %s, %s, load %.1f at the start", m.Service, m.CPUs, m.CPU, m.Kernel, m.Go, m.Load)
}

// Curve is a distribution of single round trips.
type Curve struct {
	Name  string    `json:"name"`
	Nanos []float64 `json:"nanos"` // in ascending order
	Count int       `json:"count"` // measured; Nanos may be fewer, evenly picked except for the tail
}

// Report is everything that a run has found.
type Report struct {
	When    time.Time `json:"when"`
	Machine Machine   `json:"machine"`
	Rows    []Row     `json:"rows"`
	// Spins is the raw spin round trip beside each figure, in nanoseconds.
	Spins  map[string]float64 `json:"spinNanos"`
	Curves []CurveSummary     `json:"roundTrips,omitempty"`
}

// CurveSummary is a curve in a few numbers.
type CurveSummary struct {
	Name   string  `json:"name"`
	Count  int     `json:"count"`
	Median float64 `json:"p50Nanos"`
	P99    float64 `json:"p99Nanos"`
	P999   float64 `json:"p999Nanos"`
}

// Summarize computes a curve's percentiles.
func Summarize(c Curve) CurveSummary {
	return CurveSummary{Name: c.Name, Count: c.Count, Median: c.At(0.5), P99: c.At(0.99), P999: c.At(0.999)}
}

// At is the value at a place (0 to 1) of the order.
func (c Curve) At(q float64) float64 {
	if len(c.Nanos) == 0 {
		return 0
	}
	return c.Nanos[min(int(q*float64(len(c.Nanos))), len(c.Nanos)-1)]
}

// Only returns the report of some figures, without the distributions of single round trips.
func (r *Report) Only(ids ...string) *Report {
	some := &Report{When: r.When, Machine: r.Machine, Spins: map[string]float64{}}
	for _, row := range r.Rows {
		if slices.Contains(ids, row.ID) {
			some.Rows = append(some.Rows, row)
			some.Spins[row.ID] = r.Spins[row.ID]
		}
	}
	return some
}

// WriteJSON writes all of it.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// missedMark marks a figure that misses its target.
const missedMark = "MISSED"

// bandPairs is the minimal number of pairs for percentiles.
const bandPairs = 10

var head = []string{"", "metric", "ours", "peer", "ratio", "must", "aim", ""}

func (r Row) cells() []string {
	ratio := Number(r.Ratio)
	if r.Unit != "" {
		ratio += " " + r.Unit
	}
	if r.Pairs >= bandPairs {
		ratio += fmt.Sprintf(" (%s to %s)", Number(r.Low), Number(r.High))
	}

	must, aim := "", ""
	if r.Target {
		sign := "≤ "
		switch {
		case r.Least:
			sign = "≥ "
		case r.Must == 0:
			sign = ""
		}
		must = sign + Number(r.Must)
		if r.Aim != r.Must {
			aim = sign + Number(r.Aim)
		}
	}

	var marks []string
	if r.Missed {
		marks = append(marks, missedMark)
	}
	if r.Breaks != "" {
		marks = append(marks, "breaks "+r.Breaks)
	}

	return []string{r.ID, r.Metric, r.Ours, r.Peer, ratio, must, aim, strings.Join(marks, ", ")}
}

func (r *Report) grid() [][]string {
	grid := [][]string{head}
	for _, row := range r.Rows {
		grid = append(grid, row.cells())
	}
	return grid
}

// WriteTable writes the figures for people.
func (r *Report) WriteTable(w io.Writer) error {
	grid := r.grid()
	widths := make([]int, len(head))
	for _, cells := range grid {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}

	for _, cells := range grid {
		var line strings.Builder
		for i, c := range cells {
			line.WriteString(c)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}

	return nil
}

// WriteMarkdown writes the same for a document, with the machine.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s: %s.\n\n", r.When.UTC().Format("2 January 2006"), r.Machine)
	for i, cells := range r.grid() {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(head)) + "|\n")
		}
	}

	if len(r.Curves) > 0 {
		b.WriteString("\nSingle round trips:\n\n| | median | 99 % | 99.9 % |\n|---|---|---|---|\n")
		for _, c := range r.Curves {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.Name, Nanos(c.Median), Nanos(c.P99), Nanos(c.P999))
		}
	}

	_, err := io.WriteString(w, b.String())
	return err
}

// LastLine is the last line of one figure's run: its ratio is the last number.
func (r *Report) LastLine() string {
	if len(r.Rows) == 0 {
		return ""
	}
	row := r.Rows[0]
	return fmt.Sprintf("%s %s: %s", row.ID, row.Metric, Number(row.Ratio))
}

// The lines between which a document shows the last run.
const (
	beginMark = "<!-- table: written by make bench-docs -->"
	endMark   = "<!-- end of table -->"
)

// InDocument replaces the last run's table in the document.
func (r *Report) InDocument(text string) (string, error) {
	before, rest, ok := strings.Cut(text, beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !ok || !closed {
		return "", fmt.Errorf("the document has no place for the table: put the lines %q and %q into it", beginMark, endMark)
	}
	var table strings.Builder
	if err := r.WriteMarkdown(&table); err != nil {
		return "", err
	}
	return before + beginMark + "\n\n" + table.String() + "\n" + endMark + after, nil
}
