package difftest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/ddf/fake"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Options says how much is run.
type Options struct {
	Submissions uint64 // in all
	Workers     int    // devices, each with a client at a time; 0: one for each CPU
	Seed        uint64
}

// Result is what was done. All of it was as the model says.
type Result struct {
	Submissions uint64 // compared
	Accepted    uint64 // that the device was given
	Sessions    uint64
	Breaches    uint64 // queues that were ended by a tail that lies
	Scribbled   uint64 // batches that were written over while the device had the first of them
	Here        uint64 // jobs that the device ran on the caller's goroutine
	Took        time.Duration
	Codes       map[gpuerr.Code]uint64  // how many were refused with which; E_NONE: not
	Ended       map[outcome.Kind]uint64 // how many ended how
}

// How often what happens, in batches.
const (
	changeEvery   = 24
	scribbleEvery = 16
	breachEvery   = 256
	sessionEvery  = 512
	specialFor    = 256 // of a session that can do less
)

// Run compares, and stops at the first divergence.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	began := time.Now()
	r.Codes, r.Ended = map[gpuerr.Code]uint64{}, map[outcome.Kind]uint64{}
	var left atomic.Int64
	left.Store(int64(o.Submissions))
	results, errs := make([]Result, o.Workers), make([]error, o.Workers)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for i := range o.Workers {
		wg.Go(func() {
			w := worker{seed: o.Seed, number: i, left: &left, result: &results[i]}
			if errs[i] = w.run(ctx); errs[i] != nil {
				errs[i] = fmt.Errorf("seed %d, worker %d, batch %d: %w", o.Seed, i, w.batches, errs[i])
				stop()
			}
		})
	}
	wg.Wait()
	for i := range results {
		r.Submissions += results[i].Submissions
		r.Accepted += results[i].Accepted
		r.Sessions += results[i].Sessions
		r.Breaches += results[i].Breaches
		r.Scribbled += results[i].Scribbled
		r.Here += results[i].Here
		add(r.Codes, results[i].Codes)
		add(r.Ended, results[i].Ended)
	}
	r.Took = time.Since(began)
	return r, errors.Join(errs...)
}

func add[K comparable](to, from map[K]uint64) {
	for k, n := range from {
		to[k] += n
	}
}

// worker has a device, and one session on it after the other.
type worker struct {
	seed    uint64
	number  int
	left    *atomic.Int64
	result  *Result
	batches uint64
}

func (w *worker) run(ctx context.Context) error {
	c := &client{}
	c.r = rand.New(rand.NewPCG(w.seed, uint64(w.number)))
	for i := w.number; w.left.Load() > 0 && ctx.Err() == nil; i++ {
		if err := w.device(ctx, c, i); err != nil {
			return err
		}
	}
	w.result.Codes, w.result.Ended = map[gpuerr.Code]uint64{}, map[outcome.Kind]uint64{}
	for i, n := range c.codes {
		if n > 0 {
			w.result.Codes[gpuerr.Code(i)] = n
		}
	}
	for i, n := range c.ended {
		if n > 0 {
			w.result.Ended[outcome.Kind(i)] = n
		}
	}
	return nil
}

// device is the life of one: some sessions, one of each kind among them.
func (w *worker) device(ctx context.Context, c *client, i int) (err error) {
	fn, err := fake.New(fake.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fn.Close()) }()
	null, b := backendOf(i)
	dev, err := gpu.New(gpu.Config{Backend: b, DMA: fn.Grants().DMA})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, dev.Close(context.WithoutCancel(ctx)))
		w.result.Here += null.ran.Load()
	}()
	c.dev = null
	for round := 0; round < 2*int(numKinds) && w.left.Load() > 0 && ctx.Err() == nil; round++ {
		k := full
		if round%2 == 1 {
			k = kind(round / 2)
		}
		if err := w.session(ctx, c, dev, k); err != nil {
			return err
		}
	}
	return nil
}

// session is the life of one.
func (w *worker) session(ctx context.Context, c *client, dev *gpu.Device, k kind) error {
	before := c.dev.jobs.Load()
	if err := c.open(dev, k); err != nil {
		return err
	}
	w.result.Sessions++
	var under *batch // what the driver has
	settle := func() error {
		if under == nil {
			return nil
		}
		b := under
		under = nil
		w.left.Add(-int64(b.n))
		w.result.Submissions += uint64(b.n)
		return c.compare(b)
	}
	batches := sessionEvery
	if k != full {
		batches = specialFor
	}
	for i := 1; i <= batches && w.left.Load() > 0 && ctx.Err() == nil; i++ {
		w.batches++
		b := &c.batches[i%2]
		most := queueEntries
		if c.n(2) > 0 { // what fails takes the rest of its batch along
			most = 8
		}
		c.make(b, 1+c.n(most), i%scribbleEvery == 0) // while the driver has the last one
		if err := settle(); err != nil {
			return err
		}
		if err := c.publish(b); err != nil {
			return err
		}
		under = b
		if b.scribble {
			w.result.Scribbled++
		}
		if i%changeEvery != 0 && i%breachEvery != 0 {
			continue
		}
		if err := settle(); err != nil {
			return err
		}
		if err := w.between(c, i, c.dev.jobs.Load()-before); err != nil {
			return err
		}
	}
	if err := settle(); err != nil {
		return err
	}
	w.result.Accepted += c.model.Jobs
	return c.close()
}

// between is what happens while the driver has nothing.
func (w *worker) between(c *client, i int, given uint64) error {
	if err := c.books(given); err != nil {
		return err
	}
	if i%breachEvery == 0 && c.kind != poisoned { // which gets no other queue
		w.result.Breaches++
		return c.breach()
	}
	return c.change()
}

// awaitEnd waits until the driver has ended the ring.
func (q *queue) awaitEnd(code gpuerr.Code) error {
	for deadline := time.Now().Add(patience); q.ring.state() == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			return errors.New("the driver goes on")
		}
	}
	if got := gpuerr.Code(q.ring.state()); got != code {
		return fmt.Errorf("the ring ended with %v", got)
	}
	return nil
}
