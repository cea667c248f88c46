package gpu

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// burstBackend is a device that does copies, fills and launches (which add 1 to the first
// word of what they are given) at once, by Submit and in bursts, and panics when the core
// breaks a promise: a burst while something else runs, or ids that are used twice.
type burstBackend struct {
	*handBackend
	without bool                           // not a Burster
	unfit   func(*backend.Job) bool        // not for bursts
	alone   func(*backend.Job) bool        // prepared, but must go by Submit
	ends    func(*backend.Job) backend.End // nil: done
	within  func()                         // called in each burst, before the jobs
	slow    bool                           // ends what is submitted after a while, elsewhere

	running   atomic.Int32
	submitted atomic.Int32
	bursts    atomic.Int64
	inBursts  atomic.Int64 // jobs
	prepared  atomic.Int64
	lastID    atomic.Uint64
	wg        sync.WaitGroup
	last      chan struct{} // of the job sent last; Submit is called by one at a time
}

// burster is what New sees of a burstBackend that runs bursts.
type burster struct{ *burstBackend }

func newBurstBackend() *burstBackend { return &burstBackend{handBackend: newHandBackend()} }

type preparedJob struct{ job *backend.Job }

func (b *burster) Prepare(job *backend.Job, old backend.Ready) (backend.Ready, int64, bool) {
	b.prepared.Add(1)
	if b.unfit != nil && b.unfit(job) {
		return nil, 0, false
	}
	if p, ok := old.(*preparedJob); ok {
		p.job = job
		return p, 1000, true
	}
	return &preparedJob{job}, 1000, true
}

func (b *burster) Burst(first backend.JobID, jobs []backend.Ready, ends []backend.End) (n int) {
	if b.running.Add(1) != 1 || b.submitted.Load() != 0 {
		panic("a burst beside other work")
	}
	defer b.running.Add(-1)
	b.bursts.Add(1)
	if b.within != nil {
		b.within()
	}
	for i, r := range jobs {
		j := r.(*preparedJob).job
		if b.alone != nil && b.alone(j) {
			return i
		}
		b.newID(first + backend.JobID(i))
		if j.Context.Trapped() {
			ends[i] = backend.End{Outcome: outcome.Outcome{Kind: outcome.Cancelled}}
			continue
		}
		ends[i] = b.do(j)
		b.inBursts.Add(1)
	}
	return len(jobs)
}

// newID checks that ids grow.
func (b *burstBackend) newID(id backend.JobID) {
	if last := b.lastID.Swap(uint64(id)); last >= uint64(id) {
		panic("an id was used before")
	}
}

func (b *burstBackend) do(j *backend.Job) backend.End {
	took := time.Microsecond
	if b.ends != nil {
		x := b.ends(j)
		took = max(took, x.DeviceTime)
		if x.Outcome != outcome.Success {
			if x.Outcome.Cause == outcome.TrapCause {
				j.Context.Trap()
			}
			return x
		}
	}
	switch to := j.Spans[0].Host; j.Op {
	case backend.OpCopy:
		copy(to, j.Spans[1].Host)
	case backend.OpFill:
		for i := 0; i+4 <= len(to); i += 4 {
			binary.LittleEndian.PutUint32(to[i:], j.Pattern)
		}
	case backend.OpLaunch:
		binary.LittleEndian.PutUint32(to, binary.LittleEndian.Uint32(to)+1)
	}
	return backend.End{Outcome: outcome.Success, DeviceTime: took}
}

func (b *burstBackend) Submit(j *backend.Job) error {
	if b.running.Load() != 0 {
		panic("work is sent while a burst runs")
	}
	b.submitted.Add(1)
	id := j.ID
	end := func() {
		x := backend.End{Outcome: outcome.Outcome{Kind: outcome.Cancelled}}
		if !j.Context.Trapped() {
			x = b.do(j)
		}
		b.submitted.Add(-1)
		b.sink.Complete(backend.Completion{ID: id, Outcome: x.Outcome, DeviceTime: x.DeviceTime})
	}
	if b.slow { // and in order
		before, done := b.last, make(chan struct{})
		b.last = done
		b.wg.Go(func() {
			defer close(done)
			if before != nil {
				<-before
			}
			end()
		})
	} else {
		end()
	}
	return nil
}

func (b *burstBackend) Cancel(backend.JobID) {}

func (b *burstBackend) Close() error { b.wg.Wait(); return nil }

// withBursts is a device of that kind.
func withBursts(b *burstBackend) rigOption {
	if b.without {
		return withBackend(b)
	}
	return withBackend(&burster{b})
}

var _ backend.Burster = (*burster)(nil)
