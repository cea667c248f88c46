package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"testing"
	"time"
)

// Behaviour is one required behaviour of a service.
type Behaviour struct {
	Number int
	Name   string
	run    func(c *Case)
}

// All are the behaviours, in the best order for a run: those that kill drivers come
// last.
func All() []Behaviour {
	return []Behaviour{
		{1, "cascade on session close", cascade},
		{2, "a hang is a typed failure, others are unaffected", hang},
		{3, "submit and vanish", vanish},
		{4, "driver death loop", deaths},
		{5, "argument table", arguments},
		{6, "foreign and stale handles", handles},
		{7, "fence semantics", fences},
		{8, "dependency failure", dependency},
		{9, "back-pressure", pressure},
		{10, "quota exact under race", quota},
		{11, "export and import", export},
		{12, "no leftovers", leftovers},
		{13, "DMA confinement and order of unmap", confinement},
		{14, "least authority", authority},
		{15, "live upgrade", upgrade},
	}
}

// Verdict is the result of a behaviour on a stack.
type Verdict string

const (
	Pass          Verdict = "pass"
	Fail          Verdict = "fail"
	NotApplicable Verdict = "n.a."
)

// Result is one cell of the table.
type Result struct {
	Stack    string        `json:"stack"`
	Number   int           `json:"number"`
	Name     string        `json:"name"`
	Verdict  Verdict       `json:"verdict"`
	Reason   string        `json:"reason,omitempty"` // why it failed, or is not applicable
	Notes    []string      `json:"notes,omitempty"`  // counts, and the parts that are not applicable
	Duration time.Duration `json:"nanos"`
}

// String is for people.
func (r Result) String() string {
	text := fmt.Sprintf("%s %d %s: %s", r.Stack, r.Number, r.Name, r.Verdict)
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

// Size is the number of repetitions of everything in the suite.
type Size int

const (
	// Short is for every test run: some seconds.
	Short Size = iota
	// Full has the counts of the behaviours' sources: 100 rounds, 20 kills, 10,000
	// messages.
	Full
)

// Patience bounds a call without a published bound. Nothing in a service takes so
// long; a call that reaches it hangs.
const Patience = 30 * time.Second

// longest bounds one behaviour. In Full, a tenant with hangs is banned again and
// again, and the suite waits for the ends of the bans.
const (
	longest     = 3 * time.Minute
	longestFull = 10 * time.Minute
)

// Check runs one behaviour on a stack and returns the result.
func Check(ctx context.Context, stack Stack, b Behaviour, size Size) (r Result) {
	r = Result{Stack: stack.Name(), Number: b.Number, Name: b.Name, Verdict: Pass}
	began := time.Now()
	limit := longest
	if size == Full {
		limit = longestFull
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := &Case{Ctx: ctx, Stack: stack, Size: size}
	defer func() {
		r.Duration, r.Notes = time.Since(began), c.notes
	}()

	defer func() {
		switch p := recover().(type) {
		case nil:
		case *ending:
			r.Verdict, r.Reason = p.verdict, p.why
		default:
			r.Verdict, r.Reason = Fail, fmt.Sprintf("panic: %v\n%s", p, debug.Stack())
		}
		for _, f := range c.failures() {
			if r.Verdict != Fail {
				r.Verdict, r.Reason = Fail, f
			}
		}
	}()

	defer c.cleanUp()
	b.run(c)
	return r
}

// ReportVariable names the environment variable that makes Run print a line for
// each result, ReportPrefix and the Result as JSON, for tables of several stacks.
const (
	ReportVariable = "CAPGPU_CONFORMANCE_REPORT"
	ReportPrefix   = "conformance-result "
)

// Run runs every behaviour as a test of its own.
func Run(t *testing.T, stack Stack, size Size) {
	for _, b := range All() {
		t.Run(fmt.Sprintf("%02d", b.Number), func(t *testing.T) {
			r := Check(t.Context(), stack, b, size)
			if os.Getenv(ReportVariable) != "" {
				if line, err := json.Marshal(r); err == nil {
					fmt.Printf("\n%s%s\n", ReportPrefix, line)
				}
			}
			for _, note := range r.Notes {
				t.Log(note)
			}
			switch r.Verdict {
			case Fail:
				t.Errorf("%s: %s", b.Name, r.Reason)
			case NotApplicable:
				t.Skipf("%s: %s", b.Name, r.Reason)
			}
		})
	}
}
