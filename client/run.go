package client

import (
	"context"
	"fmt"

	"capgpu/outcome"
)

// OutcomeError is work that ended otherwise than ok.
type OutcomeError struct{ Outcome outcome.Outcome }

func (e *OutcomeError) Error() string { return fmt.Sprintf("the work ended %v", e.Outcome) }

// Run submits commands to a queue that has no other work and no other caller that
// takes completions, and waits until all have ended. The error is the first that
// was refused, or an *OutcomeError of the first that did not end ok. When ctx ends
// first the work is neither stopped nor known: cancel or close the queue.
func (q *Queue) Run(ctx context.Context, cmds ...Command) error {
	if _, err := q.Submit(cmds...); err != nil {
		return err
	}
	var first error
	for left := len(cmds); left > 0; {
		var done [16]Completion
		n, err := q.Completions(ctx, done[:min(left, len(done))])
		if err != nil {
			return err
		}
		left -= n
		for _, c := range done[:n] {
			if first == nil {
				first = c.failure()
			}
		}
	}
	return first
}

// failure is why a command was refused, or did not end ok.
func (c *Completion) failure() error {
	if c.Err == nil && c.Outcome.Kind != outcome.OK {
		return &OutcomeError{c.Outcome}
	}
	return c.Err
}
