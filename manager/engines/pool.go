package engines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Times bound the waits for an engine.
type Times struct {
	// Ready is from the spawn to the end of the self-test. Beside a tenant that hangs, a device
	// opens seconds late (docs/gpus.md, section 11).
	Ready time.Duration
	// Test is for a known answer.
	Test time.Duration
	// Death is from a kill until the process is reaped. A process with an endless launch took
	// up to 6.1 s (docs/gpus.md, section 10).
	Death time.Duration
}

// DefaultTimes are for GPUs of this day.
var DefaultTimes = Times{Ready: 20 * time.Second, Test: 8 * time.Second, Death: 15 * time.Second}

// Config configures a Pool.
type Config struct {
	Device string // for logs and the audit log
	Most   int    // open engines, besides the one that waits
	// Spawn starts a process with the descriptors 3, its link, and 4, its control socket.
	Spawn func(link, control *os.File) (Process, error)
	// Record writes the audit log.
	Record  func(kind, detail string) error
	Journal *Journal
	Times   Times // zero: DefaultTimes
	Log     *slog.Logger
}

// Pool is the engines of one function.
type Pool struct {
	cfg     Config
	ctx     context.Context // ended by Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	trouble chan error    // holds the loss
	probing chan struct{} // held by one test of the device

	mu sync.Mutex
	// changed is closed, and made anew, when one of the fields below has changed.
	// +checklocks:mu
	changed chan struct{}
	// +checklocks:mu
	alive map[*Engine]struct{} // not reaped
	// +checklocks:mu
	groups map[uint32]*Engine // open
	// +checklocks:mu
	waiting *Engine // the standby; nil: none
	// +checklocks:mu
	period context.Context // of a driver's epoch; nil: no engine is wanted
	// +checklocks:mu
	endPeriod context.CancelFunc
	// +checklocks:mu
	starting bool // an engine, or its pause
	// +checklocks:mu
	failures uint64 // engines that ended before they were opened
	// +checklocks:mu
	failure error // of the last of these
	// +checklocks:mu
	lost error
	// +checklocks:mu
	last, tests uint64 // numbers
}

// New returns a pool without engines.
func New(cfg Config) *Pool {
	if cfg.Times == (Times{}) {
		cfg.Times = DefaultTimes
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{
		cfg: cfg, trouble: make(chan error, 1), probing: make(chan struct{}, 1), changed: make(chan struct{}),
		alive: map[*Engine]struct{}{}, groups: map[uint32]*Engine{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.runStandby)
	return p
}

// Most is how many engines may be open.
func (p *Pool) Most() int { return p.cfg.Most }

// Trouble delivers the loss of the device.
func (p *Pool) Trouble() <-chan error { return p.trouble }

// Begin starts a period in which engines are granted: an epoch of a driver.
func (p *Pool) Begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.lost != nil:
		return p.lost
	case p.ctx.Err() != nil:
		return errClosed
	}
	if p.period == nil {
		p.period, p.endPeriod = context.WithCancel(p.ctx)
		p.changedLocked()
	}
	return nil
}

// End ends the period and kills every engine. It returns when all are dead and reaped. An
// error says that this, or what the device does now, is not known.
func (p *Pool) End() error {
	p.mu.Lock()
	if p.period != nil {
		p.endPeriod()
		p.period, p.endPeriod = nil, nil
	}
	p.changedLocked()
	for p.starting { // it ends with its period
		_ = p.awaitLocked(context.Background())
	}
	p.mu.Unlock()

	err := p.killAll("its driver has ended")
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.lost, err)
}

// Close ends everything. Idempotent.
func (p *Pool) Close() error {
	p.cancel()
	err := p.End()
	if err == nil { // else a process is left, and runEnd waits for it
		p.running.Wait()
	}
	return err
}

var (
	errClosed = gpuerr.New(gpuerr.Closed, "the function was given back")
	errEnded  = gpuerr.New(gpuerr.Revoked, "the driver of these engines has ended")
)

// +checklocks:p.mu
func (p *Pool) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// record writes an audit record.
func (p *Pool) record(kind, detail string) error {
	if err := p.cfg.Record(kind, p.cfg.Device+" "+detail); err != nil {
		return gpuerr.New(gpuerr.IO, "the audit log cannot be written, so no engine is granted: %v", err)
	}
	return nil
}

// Open gives a group its engine: the one that waits, or the next that does. It fails with
// gpuerr.Busy where the group has one, or as many as the policy allows are open.
func (p *Pool) Open(ctx context.Context, group uint32) (*Engine, error) {
	e, err := p.take(ctx, group)
	if err != nil {
		return nil, err
	}
	if err := p.record("engine.open", fmt.Sprintf("pid=%d engine=%d group=%d driver=%q", e.process.PID(), e.number, group, shown(e.device.Driver))); err != nil {
		p.end(e, "the audit log takes no record")
		return nil, err
	}
	return e, nil
}

