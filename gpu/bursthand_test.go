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
	counts  func(n int) int                // what is said of how many entries a slice ran

	running   atomic.Int32
	submitted atomic.Int32
	bursts    atomic.Int64
	inBursts  atomic.Int64 // jobs
	slices    atomic.Int64 // of lists
	inSlices  atomic.Int64 // entries
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
		if how := ends[i].Outcome; how.Kind != outcome.OK && how.Cause != outcome.TrapCause {
			return i + 1
		}
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

// doList does entries of a list for so long.
func (b *burstBackend) doList(list []backend.Job, most time.Duration) (n int, all backend.End) {
	all.Outcome = outcome.Success
	for n < len(list) && all.Outcome == outcome.Success && all.DeviceTime < most {
		x := b.do(&list[n])
		all.Outcome = x.Outcome
		all.DeviceTime += x.DeviceTime
		n++
	}
	return n, all
}

func (b *burster) BurstList(job *backend.Job, from int, most time.Duration) (n int, end backend.End) {
	if b.running.Add(1) != 1 || b.submitted.Load() != 0 {
		panic("a burst beside other work")
	}
	defer b.running.Add(-1)
	b.newID(job.ID)
	if b.within != nil {
		b.within()
	}
	if job.Context.Trapped() {
		return 0, backend.End{Outcome: outcome.Outcome{Kind: outcome.Cancelled}}
	}
	list := job.List[from:]
	for i := range list {
		if p, ok := list[i].Ready.(*preparedJob); !ok || p.job.Op != list[i].Op {
			panic("an entry that is not ready")
		}
		if b.alone != nil && b.alone(&list[i]) {
			list = list[:i]
			break
		}
	}
	if len(list) == 0 {
		return 0, backend.End{}
	}
	b.slices.Add(1)
	n, end = b.doList(list, most)
	b.inSlices.Add(int64(n))
	if b.counts != nil {
		n = b.counts(n)
	}
	return n, end
}

func (b *burstBackend) Submit(j *backend.Job) error {
	if b.running.Load() != 0 {
		panic("work is sent while a burst runs")
	}
	b.submitted.Add(1)
	id := j.ID
	end := func() {
		x, begun := backend.End{Outcome: outcome.Outcome{Kind: outcome.Cancelled}}, 0
		switch {
		case j.Context.Trapped():
		case j.Op == backend.OpList:
			begun, x = b.doList(j.List, time.Hour)
		default:
			x = b.do(j)
		}
		b.submitted.Add(-1)
		b.sink.Complete(backend.Completion{ID: id, Outcome: x.Outcome, DeviceTime: x.DeviceTime, Begun: uint32(begun)})
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

// withLists is withBursts, of a device that runs lists.
func withLists(b *burstBackend) rigOption {
	if b.without {
		return withBackend(&lists{b})
	}
	return withBackend(&listBurster{burster{b}})
}

type lists struct{ *burstBackend }

func (b *lists) Info() backend.Info { return withListInfo(b.burstBackend) }

type listBurster struct{ burster }

func (b *listBurster) Info() backend.Info { return withListInfo(b.burstBackend) }

func withListInfo(b *burstBackend) backend.Info {
	info := b.handBackend.Info()
	info.Lists = true
	return info
}

var _ backend.ListBurster = (*burster)(nil)
