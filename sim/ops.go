package sim

import (
	"encoding/binary"
	"time"

	"capgpu/gpu/backend"
)

func idBytes(id uint64) []byte { return binary.LittleEndian.AppendUint64(nil, id) }

// opOf finds the op of a job, by its output.
func (w *world) opOf(j *backend.Job) uint64 {
	switch j.Op {
	case backend.OpFill:
		return uint64(j.Pattern)
	case backend.OpLaunch:
		return binary.LittleEndian.Uint64(j.Inline)
	}
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	return w.guarded.copies[len(j.Spans[0].Host)]
}

func (w *world) planOf(id uint64) plan {
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	if o := w.guarded.ops[id]; o != nil {
		return o.plan
	}
	return planGood
}

// durationOf is the device time of an op: never the same twice, so that no two
// events have the same time.
func (w *world) durationOf(id uint64) time.Duration {
	return time.Duration(10_000+(id*7919+w.opt.Seed%1000)%90_000)*time.Nanosecond + time.Duration(id*3)*time.Nanosecond
}

// begins and writes are the device's work on an op.
func (w *world) begins(id uint64) { w.atWork(id, "begins") }

func (w *world) writes(id uint64) {
	w.atWork(id, "writes")
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	if o := w.guarded.ops[id]; o != nil && o.dst != nil {
		o.dst.wrote = id
	}
}

func (w *world) atWork(id uint64, what string) {
	w.guarded.mu.Lock()
	o := w.guarded.ops[id]
	w.guarded.mu.Unlock()
	switch {
	case o == nil:
		w.violate("the device %s what nobody has asked for: op %d", what, id)
	case o.q.s.over():
		w.violate("the device %s op %d of session %d, which is closed", what, id, o.q.s.n)
	case o.dst != nil && o.dst.dead.Load(), o.src != nil && o.src.dead.Load():
		w.violate("the device %s op %d in a buffer that is destroyed", what, id)
	}
}

// stray is an access of the device outside its memory.
func (w *world) stray(iova uint64) {
	if w.mutant != MutantHidesFaults {
		w.host.function.fault(iova)
	}
}
