package model

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
)

// tooMany states are a mistake in a test.
const tooMany = 20_000_000

var deep = flag.Bool("deep", false, "explore large models, too: minutes, and gigabytes")

// sized makes a model smaller for the race detector, which finds nothing in one
// goroutine and takes ten times as long.
func sized(cfg config) config {
	if raceEnabled {
		cfg.submissions = min(cfg.submissions, 2)
	}
	return cfg
}

// TestProtocol visits every state of models of package ring and of package gpu's use
// of it, and then makes sure that they had something to visit.
func TestProtocol(t *testing.T) {
	done := map[string]bool{}
	left := 0 // subtests that were not run, by -run
	for _, c := range []struct {
		name string
		cfg  config
		deep bool
	}{
		{"six entries", config{reduced: true, entries: 2, slotWords: 1, submissions: 6, pollMax: 2}, false},
		{"one completion a Poll", config{reduced: true, entries: 2, completions: 2, slotWords: 1, submissions: 4, pollMax: 1}, false},
		{"Close", config{reduced: true, closes: true, entries: 2, slotWords: 1, submissions: 4, pollMax: 2}, false},
		{"Close without the end of the pipe", config{reduced: true, closes: true, noEOF: true, entries: 2, slotWords: 1, submissions: 3, pollMax: 2}, false},
		{"two waits end early", config{reduced: true, timeout: 2, entries: 2, completions: 2, slotWords: 1, submissions: 2, pollMax: 2}, false},
		{"spinning", config{reduced: true, spin: true, closes: true, entries: 2, completions: 2, slotWords: 1, submissions: 3, pollMax: 2}, false},
		{"two client threads", config{reduced: true, duplex: true, entries: 2, completions: 2, slotWords: 1, submissions: 3, pollMax: 2}, false},
		{"two client threads, Close", config{reduced: true, duplex: true, closes: true, entries: 1, completions: 1, slotWords: 1, submissions: 2, pollMax: 2}, false},
		{"service", service, false},
		{"service, more entries than completions", fullService, false},
		{"service, Close", config{reduced: true, service: true, closes: true, spin: true, entries: 1, completions: 1, slotWords: 1, submissions: 2, pollMax: 2}, false},
		{"whole, TSO", config{entries: 2, completions: 2, slotWords: 2, submissions: 4, pollMax: 2}, false},
		{"whole, PSO", wholePSO, false},
		{"whole, PSO, two client threads", config{order: pso, duplex: true, entries: 1, completions: 1, slotWords: 2, submissions: 3, pollMax: 2}, false},

		{"eight entries", config{reduced: true, closes: true, entries: 2, slotWords: 1, submissions: 8, pollMax: 2}, true},
		{"four slots", config{reduced: true, entries: 4, slotWords: 1, submissions: 6, pollMax: 4}, true},
		{"two client threads, six entries", config{reduced: true, duplex: true, entries: 2, slotWords: 1, submissions: 6, pollMax: 2}, true},
		{"service, six entries", config{reduced: true, service: true, entries: 1, completions: 2, slotWords: 1, submissions: 6, pollMax: 2}, true},
		{"whole, PSO, six entries", config{order: pso, entries: 2, slotWords: 2, submissions: 6, pollMax: 2}, true},
	} {
		left++
		t.Run(c.name, func(t *testing.T) {
			left--
			if c.deep && !*deep {
				t.Skip("only with -deep")
			}
			r := explore(newRing(sized(c.cfg)), tooMany)
			mustHold(t, &r)
			for name, did := range r.steps {
				done[name] = done[name] || did
			}
		})
	}
	if raceEnabled || left > 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(done)) {
		if !done[name] {
			t.Errorf("no model ever comes to %q", name)
		}
	}
}

// TestReactor does the same for two rings of one goroutine.
func TestReactor(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  config
		deep bool
	}{
		{"one entry", two, false},
		{"more entries than completions", twoFull, false},
		{"clients that sleep", config{reduced: true, entries: 1, completions: 1, slotWords: 1, submissions: 1, pollMax: 1}, false},
		{"whole, PSO", config{order: pso, awakeClient: true, entries: 1, completions: 1, slotWords: 1, submissions: 1}, false},

		{"two entries each", config{reduced: true, awakeClient: true, entries: 1, completions: 1, slotWords: 1, submissions: 2}, true},
		{"three entries each", config{reduced: true, awakeClient: true, entries: 1, completions: 1, slotWords: 1, submissions: 3}, true},
		{"two entries each, clients that sleep", config{reduced: true, entries: 1, completions: 1, slotWords: 1, submissions: 2, pollMax: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.deep && !*deep {
				t.Skip("only with -deep")
			}
			r := explore(newReactor(sized(c.cfg)), tooMany)
			mustHold(t, &r)
		})
	}
}

func mustHold(t *testing.T, r *report) {
	t.Helper()
	if f := r.finding; f != nil {
		t.Fatalf("fails after %d states: %s: %s\n%s", r.states, f.property, f.detail, f.trace)
	}
	t.Log(r)
}

// TestRingChanges: what would be a mistake is found, and what would be none is not.
func TestRingChanges(t *testing.T) {
	for _, c := range ringChanges {
		if c.in.mistake = c.mistake; c.property == "" {
			c.in = sized(c.in)
		}
		testChange(t, &c, newRing(c.in))
	}
}

// TestReactorChanges is the same for two rings of one goroutine.
func TestReactorChanges(t *testing.T) {
	for _, c := range reactorChanges {
		c.in.mistake = c.mistake
		testChange(t, &c, newReactor(c.in))
	}
}

func testChange(t *testing.T, c *change, m *machine) {
	t.Run(c.name, func(t *testing.T) {
		r := explore(m, tooMany)
		switch f := r.finding; {
		case c.property == "":
			mustHold(t, &r)
		case f == nil:
			t.Errorf("not found in %v", &r)
		case f.property != c.property:
			t.Errorf("found as %q (%s), want %q\n%s", f.property, f.detail, c.property, f.trace)
		default:
			t.Logf("found after %d states: %s: %s\n%s", r.states, f.property, f.detail, f.trace)
		}
	})
}

// TestTraceIsReadable: a trace names each thread and its steps, with values, to the end.
func TestTraceIsReadable(t *testing.T) {
	cfg := tiny
	cfg.mistake = clientLooksNotAgain
	r := explore(newRing(cfg), tooMany)
	if r.finding == nil {
		t.Fatal("nothing is found")
	}
	for _, want := range []string{"client", "driver", "swap sqTail 0 → 1", "poll: arm", "at the end:"} {
		if !strings.Contains(r.finding.trace, want) {
			t.Errorf("%q is missing in\n%s", want, r.finding.trace)
		}
	}
}
