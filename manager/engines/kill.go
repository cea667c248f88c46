package engines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"capgpu/gpuerr"
)

// Kill ends the process. It returns nil when it is dead and reaped and the device has
// answered a launch of another engine; it is idempotent. If ctx ends earlier, that goes on
// all the same.
func (e *Engine) Kill(ctx context.Context) error {
	e.killOnce.Do(func() {
		e.pool.running.Go(func() {
			defer close(e.killed)
			e.killErr = e.pool.kill(e)
		})
	})
	select {
	case <-e.killed:
		return e.killErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Abandon ends the process of an engine that no driver holds any more, and does not wait.
func (e *Engine) Abandon() { e.pool.end(e, "its driver has dropped it") }

// end kills a process and does not wait.
func (p *Pool) end(e *Engine, why string) {
	p.mu.Lock()
	if e.why == "" && !isDone(e.done) {
		e.why = why
	}
	p.mu.Unlock()
	e.process.Kill()
}

func (p *Pool) kill(e *Engine) error {
	p.mu.Lock()
	period, why := p.period, "its driver asked"
	if isDone(e.done) {
		why = "" // it died by itself
	}
	p.mu.Unlock()
	if period == nil {
		return errEnded
	}

	if why != "" {
		if err := p.record("engine.kill", fmt.Sprintf("pid=%d engine=%d group=%d why=%q", e.process.PID(), e.number, e.group, why)); err != nil {
			p.cfg.Log.Error("write the audit log", "kind", "engine.kill", "err", err) // the kill must not wait for it
		}
		p.end(e, why)
	}
	if err := p.awaitDeath(e, time.Now().Add(p.cfg.Times.Death)); err != nil {
		return p.lose(err)
	}
	return p.probe(period)
}

// awaitDeath waits until the process is reaped.
func (p *Pool) awaitDeath(e *Engine, deadline time.Time) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-e.done:
		return nil
	case <-timer.C:
		return gpuerr.New(gpuerr.IO, "engine process %d was killed and is not dead after %v; the kernel's driver holds it", e.process.PID(), p.cfg.Times.Death)
	}
}

// killAll kills every process and waits for all of them.
func (p *Pool) killAll(why string) error {
	p.mu.Lock()
	var all []*Engine
	for e := range p.alive {
		all = append(all, e)
	}
	p.mu.Unlock()
	for _, e := range all {
		p.end(e, why)
	}
	deadline := time.Now().Add(p.cfg.Times.Death)
	var errs []error
	for _, e := range all {
		errs = append(errs, p.awaitDeath(e, deadline))
	}
	return errors.Join(errs...)
}

// probe returns nil when the device has answered a launch. The first time that it does not,
// all engines are killed: a launch of a dead process may have stayed on the device.
func (p *Pool) probe(period context.Context) error {
	select {
	case p.probing <- struct{}{}:
		defer func() { <-p.probing }()
	case <-period.Done():
		return errEnded
	}

	for again := true; ; again = false {
		p.mu.Lock()
		lost := p.lost
		p.mu.Unlock()
		if lost != nil {
			return lost
		}
		err := p.testNext(period)
		switch {
		case err == nil:
			return nil
		case period.Err() != nil:
			return errEnded
		case !again:
			return p.lose(err)
		}
		p.note("engine.test", fmt.Sprintf("failed=%q then=%q", shown(err.Error()), "all engines are killed"))
		if err := p.killAll("the device did not answer a test"); err != nil {
			return p.lose(err)
		}
	}
}

// note records an event of the past.
func (p *Pool) note(kind, detail string) {
	p.cfg.Log.Warn(kind, "detail", detail)
	if err := p.record(kind, detail); err != nil {
		p.cfg.Log.Error("write the audit log", "kind", kind, "err", err)
	}
}

// testNext tests the engine that waits, or the next that does. An engine that fails is ended.
func (p *Pool) testNext(period context.Context) error {
	ctx, cancel := context.WithTimeout(period, p.cfg.Times.Ready+p.cfg.Times.Death)
	defer cancel()
	e, n, err := p.takeForTest(ctx)
	if err != nil {
		return fmt.Errorf("no engine can be asked whether the device answers: %w", err)
	}

	err = e.test(ctx, n)
	p.mu.Lock()
	e.testing = false
	p.changedLocked()
	p.mu.Unlock()
	if err != nil {
		err = e.exitOr(err)
		p.end(e, "it failed a test")
	}
	return err
}

// takeForTest keeps the engine that waits from being opened.
func (p *Pool) takeForTest(ctx context.Context) (e *Engine, n uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failures := p.failures
	for p.waiting == nil {
		if p.failures > failures {
			return nil, 0, p.failure
		}
		if err := p.awaitLocked(ctx); err != nil {
			return nil, 0, err
		}
	}
	p.tests++
	p.waiting.testing = true
	return p.waiting, p.tests, nil
}

// lose gives the device up, and says what an operator can do.
func (p *Pool) lose(cause error) error {
	err := gpuerr.New(gpuerr.IO, "the device does not answer after its engines were killed: %v; reset the GPU with its vendor's tool (nvidia-smi --gpu-reset, amdgpu_gpu_recover in debugfs) or restart the host, and look into the kernel's log", cause)
	p.mu.Lock()
	first := p.lost == nil
	if first {
		p.lost = err
		p.changedLocked()
	}
	err2 := p.lost
	p.mu.Unlock()
	if first {
		p.note("engine.lost", fmt.Sprintf("cause=%q", shown(cause.Error())))
		p.trouble <- err
	}
	return err2
}

// Named is an engine that a report of the kernel names.
type Named struct {
	Engine uint64
	Group  uint32
	Open   bool
}

// Find returns the engine with a process; false: it is none of the pool.
func (p *Pool) Find(pid int) (Named, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := range p.alive {
		if e.process.PID() == pid {
			return Named{e.number, e.group, e.open}, true
		}
	}
	return Named{}, false
}

// Blame ends the engine with a process: the kernel's driver reports a fault of it. It may hold
// neighbours up for as long as it lives (docs/gpus.md, section 11).
func (p *Pool) Blame(pid int, why string) {
	p.mu.Lock()
	var guilty *Engine
	for e := range p.alive {
		if e.process.PID() == pid {
			guilty = e
		}
	}
	p.mu.Unlock()
	if guilty != nil {
		p.end(guilty, why)
	}
}
