package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Case is one running behaviour. Only the goroutine that runs it may call the
// methods that end it; the others use Failf.
type Case struct {
	Ctx   context.Context
	Stack Stack
	Size  Size

	notes []string
	last  []func()

	mu sync.Mutex
	// +checklocks:mu
	failed []string
}

// ending unwinds a behaviour.
type ending struct {
	verdict Verdict
	why     string
}

// Cannot ends the behaviour as not applicable.
func (c *Case) Cannot(why string) { panic(&ending{NotApplicable, why}) }

// Fatalf ends the behaviour as failed.
func (c *Case) Fatalf(format string, args ...any) {
	panic(&ending{Fail, fmt.Sprintf(format, args...)})
}

// Failf records a failure and continues.
func (c *Case) Failf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, fmt.Sprintf(format, args...))
}

func (c *Case) failures() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// Notef adds a note to the verdict.
func (c *Case) Notef(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Must requires no error.
func (c *Case) Must(err error, format string, args ...any) {
	if err != nil {
		c.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// That requires a condition.
func (c *Case) That(ok bool, format string, args ...any) {
	if !ok {
		c.Fatalf(format, args...)
	}
}

// Refused requires an error with one of the codes.
func (c *Case) Refused(err error, what string, want ...gpuerr.Code) {
	if why := refusal(err, want...); why != "" {
		c.Fatalf("%s: %s", what, why)
	}
}

// refusal returns what is wrong with an error that should have one of the codes.
func refusal(err error, want ...gpuerr.Code) string {
	if err == nil {
		return fmt.Sprintf("was accepted, want %v", want)
	}
	for _, code := range want {
		if errors.Is(err, code) {
			return ""
		}
	}
	return fmt.Sprintf("got %q, want %v", err, want)
}

// names reports whether an error names a field.
func names(err error, field string) bool {
	return strings.Contains(strings.ToLower(err.Error()), strings.ToLower(field))
}

// Ended requires an outcome.
func (c *Case) Ended(what string, have, want outcome.Outcome) {
	c.That(have.Kind == want.Kind && have.Cause == want.Cause, "%s ended %v, want %v", what, have, want)
}

// Within requires that f returns within a published bound of the service, and notes
// how long it took.
func (c *Case) Within(bound time.Duration, what string, f func()) time.Duration {
	began := time.Now()
	f()
	took := time.Since(began)
	c.That(took <= bound, "%s took %v; the published bound is %v", what, took, bound)
	return took
}

// Eventually waits, at most Patience, until f returns no error.
func (c *Case) Eventually(what string, f func() error) {
	ctx, cancel := context.WithTimeout(c.Ctx, Patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.Fatalf("%s: %v", what, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Cleanup makes f run at the behaviour's end, the last one first.
func (c *Case) Cleanup(f func()) { c.last = append(c.last, f) }

func (c *Case) cleanUp() {
	for i := len(c.last) - 1; i >= 0; i-- {
		c.last[i]()
	}
}

// Count is the number of repetitions: short in Short, full in Full.
func (c *Case) Count(short, full int) int {
	if c.Size == Full {
		return full
	}
	return short
}

// brief is a context for a call without a bound of its own.
func (c *Case) brief() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Ctx, Patience)
}

// get requires a value and no error.
func get[T any](c *Case, what string) func(T, error) T {
	return func(v T, err error) T {
		c.Must(err, "%s", what)
		return v
	}
}
