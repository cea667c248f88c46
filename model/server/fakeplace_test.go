package server

import (
	"context"
	"sync"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
)

// fakePlace loads fake engines.
type fakePlace struct {
	z     size
	cost  time.Duration
	delay time.Duration // of loading
	keeps bool          // a revoked session was taken away on purpose

	mu      sync.Mutex
	refuse  error // what load answers
	engines []*fakeEngine
	onLoad  func(e *fakeEngine)
}

func (p *fakePlace) load(ctx context.Context, progress func(done, total uint64)) (*loaded, error) {
	select {
	case <-time.After(p.delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return nil, p.refuse
	}

	progress(10, 10)
	e := newFakeEngine(p.z, p.cost)
	p.engines = append(p.engines, e)
	if p.onLoad != nil {
		p.onLoad(e)
	}

	return &loaded{
		engine: e, over: e.over, device: client.DeviceInfo{Name: "fake0", Epoch: uint64(len(p.engines))},
		why:    e.broken,
		budget: func(context.Context) ([]client.BudgetEntry, error) { return nil, nil },
		close:  func(context.Context) { e.kill(gpuerr.New(gpuerr.Closed, "closed")) },
	}, nil
}

func (p *fakePlace) taken(context.Context) bool { return p.keeps }

func (p *fakePlace) close() {}

func (p *fakePlace) setRefuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

func (p *fakePlace) engine() *fakeEngine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engines[len(p.engines)-1]
}

func (p *fakePlace) loads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.engines)
}
