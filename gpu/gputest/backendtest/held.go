package backendtest

import (
	"testing"
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// Held is a Burster whose bursts are those of who holds the device, as far as they go, and else
// the backend's.
type Held struct {
	backend.Holder
	Jobs int // that BurstHeld has run
}

// Burst implements backend.Burster.
func (h *Held) Burst(first backend.JobID, jobs []backend.Ready, ends []backend.End) (n int) {
	last := outcome.Success
	if h.Hold() {
		nanos := make([]uint64, len(jobs))
		n = h.BurstHeld(first, jobs, nanos, &last)
		h.Release()
		for i := range n {
			ends[i] = backend.End{Outcome: outcome.Success, DeviceTime: time.Duration(nanos[i])}
		}
		if h.Jobs += n; n > 0 {
			ends[n-1].Outcome = last
		}
	}
	if n < len(jobs) && (last == outcome.Success || last.Cause == outcome.TrapCause) {
		n += h.Holder.Burst(first+backend.JobID(n), jobs[n:], ends[n:])
	}
	return n
}

// heldBackend is a backend whose bursts are Held's.
type heldBackend struct {
	backend.Backend
	*Held
}

// heldTests are those of bursts, of a backend that can be held.
func heldTests() (tests []test) {
	for _, of := range burstTests {
		run := of.run
		of.needs = append([]string{needsHolds}, of.needs...)
		of.run = func(t *testing.T, d *device) {
			d.Backend = heldBackend{d.Backend, &Held{Holder: d.Backend.(backend.Holder)}}
			run(t, d)
		}
		tests = append(tests, of)
	}
	return tests
}