func (p *Pool) take(ctx context.Context, group uint32) (*Engine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failures := p.failures
	for {
		switch {
		case p.lost != nil:
			return nil, p.lost
		case p.period == nil:
			return nil, errEnded
		case p.groups[group] != nil:
			return nil, gpuerr.New(gpuerr.Busy, "group %d has an engine", group)
		case len(p.groups) >= p.cfg.Most:
			return nil, gpuerr.New(gpuerr.Busy, "%d engines are open, as many as the policy allows (functions[].engines.most)", p.cfg.Most)
		case p.failures > failures:
			return nil, p.failure
		}
		if e := p.waiting; e != nil && !e.testing {
			p.waiting = nil
			e.group, e.open = group, true
			p.groups[group] = e
			p.changedLocked()
			return e, nil
		}
		if err := p.awaitLocked(ctx); err != nil {
			return nil, err
		}
	}
}

// awaitLocked waits for a change.
//
// +checklocks:p.mu
func (p *Pool) awaitLocked(ctx context.Context) error {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pauses before another engine is started after one that did not start.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 5 * time.Second
)

// runStandby starts the engine that waits, whenever there is none.
func (p *Pool) runStandby() {
	pause, seen := firstPause, uint64(0)
	for {
		period, failures := p.awaitWanted()
		if period == nil {
			return
		}
		if failures == seen {
			pause = firstPause
		} else {
			sleep(period, pause)
			pause = min(2*pause, maxPause)
		}
		seen = failures

		e, err := p.start(period)
		switch {
		case err == nil:
			p.offer(period, e)
		case period.Err() == nil:
			p.failed(fmt.Errorf("an engine did not start: %w", err))
		}
		p.mu.Lock()
		p.starting = false
		p.changedLocked()
		p.mu.Unlock()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// failed counts an engine that ended before it was opened.
func (p *Pool) failed(err error) {
	p.cfg.Log.Warn("no engine waits", "err", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures++
	p.failure = gpuerr.New(gpuerr.IO, "%v", err)
	p.changedLocked()
}

// awaitWanted returns the period for which an engine is wanted, which counts as starting from
// then on; nil: the pool is closed.
func (p *Pool) awaitWanted() (period context.Context, failures uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.period == nil || p.lost != nil || p.waiting != nil {
		if p.awaitLocked(p.ctx) != nil {
			return nil, 0
		}
	}
	p.starting = true
	return p.period, p.failures
}

// offer lets an engine wait, unless it is dead or nobody wants it any more.
func (p *Pool) offer(period context.Context, e *Engine) {
	p.mu.Lock()
	_, alive := p.alive[e]
	good := alive && e.why == "" && period.Err() == nil
	if good {
		p.waiting = e
		p.changedLocked()
	}
	p.mu.Unlock()
	if !good {
		p.end(e, "nobody wants it")
		return
	}
	p.cfg.Log.Info("an engine waits", "pid", e.process.PID(), "engine", e.number, "device", shown(e.device.Name), "driver", shown(e.device.Driver))
}

// runEnd waits for the end of a process and cleans up behind it.
func (p *Pool) runEnd(e *Engine) {
	<-e.process.Exited()
	p.mu.Lock()
	group, why := "none", e.why
	if e.open {
		group = fmt.Sprint(e.group)
		delete(p.groups, e.group)
	}
	stood := p.waiting == e
	if stood {
		p.waiting = nil
	}
	delete(p.alive, e)
	link, ended := e.link, e.ended
	e.link, e.ended = -1, nil
	close(e.done)
	p.changedLocked()
	p.mu.Unlock()

	if why == "" {
		why = "by itself"
		if stood {
			p.failed(fmt.Errorf("an engine ended while it waited: %v", e.process.Reason()))
		}
	}
	_ = e.control.Close()
	if link >= 0 {
		unix.Close(link)
	}
	p.cfg.Journal.remove(e.process.PID())
	if err := p.record("engine.end", fmt.Sprintf("pid=%d engine=%d group=%s lived=%v why=%q how=%q", e.process.PID(), e.number, group,
		time.Since(e.began).Round(time.Millisecond), why, shown(fmt.Sprint(e.process.Reason())))); err != nil {
		p.cfg.Log.Error("write the audit log", "kind", "engine.end", "err", err)
	}
	_ = ended.Close() // nil does no harm
}
