// Package tap runs the checks of a guest: each is one line of the transcript, in
// the manner of the Test Anything Protocol: "ok N - name: detail" or "not ok N -
// name: why".
package tap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"capgpu/gpuerr"
)

// Bound is how long one check may take. The emulated guest is slow, and its host may be busy;
// the promises of the service are checked against its own, tighter bounds.
const Bound = 5 * time.Minute

// Suite counts checks. They run one after another.
type Suite struct {
	Count, Failed int
	// Broken: the run was sabotaged, and the first check that fails has shown that it is
	// noticed.
	Broken bool
}

// Check is one of them, while it runs. Its context ends with its time.
type Check struct {
	Ctx    context.Context
	detail string
}

// failure ends a check.
type failure struct{ why string }

// Check runs f and prints its line. A panic of f is a failure of the check.
func (s *Suite) Check(name string, f func(c *Check)) {
	s.Count++
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	c := &Check{Ctx: ctx}
	if why := c.attempt(f); why != "" {
		s.Failed++
		fmt.Printf("not ok %d - %s: %s\n", s.Count, name, why)
		if s.Broken {
			os.Exit(1)
		}
		return
	}

	if c.detail != "" {
		name += ": " + c.detail
	}

	fmt.Printf("ok %d - %s\n", s.Count, name)
}

// Tell writes the number of checks to descriptor 3 for the guest's init, so that a program
// which exits early with status 0 is noticed. It is the last act.
func (s *Suite) Tell() error {
	_, err := fmt.Fprintf(os.NewFile(3, "count"), "%d checks\n", s.Count)
	return err
}

func (c *Check) attempt(f func(c *Check)) (why string) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			why = p.why
		default:
			why = fmt.Sprintf("panic: %v", p)
		}
	}()
	f(c)
	return ""
}

// Say sets the text of the line after the check's name.
func (c *Check) Say(format string, args ...any) { c.detail = fmt.Sprintf(format, args...) }

// Fatalf ends the check: it has failed. Only for the goroutine that runs it.
func (c *Check) Fatalf(format string, args ...any) {
	panic(failure{fmt.Sprintf(format, args...)})
}

// Must wants no error.
func (c *Check) Must(err error, doing string) {
	if err != nil {
		c.Fatalf("%s: %v", doing, err)
	}
}

// That wants a condition.
func (c *Check) That(ok bool, format string, args ...any) {
	if !ok {
		c.Fatalf(format, args...)
	}
}

// Refused wants an error with one of the given codes.
func (c *Check) Refused(err error, doing string, want ...gpuerr.Code) {
	if err == nil {
		c.Fatalf("%s: was accepted, want %v", doing, want)
	}
	for _, code := range want {
		if errors.Is(err, code) {
			return
		}
	}
	c.Fatalf("%s: got %q, want %v", doing, err, want)
}

// Get wants a value and no error: Get(c, "open a session")(conn.Open(ctx, 0)).
func Get[T any](c *Check, doing string) func(T, error) T {
	return func(v T, err error) T {
		c.Must(err, doing)
		return v
	}
}
