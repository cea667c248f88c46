package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
)

// bytesText is a size in binary units: "256.0 MiB".
func bytesText(n uint64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1023.95 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

// countText groups digits: "67,108,864".
func countText(n uint64) string {
	s := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, d := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// durationText keeps three figures: "212 ms", "1.53 s", "840 µs".
func durationText(d time.Duration) string {
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= u.unit {
			v := float64(d) / float64(u.unit)
			decimals := max(0, 2-int(math.Log10(v)))
			return fmt.Sprintf("%.*f %s", decimals, v, u.name)
		}
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}

// amount renders an amount of a ledger resource in its unit.
func amount(resource string, n uint64) string {
	switch {
	case n == math.MaxUint64:
		return "unlimited"
	case strings.HasSuffix(resource, "Memory"), strings.HasSuffix(resource, "Bytes"):
		return bytesText(n)
	case resource == "deviceTime":
		return durationText(time.Duration(min(n, math.MaxInt64)))
	}
	return countText(n)
}

// plural is "1 inline argument", "2 inline arguments".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// visible escapes characters that a terminal could obey, or that a reader could not
// see. Names and messages come from a driver, which is not trusted with the user's
// terminal.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// visibleText is visible for each line of a text.
func visibleText(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

// visibleJSON is visible for a JSON text. Only strings can hold such characters,
// and their values stay the same.
func visibleJSON(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// table prints rows under a header, columns aligned.
func table(w io.Writer, header []string, rows [][]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(header, "\t"))
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, cell := range r {
			cells[i] = visible(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	_ = t.Flush() // nobody is left to learn that standard output is gone
}
