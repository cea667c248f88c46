package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"capgpu/gpuerr"
)

// checkBound is how long one check may take. The emulated guest is slow; what
// the service promises is checked against its own, tighter bounds.
const checkBound = 20 * time.Second

// failure ends a check.
type failure struct{ why string }

// check is one line of the transcript.
type check struct {
	*smoke
	ctx    context.Context
	detail string
}

// check runs f and prints one line: "ok N - name: detail" or "not ok N - name:
// why". A panic of f is a failure of the check.
func (s *smoke) check(name string, f func(c *check)) {
	s.count++
	ctx, cancel := context.WithTimeout(context.Background(), checkBound)
	defer cancel()
	c := &check{smoke: s, ctx: ctx}
	why := c.attempt(f)
	if why != "" {
		s.failed++
		fmt.Printf("not ok %d - %s: %s\n", s.count, name, why)
		if s.broken != "" {
			// A run that was broken on purpose has shown what it had to.
			os.Exit(1)
		}
		return
	}
	if c.detail != "" {
		name += ": " + c.detail
	}
	fmt.Printf("ok %d - %s\n", s.count, name)
}

func (c *check) attempt(f func(c *check)) (why string) {
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

// say sets what the line tells besides the check's name.
func (c *check) say(format string, args ...any) { c.detail = fmt.Sprintf(format, args...) }

func (c *check) fatalf(format string, args ...any) {
	panic(failure{fmt.Sprintf(format, args...)})
}

// must wants no error.
func (c *check) must(err error, doing string) {
	if err != nil {
		c.fatalf("%s: %v", doing, err)
	}
}

// that wants a condition.
func (c *check) that(ok bool, format string, args ...any) {
	if !ok {
		c.fatalf(format, args...)
	}
}

// refused wants an error with one of the given codes.
func (c *check) refused(err error, doing string, want ...gpuerr.Code) {
	if err == nil {
		c.fatalf("%s: was accepted, want %v", doing, want)
	}
	for _, code := range want {
		if errors.Is(err, code) {
			return
		}
	}
	c.fatalf("%s: got %q, want %v", doing, err, want)
}

// get wants a value and no error: get(c, "open a session")(conn.Open(ctx, 0)).
func get[T any](c *check, doing string) func(T, error) T {
	return func(v T, err error) T {
		c.must(err, doing)
		return v
	}
}
