package sim

import (
	"errors"

	"capgpu/iommu"
	"capgpu/iommu/faultlog"
)

// deviceFault: the device goes wrong with the next job of somebody.
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
	if p == planStray && w.rand.IntN(3) == 0 { // one that nobody asked for
		w.hit(IOMMUFault)
		w.function.mu.Lock()
		sink := w.function.sink
		w.function.mu.Unlock()
		sink(faultlog.Fault{Address: address, IOVA: iommu.IOVA(1<<32 + w.rand.Uint64N(1<<20)), Write: true, Reason: "not mapped"})
		return
	}
	w.push(q, p)
	for range w.rand.IntN(3) {
		w.push(q, planGood)
	}
	w.flush(q)
}

// removal: the host takes the function away. Later another one is plugged in, for which
// the manager is started again.
func (w *world) removal() {
	if w.rand.IntN(4) > 0 {
		return
	}
	w.trace("remove")
	w.hit(Removal)
	w.function.remove("the host takes it away")
}

// functionTrouble: a reset that fails, or an error that the function reports.
func (w *world) functionTrouble() {
	if w.rand.IntN(2) == 0 {
		w.function.mu.Lock()
		w.function.badBegin = 1 + w.rand.IntN(2)
		w.function.mu.Unlock()
		w.budgeted = true
	}
	w.trace("trouble")
	select {
	case w.function.trouble <- errors.New("an uncorrectable error"):
	default:
	}
}
