package mock

import (
	"crypto/sha256"
	"time"

	"capgpu/gpu/backend"
	"capgpu/internal/shm"
	"capgpu/outcome"
)

// execute runs a job on the engine, with the fault that the script has for it.
//
// +checklocksignore: the only field of the log that it reads never changes
func (d *Device) execute(s *slot) result {
	switch s.fault.Kind {
	case FaultHang, FaultHangFunction, FaultHangForever:
		until := map[FaultKind]uint32{FaultHang: stopContext, FaultHangFunction: stopReset, FaultHangForever: stopClose}[s.fault.Kind]
		for s.stop.Load() < until {
			<-s.stopped
		}
		return result{wasReset: true}
	case FaultSlow:
		if !s.sleep(time.Duration(s.fault.Duration)) {
			return result{outcome: outcome.Outcome{Kind: outcome.Cancelled}}
		}
	case FaultErrorCompletion:
		return result{outcome: deviceError}
	case FaultDeviceGone:
		return result{gone: true}
	case FaultStrayDMA:
		if iova := beyond(s.job); !reaches(s.job, iova, 4) {
			return result{outcome: deviceError, stray: iova}
		}
	}
	r := d.run(&d.crew.task, s, s.job)
	if d.log.digests && r.outcome.Kind == outcome.OK {
		r.digest = digestWrites(s.job)
	}
	return r
}

// run runs the job in s, or an entry of it, to its end.
func (d *Device) run(t *task, s *slot, job *backend.Job) result {
	if job.Op == backend.OpList {
		return d.list(t, s, job)
	}
	t.begin(s, job)
	defer t.end()
	switch job.Op {
	case backend.OpLaunch:
		return d.launch(t, job)
	case backend.OpCopy:
		t.prepareMove(job.Spans[0].Host, job.Spans[1].Host)
		return d.move(t, 1)
	default: // OpFill
		if trap := t.prepareFill(job); trap.Kind != outcome.NoTrap {
			return result{outcome: trapped(trap)}
		}
		return d.move(t, 4)
	}
}

// move runs a copy or a fill. A bug there is one of the device, whatever the job:
// it is gone then, as hardware that fails is. The core ends what everybody has in
// order, and its process is replaced.
func (d *Device) move(t *task, itemBytes uint64) result {
	d.crew.run(t)
	if t.broken.Load() {
		return result{gone: true}
	}
	return result{outcome: t.outcome(), written: t.done.Load() * itemBytes}
}

var deviceError = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}

func trapped(t outcome.Trap) outcome.Outcome {
	return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: t}
}

// sleep waits, unless the job is stopped meanwhile.
func (s *slot) sleep(d time.Duration) (slept bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for s.stop.Load() == stopNone {
		select {
		case <-timer.C:
			return true
		case <-s.stopped:
		}
	}
	return false
}

// beyond is the first address after every span of the job.
func beyond(job *backend.Job) uint64 {
	var end uint64
	job.EachSpan(func(span backend.Span) bool {
		end = max(end, span.IOVA+uint64(len(span.Host)))
		return true
	})
	return end
}

// reaches is the IOMMU of the device: while a job runs, the device reaches the
// spans of that job and nothing else.
func reaches(job *backend.Job, iova, bytes uint64) (yes bool) {
	job.EachSpan(func(span backend.Span) bool {
		size := uint64(len(span.Host))
		yes = iova >= span.IOVA && iova-span.IOVA <= size && bytes <= size-(iova-span.IOVA)
		return !yes
	})
	return yes
}

// digestWrites is the SHA-256 over the spans that the job could write. It is zero
// if they can no longer be read.
func digestWrites(job *backend.Job) (sum [32]byte) {
	h := sha256.New()
	_, faulted := shm.Guard(func() {
		for i, span := range job.Spans {
			if writes(job, i) {
				h.Write(span.Host)
			}
		}
		for i := range job.List {
			for k, span := range job.List[i].Spans {
				if writes(&job.List[i], k) {
					h.Write(span.Host)
				}
			}
		}
	})
	if !faulted {
		h.Sum(sum[:0])
	}
	return sum
}

// writes reports whether the job may write its i-th span.
func writes(job *backend.Job, i int) bool {
	if job.Op != backend.OpLaunch {
		return i == 0
	}
	return job.Program.(*code).program.Info.Bindings[i].Access&backend.Write != 0
}
