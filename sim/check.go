package sim

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// settle waits until nothing more happens without time passing, and checks the
// results.
func (w *world) settle() {
	for {
		w.wait()
		if !w.reap() {
			break
		}
	}
	for _, s := range w.clients.sessions {
		for _, q := range s.queues {
			w.drain(q)
		}
	}
	w.lifecycle()
	w.balance()
}

// reap takes the answers that have come, in the order of the requests.
func (w *world) reap() (some bool) {
	var left []*call
	calls := w.clients.calls
	w.clients.calls = nil
	for _, c := range calls {
		if c.done.Load() {
			some = true
			c.then()
		} else {
			left = append(left, c)
		}
	}
	w.clients.calls = append(left, w.clients.calls...)
	slices.SortFunc(w.clients.calls, func(a, b *call) int { return a.n - b.n })
	return some
}

// drain checks the completions of a queue.
func (w *world) drain(q *queue) {
	if q.over {
		return
	}

	w.guarded.mu.Lock()
	got, ended := q.got, q.ended
	q.got = nil
	w.guarded.mu.Unlock()
	for i := range got {
		w.completed(q, &got[i])
	}

	if ended == nil {
		return
	}

	q.over = true
	code := gpuerr.CodeOf(ended)
	w.trace("queue %d ended %v", q.n, code)
	switch {
	case code == gpuerr.Protocol && !q.lied:
		w.violate("queue %d ends with %v, and its client kept to the protocol", q.n, ended)
	case code == gpuerr.Protocol && q.mustEnd && q.local.Ended() != code:
		w.violate("queue %d ends with %v: the driver went on with a client that broke the protocol", q.n, ended)
	case code == gpuerr.Internal:
		w.violate("queue %d ends because of a bug: %v", q.n, ended)
	}

	// For entries without a completion, the end of the ring is the answer.
	for _, o := range q.pending {
		o.ended, o.lost, o.how = true, true, outcome.Outcome{Kind: outcome.Revoked}
	}

	q.pending = nil
}

// completed checks one completion.
func (w *world) completed(q *queue, c *ring.Completion) {
	w.trace("queue %d op %d %v %v", q.n, c.UserData, c.Outcome, c.Code)
	if len(q.pending) == 0 {
		w.violate("queue %d tells an end of %d, and nothing is pending", q.n, c.UserData)
		return
	}

	o := q.pending[0]
	if o.id != c.UserData {
		if !q.lied {
			w.violate("queue %d tells the end of op %d before that of op %d", q.n, c.UserData, o.id)
		}
		return
	}

	q.pending = q.pending[1:]
	o.ended, o.how = true, c.Outcome
	w.host.chip.mu.Lock()
	seen := witness{}
	if x := w.host.chip.log[o.id]; x != nil {
		seen = *x
	}

	w.host.chip.mu.Unlock()
	ok := c.Outcome.Kind == outcome.OK
	switch {
	case ok && o.kind.device() && seen.done != 1:
		w.violate("op %d (%s, plan %d) is reported ok, and the device has done it %d times", o.id, opNames[o.kind], o.plan, seen.done)
	case seen.begun > 1:
		w.violate("op %d was begun %d times", o.id, seen.begun)
	case ok && o.kind == opBad:
		w.violate("op %d with a forged handle is reported ok", o.id)
	case ok && o.kind == opSignal && q.group.Kind != outcome.OK:
		w.violate("the signal of op %d is ok, and stands for work that ended %v", o.id, q.group)
	case ok && o.kind == opSignal && c.DeviceNanos < q.moment:
		w.violate("the signal of op %d ended at %d ns, and the one before it at %d ns", o.id, c.DeviceNanos, q.moment)
	case !c.Outcome.Valid() || c.Outcome.Kind == outcome.Pending:
		w.violate("op %d ends %v", o.id, c.Outcome)
	case ok && o.kind == opFill:
		w.checkData(o)
	}

	if ok && o.kind == opSignal {
		q.moment = c.DeviceNanos
	}
	w.depends(o, seen, ok)
	q.group = outcome.Worse(q.group, c.Outcome)
	if o.kind == opSignal && c.Code == gpuerr.None {
		q.group = outcome.Success
	}
}

