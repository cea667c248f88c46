package sim

import (
	"errors"

	"capgpu/iommu"
	"capgpu/iommu/faultlog"
)

// deviceFault makes the device misbehave with some client's next job.
func (w *world) deviceFault() {
	s := w.session(false)
	q := w.queue(s)
	if q == nil || len(s.bufs) < 2 || q.held.Load() != nil {
		return
	}

	plans := []plan{planNever, planStubborn, planError, planTwice, planLost, planSpurious, planPanic, planTrap}
	if w.dma {
		plans = append(plans, planStray, planStray)
	}
	if w.rand.IntN(30) == 0 {
		plans = []plan{planGone}
	}

	p := plans[w.rand.IntN(len(plans))]
	w.trace("device fault %d", p)
	if p == planStray && w.rand.IntN(3) == 0 { // one that no op asked for
		w.hit(IOMMUFault)
		w.host.function.mu.Lock()
		sink := w.host.function.sink
		w.host.function.mu.Unlock()
		sink(faultlog.Fault{Address: address, IOVA: iommu.IOVA(1<<32 + w.rand.Uint64N(1<<20)), Write: true, Reason: "not mapped"})
		return
	}

	w.push(q, p)
	for range w.rand.IntN(3) {
		w.push(q, planGood)
	}

	w.flush(q)
}

// removal: the host removes the function. Later another one is plugged in, and the
// manager is started again for it.
func (w *world) removal() {
	if w.rand.IntN(4) > 0 {
		return
	}
	w.trace("remove")
	w.hit(Removal)
	w.host.function.remove("the host takes it away")
}

// functionTrouble: a reset that fails, or an error that the function reports.
func (w *world) functionTrouble() {
	if w.rand.IntN(2) == 0 {
		w.host.function.mu.Lock()
		w.host.function.badBegin = 1 + w.rand.IntN(2)
		w.host.function.mu.Unlock()
		w.host.budgeted = true
	}
	w.trace("trouble")
	select {
	case w.host.function.trouble <- errors.New("an uncorrectable error"):
	default:
	}
}
