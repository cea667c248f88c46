package qemu

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Transcript is the output on the guest's console, line by line.
type Transcript []string

// verdict is the last line of a guest that passed. Only the guest's init writes
// it, after every other step.
var (
	verdict  = regexp.MustCompile(`^capgpu-(?:smoke|hw): PASS (\d+) checks$`)
	judgment = regexp.MustCompile(`^capgpu-(?:smoke|hw):`)
)

// powerDown is the kernel's line after init's last word.
var powerDown = regexp.MustCompile(`^\[ *[0-9.]+\] reboot: Power down$`)

// Verdict returns the number of checks that the guest says have passed. The
// verdict counts only as the last line that is not empty, and only once.
func (t Transcript) Verdict() (checks int, err error) {
	last, found := "", 0
	for _, line := range t {
		if strings.TrimSpace(line) == "" || powerDown.MatchString(line) {
			continue
		}
		last = line
		if judgment.MatchString(line) {
			found++
		}
	}

	m := verdict.FindStringSubmatch(last)
	if m == nil || found != 1 {
		return 0, fmt.Errorf("the guest's last word is not one verdict PASS but %q", last)
	}

	return strconv.Atoi(m[1])
}

// has reports whether a line has the words in it.
func (t Transcript) has(words string) bool {
	return slices.ContainsFunc(t, func(line string) bool { return strings.Contains(line, words) })
}

// Failures are the checks that the guest reports as failed.
func (t Transcript) Failures() []string {
	var failed []string
	for _, line := range t {
		if strings.HasPrefix(line, "not ok ") {
			failed = append(failed, line)
		}
	}
	return failed
}

// Passed counts the lines "ok N - …" and errors when their numbers skip.
func (t Transcript) Passed() (int, error) {
	n := 0
	for _, line := range t {
		rest, ok := strings.CutPrefix(line, "ok ")
		if !ok {
			continue
		}
		n++
		number, _, _ := strings.Cut(rest, " ")
		if number != strconv.Itoa(n) {
			return n, fmt.Errorf("check %d is missing before %q", n, line)
		}
	}
	return n, nil
}

// tail is the last n lines.
func (t Transcript) tail(n int) string { return strings.Join(t[max(0, len(t)-n):], "\n") }

// Golden is the expected transcript: every line of it must occur, in this
// order; others may stand between. {n} stands for a number and {} for anything.
// Empty lines and those that start with "//" are for the reader.
type Golden []string

// ParseGolden splits the text of a golden file.
func ParseGolden(text string) Golden {
	var g Golden
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line != "" && !strings.HasPrefix(line, "//") {
			g = append(g, line)
		}
	}
	return g
}

// Match returns an error that names the first expected line that t does not
// have in its place.
func (g Golden) Match(t Transcript) error {
	at := 0
	for i, want := range g {
		re := wildcards(want)
		found := -1
		for j := at; j < len(t); j++ {
			if re.MatchString(t[j]) {
				found = j
				break
			}
		}
		if found < 0 {
			after := "the start"
			if i > 0 {
				after = strconv.Quote(g[i-1])
			}
			return fmt.Errorf("the transcript has no line %q after %s", want, after)
		}
		at = found + 1
	}

	return nil
}

func wildcards(line string) *regexp.Regexp {
	s := regexp.QuoteMeta(line)
	s = strings.ReplaceAll(s, `\{n\}`, `[0-9][0-9.]*`)
	s = strings.ReplaceAll(s, `\{\}`, `.*`)
	return regexp.MustCompile("^" + s + "$")
}

// Check is the whole judgement of one run: the golden lines, no failed check,
// and a verdict that counts as many checks as were printed.
func (g Golden) Check(t Transcript) (checks int, err error) {
	if failed := t.Failures(); len(failed) > 0 {
		return 0, fmt.Errorf("%d checks failed, first: %s", len(failed), failed[0])
	}

	checks, err = t.Verdict()
	if err != nil {
		return 0, err
	}
	if err := g.Match(t); err != nil {
		return 0, err
	}

	printed, err := t.Passed()
	if err != nil {
		return 0, err
	}
	if checks != printed || checks == 0 {
		return 0, fmt.Errorf("the verdict counts %d checks, but %d were printed", checks, printed)
	}

	return checks, nil
}