// checkData compares the output of the last fill with the client's view of it.
func (w *world) checkData(o *op) {
	w.guarded.mu.Lock()
	last := o.dst.wrote
	w.guarded.mu.Unlock()
	if last != o.id || o.dst.mem == nil || o.dst.dying || o.q.s.closing || !o.q.s.live() { // memory that is being freed is scrubbed
		return
	}
	want := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, uint32(o.id)), int(o.n/4))
	if !bytes.Equal(o.dst.mem[o.off:o.off+o.n], want) {
		w.violate("op %d is ok, and its buffer does not have what it wrote", o.id)
	}
}

// reached checks the result of a wait for a point.
func (w *world) reached(f *fence, p promise, st gpu.FenceState) {
	if st.Outcome.Kind != outcome.OK {
		return
	}
	// A point stands for the first signal at or beyond it.
	for _, x := range f.promised {
		if x.value >= p.value && (x.op == nil || x.op.ended && x.op.how.Kind == outcome.OK || !x.op.ended && len(x.op.q.pending) > 0) {
			return
		}
	}
	w.violate("point %d of a fence is reported ok, and none of its signals was", p.value)
}

// lifecycle follows the state of the device.
func (w *world) lifecycle() {
	t := w.clients.tenants[0]
	if !w.connect(t) {
		return
	}

	m := t.conn.Ask(&control.Message{Type: control.TypeListDevices})
	r, err := control.ParseListDevicesReply(m.Body)
	if err != nil || len(r.Devices) != 1 {
		w.violate("list the devices: %v", err)
		return
	}

	const ready, wedged = 1, 3
	d := r.Devices[0]
	w.trace("device state=%d epoch=%d", d.State, d.Epoch)
	switch {
	case d.State == ready:
		if d.Epoch < w.host.epoch {
			w.violate("epoch %d follows epoch %d", d.Epoch, w.host.epoch)
		}
		w.host.epoch, w.host.down = d.Epoch, time.Time{}
	case d.State == wedged:
		if !w.host.function.isRemoved() && !w.host.budgeted {
			w.violate("the device is wedged for no reason of the run")
		}
		w.host.down = time.Time{}
	case w.host.down.IsZero():
		w.host.down = time.Now()
	case time.Since(w.host.down) > downTime:
		w.violate("the device is not ready for %v", time.Since(w.host.down))
	}
}

// downTime bounds a device's absence: ReadyTimeout, a ping unanswered, the longest
// delay of a respawn, and a step of time.
const downTime = 5 * time.Minute

// balance checks the accounts.
func (w *world) balance() {
	if err := w.host.stage.Check(); err != nil {
		w.violate("the manager's ledger: %v", err)
	}

	for _, e := range w.host.stage.Usage() {
		if e.Reserved+e.Used > 0 && e.Class != ledger.AuditBytes && e.Class != ledger.DeviceTime {
			w.trace("held %v %d", e.Class, e.Reserved+e.Used)
		}
	}

	d := w.current()
	if d == nil || d.gone() {
		return
	}

	d.mu.Lock()
	device := d.device
	d.mu.Unlock()
	if device != nil {
		if err := device.Check(); err != nil {
			w.violate("the driver's books: %v", err)
		}
		if w.step%4 == 0 {
			w.bans(device)
		}
	}
}

// bans checks the driver's bans of its tenants: none without strikes, and none
// longer than the policy's.
func (w *world) bans(device *gpu.Device) {
	for _, t := range device.Status("").Tenants {
		if t.BannedUntil == nil {
			continue
		}
		w.trace("tenant %s strikes=%d", t.Tenant, t.Strikes)
		switch left := time.Until(*t.BannedUntil); {
		case left > banTime:
			w.violate("tenant %s is banned for %v, and the policy says %v", t.Tenant, left, banTime)
		case t.Strikes < strikeLimit:
			w.violate("tenant %s is banned after %d strikes, and the policy says %d", t.Tenant, t.Strikes, strikeLimit)
		}
	}
}

// bannedNow checks a refusal with a ban.
func (w *world) bannedNow(t *tenant) {
	d := w.current()
	if d.gone() {
		return
	}
	for _, x := range d.device.Status(t.name).Tenants {
		if x.Tenant == t.name && x.BannedUntil != nil && !x.BannedUntil.Before(time.Now()) {
			w.clients.banned++
			return
		}
	}
	w.violate("tenant %s is refused as banned, and is not", t.name)
}
