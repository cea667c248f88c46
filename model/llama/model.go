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
	buffers  []*client.Buffer // as in the blueprint; nil where not made
	queue    *client.Queue
	routines *routines
	pool     pool

	// In memory shared with the device.
	tokens, rows, history   []uint32
	logits, counted, vector []float32

	ended     error         // why there are no more passes
	step      uint64        // counts calls of Step; see Sequence.stamp
	asked     int           // logits of the last Step
	onWay     int           // commands without a completion yet
	passTime  time.Duration // of device time, of one pass of Greedy; 0 before there was one
	flight    flight
	done      [32]client.Completion
	embedding []Row

	deviceNanos atomic.Int64
}

// Info is what does not change about a loaded model.
type Info struct {
	Size
	Config        model.Config
	Sequences     int
	Context       int // positions of one sequence at most
	Batch         int // rows of a Step at most
	PagePositions int
}

// Info is what does not change.
func (m *Model) Info() Info {
	o := &m.b.options
	return Info{Size: m.size, Config: m.b.config, Sequences: o.Sequences, Context: o.Context, Batch: o.Batch, PagePositions: o.PagePositions}
}

// DeviceTime is what all passes took on the device, as charged. It may be called from
// any goroutine.
func (m *Model) DeviceTime() time.Duration { return time.Duration(m.deviceNanos.Load()) }

// Err says why the Model runs no more passes; nil while it does.
func (m *Model) Err() error { return m.ended }

// usable says why there are no more passes.
func (m *Model) usable(ctx context.Context) error {
	if m.ended != nil {
		return fmt.Errorf("the model is of no use any more: %w", m.ended)
	}
	return ctx.Err()
}

// end makes the model unusable, and returns why.
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
	m.onWay += len(r.commands)
	return nil
}

// collect waits for some of what is on its way and returns how many commands have ended,
// all of them ok. When ctx ends first, all of it is cancelled, and the error is that of
// ctx; any other error ends the model.
func (m *Model) collect(ctx context.Context) (n int, err error) {
	n, err = m.queue.Completions(ctx, m.done[:min(m.onWay, len(m.done))])
	if err != nil {
		if ctx.Err() == nil {
			return 0, m.end(m.reason(err))
		}
		if failed := m.cancel(ctx); failed != nil {
			return 0, m.end(failed)
		}
		return 0, err
	}
	m.onWay -= n
	for i := range m.done[:n] {
		c := &m.done[i]
		m.deviceNanos.Add(int64(c.DeviceTime))
		if c.Err != nil || c.Outcome.Kind != outcome.OK {
			err := m.end(m.failure(c))
			// Nobody may reuse what is bound while something runs.
			_ = m.cancel(ctx)
			return 0, err
		}
	}
	return n, nil
}

// kept ends the model where the memory that it shares with the device may have been
// scrubbed: what was read from it until now is of no use then.
func (m *Model) kept() error {
	if err := m.queue.Err(); err != nil {
		return m.end(m.reason(err))
	}
	return nil
}

// cancelTime is how long a pass may take to end when it is told to.
const cancelTime = 10 * time.Second

// cancel ends what is on its way, and returns when nothing is. The error is what did not
// end as cancelled, or ok.
func (m *Model) cancel(ctx context.Context) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer stop()
	if err := m.queue.Cancel(ctx); err != nil {
		return err
	}
	var failed error
	for m.onWay > 0 {
		n, err := m.queue.Completions(ctx, m.done[:min(m.onWay, len(m.done))])
		if err != nil {
			return err
		}
		m.onWay -= n
		for i := range m.done[:n] {
			c := &m.done[i]
			m.deviceNanos.Add(int64(c.DeviceTime))
			if kind := c.Outcome.Kind; failed == nil && (c.Err != nil || kind != outcome.OK && kind != outcome.Cancelled) {
				failed = m.failure(c)
			}
		}
	}
	return failed
}

// run is a routine from its start to its end.
func (m *Model) run(ctx context.Context, parts ...*routine) error {
	for _, r := range parts {
		if err := m.submit(r); err != nil {
			return err
		}
	}
	return m.drain(ctx)
}

// drain waits for all that is on its way.
func (m *Model) drain(ctx context.Context) error {
	for m.onWay > 0 {
		if _, err := m.collect(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reasonTime is how long the session may take to say why it ended.
const reasonTime = 5 * time.Second

// reason is why the session ended, where err says that it was ended: a queue hears of
// that before the session does, and knows no reason.
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

// failure is what the end of a pass that is not ok means.
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

// Close gives back all that the model has in its session. Slices that Logits returned
// end with it, and so do the sequences. Closing again does nothing.
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
	m.tokens, m.rows, m.history, m.logits, m.counted, m.vector = nil, nil, nil, nil, nil, nil
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
