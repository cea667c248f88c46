package llama

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/outcome"
)

// Model is a model in a session.
type Model struct {
	session  *client.Session
	b        *Blueprint
	size     Size
	programs map[string]*client.Program
	buffers  []*client.Buffer // as in the blueprint; nil if not made
	queue    *client.Queue
	routines *routines
	pool     pool

	// Memory that the device writes and reads too.
	shared struct {
		tokens, rows, history   []uint32
		logits, counted, vector []float32
	}

	ended error // why there are no more passes

	// The passes of the goroutine that steps.
	steps struct {
		step      uint64        // counts calls of Step; see Sequence.stamp
		asked     int           // logits of the last Step
		onWay     int           // commands without a completion yet
		passTime  time.Duration // device time of one pass of Greedy; 0 before the first
		flight    flight
		done      [32]client.Completion
		embedding []Row
	}

	deviceNanos atomic.Int64
}

// Info describes a loaded model; it does not change.
type Info struct {
	Size
	Config        model.Config
	Sequences     int
	Context       int // positions of one sequence at most
	Batch         int // rows of a Step at most
	PagePositions int
}

// Info returns what does not change.
func (m *Model) Info() Info {
	o := &m.b.options
	return Info{Size: m.size, Config: m.b.config, Sequences: o.Sequences, Context: o.Context, Batch: o.Batch, PagePositions: o.PagePositions}
}

// DeviceTime is the device time of all passes, as charged. It may be called from
// any goroutine.
func (m *Model) DeviceTime() time.Duration { return time.Duration(m.deviceNanos.Load()) }

// Err returns why the Model runs no more passes; nil while it does.
func (m *Model) Err() error { return m.ended }

// usable returns why there are no more passes.
func (m *Model) usable(ctx context.Context) error {
	if m.ended != nil {
		return fmt.Errorf("the model is of no use any more: %w", m.ended)
	}
	return ctx.Err()
}

// end makes the model unusable, and returns the reason.
func (m *Model) end(err error) error {
	if m.ended == nil {
		m.ended = err
	}
	return err
}

// submit starts routines, in order. An error ends the model.
func (m *Model) submit(r *routine) error {
	if _, err := m.queue.Submit(r.commands...); err != nil {
		return m.end(m.reason(err))
	}
	m.steps.onWay += len(r.commands)
	return nil
}

// collect waits for some of the commands in flight and returns how many have ended,
// all of them ok. When ctx ends first, collect cancels all of them and returns the
// error of ctx. Any other error ends the model.
func (m *Model) collect(ctx context.Context) (n int, err error) {
	n, err = m.queue.Completions(ctx, m.steps.done[:min(m.steps.onWay, len(m.steps.done))])
	if err != nil {
		if ctx.Err() == nil {
			return 0, m.end(m.reason(err))
		}
		if failed := m.cancel(ctx); failed != nil {
			return 0, m.end(failed)
		}
		return 0, err
	}

	m.steps.onWay -= n
	for i := range m.steps.done[:n] {
		c := &m.steps.done[i]
		m.deviceNanos.Add(int64(c.DeviceTime))
		if c.Err != nil || c.Outcome.Kind != outcome.OK {
			err := m.end(m.failure(c))
			// Nobody may reuse the bound buffers while something runs.
			_ = m.cancel(ctx)
			return 0, err
		}
	}

	return n, nil
}

// kept ends the model if the memory that it shares with the device may have been
// scrubbed. Values read from it until now are then useless.
func (m *Model) kept() error {
	if err := m.queue.Err(); err != nil {
		return m.end(m.reason(err))
	}
	return nil
}

// cancelTime bounds how long a cancelled pass takes to end.
const cancelTime = 10 * time.Second

// cancel ends everything in flight, and returns when nothing is. The error is that
// of a command that ended neither as cancelled nor ok.
func (m *Model) cancel(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	if err := m.queue.Cancel(ctx); err != nil {
		return err
	}

	var failed error
	for m.steps.onWay > 0 {
		n, err := m.queue.Completions(ctx, m.steps.done[:min(m.steps.onWay, len(m.steps.done))])
		if err != nil {
			return err
		}
		m.steps.onWay -= n
		for i := range m.steps.done[:n] {
			c := &m.steps.done[i]
			m.deviceNanos.Add(int64(c.DeviceTime))
			if kind := c.Outcome.Kind; failed == nil && (c.Err != nil || kind != outcome.OK && kind != outcome.Cancelled) {
				failed = m.failure(c)
			}
		}
	}

	return failed
}

// run runs a routine from its start to its end.
func (m *Model) run(ctx context.Context, parts ...*routine) error {
	for _, r := range parts {
		if err := m.submit(r); err != nil {
			return err
		}
	}
	return m.drain(ctx)
}

// drain waits for everything in flight.
func (m *Model) drain(ctx context.Context) error {
	for m.steps.onWay > 0 {
		if _, err := m.collect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reasonTime limits how long the session may take to report the reason of its end.
const reasonTime = 5 * time.Second

// reason returns why the session ended, if err reports that it was ended. A queue
// learns of that before the session does, and knows no reason.
func (m *Model) reason(err error) error {
	if !errors.Is(err, gpuerr.Revoked) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reasonTime)
	defer cancel()
	if _, asked := m.session.Describe(ctx); asked != nil && ctx.Err() == nil {
		return asked
	}
	return err
}

// failure translates the end of a pass that is not ok.
func (m *Model) failure(c *client.Completion) error {
	if err := m.session.Err(); err != nil {
		return err
	}
	if c.Err != nil {
		return fmt.Errorf("a pass was refused: %w", c.Err)
	}

	how := &client.OutcomeError{Outcome: c.Outcome}
	code := gpuerr.None
	switch c.Outcome.Kind {
	case outcome.DeviceLost:
		code = gpuerr.DeviceLost
	case outcome.Revoked:
		code = gpuerr.Revoked
	}

	switch c.Outcome.Cause {
	case outcome.TrapCause, outcome.IOMMUFault, outcome.Poisoned:
		code = gpuerr.Poisoned
	}

	if code == gpuerr.None {
		return fmt.Errorf("a pass: %w", how)
	}

	return m.reason(fmt.Errorf("%w: a pass: %w", code, how))
}

// Close frees everything that the model has in its session. Slices that Logits
// returned become invalid, and so do the sequences. Closing again does nothing.
func (m *Model) Close(ctx context.Context) error {
	if m.ended == nil {
		m.ended = gpuerr.New(gpuerr.Closed, "the model is closed")
	}

	m.pool.close()
	var errs []error
	if m.routines != nil {
		for _, r := range m.routines.all() {
			for _, l := range r.lists {
				errs = append(errs, l.Close(ctx))
			}
			r.lists, r.commands = nil, nil
		}
	}

	if m.queue != nil {
		errs = append(errs, m.queue.Close(ctx))
	}

	m.shared.tokens, m.shared.rows, m.shared.history, m.shared.logits, m.shared.counted, m.shared.vector = nil, nil, nil, nil, nil, nil
	errs = append(errs, m.closeBuffers(ctx))
	for name, p := range m.programs {
		errs = append(errs, p.Close(ctx))
		delete(m.programs, name)
	}

	return errors.Join(errs...)
}

func (m *Model) closeBuffers(ctx context.Context) error {
	var errs []error
	for i, b := range m.buffers {
		if b != nil {
			errs = append(errs, b.Unmap(), b.Close(ctx))
			m.buffers[i] = nil
		}
	}
	return errors.Join(errs...)
}
