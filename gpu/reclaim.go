package gpu

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/revoke"
	"capgpu/ledger"
)

// A close of a session is answered when nothing of it is accepted any more and none of
// its jobs runs or will (revoke.Node.Cut). Work in proportion to what it has (unmap, scrub
// and free its memory, then give back its charges) is done behind the answer, by a
// goroutine of the tenant:
//
//	Session.Close ──cut──► answer
//	                └────► reclaimer ──► quiesced, unmapped, scrubbed, released ──► audit record
//
// Until then it is charged to the tenant that had it. So the ledger never lies, and a tenant
// cannot have more behind its closes than its limits. A call that is refused only because of
// that waits (orReclaimed).
//
// A tenant's sessions go one after the other. How long a piece takes can be its client's
// doing: the more memory is in it the longer, and a client that has a descriptor of memory
// can keep it from being punched. So each tenant has a goroutine of its own, while it has
// something, and only calls that ask for what it has wait for it.

// reclaimer has these goroutines.
type reclaimer struct {
	log   *slog.Logger
	idle  func(*tenant)  // told of each that has nothing any more
	work  sync.WaitGroup // runReclaim
	ended atomic.Uint64  // sessions that are reclaimed; grows when they leave their line

	mu sync.Mutex
	// busy are the tenants that have something.
	// +checklocks:mu
	busy []*tenant
}

// remains is what is left of a session, in tenant.remains.
type remains struct {
	session *Session
	rest    *revoke.Rest
}

const (
	// reclaimSlice is how long all tenants together go on before others run. It is short:
	// the processor that reclaims may be the one that has answers to send.
	reclaimSlice = 50 * time.Microsecond
	// headStart is what an answer has before the tenant's reclaim begins, unless somebody
	// waits for what is to be reclaimed.
	headStart = time.Millisecond
	// reclaimPatience bounds how long a call waits for what is being reclaimed.
	reclaimPatience = 2 * time.Second
	// maxOpeners is how many OpenSession of one tenant wait so at once.
	maxOpeners = 4
)

// add takes over what is left of a session.
func (r *reclaimer) add(s *Session, rest *revoke.Rest) {
	t := s.tenant
	r.mu.Lock()
	defer r.mu.Unlock()
	t.remains = append(t.remains, remains{s, rest})
	crashpoint.Here("driver.close.cut")
	if len(t.remains) == 1 {
		r.busy = append(r.busy, t)
		r.work.Go(func() { r.runReclaim(t) })
	}
}

// runReclaim reclaims until nothing of the tenant is left.
func (r *reclaimer) runReclaim(t *tenant) {
	start := time.NewTimer(headStart)
	select {
	case <-start.C:
	case <-t.wanted:
	}
	start.Stop()
	for r.step(t) {
		runtime.Gosched() // a goroutine with an answer to send goes first
	}
	r.idle(t)
}

// step goes on for a slice of time, and reports whether there is more.
func (r *reclaimer) step(t *tenant) (more bool) {
	r.mu.Lock()
	x, slice := t.remains[0], reclaimSlice/time.Duration(len(r.busy))
	r.mu.Unlock()
	crashpoint.Here("driver.reclaim.step")
	if !x.rest.Step(slice) {
		return true
	}
	if err := x.rest.Err(); err != nil {
		r.log.Error("a bug showed when a session was reclaimed", "session", x.session.id, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.remains = slices.Delete(t.remains, 0, 1)
	crashpoint.Here("driver.reclaim.ended")
	r.ended.Add(1)
	if len(t.remains) > 0 {
		return true
	}
	r.busy = slices.DeleteFunc(r.busy, func(other *tenant) bool { return other == t })
	return false
}

// last are the sessions with which all that is being reclaimed now will be, of a
// tenant or, with nil, of all. The caller waits for them.
func (r *reclaimer) last(t *tenant) []*Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*Session
	for _, at := range r.busy {
		if t == nil || t == at {
			all = append(all, at.remains[len(at.remains)-1].session)
			nudge(at.wanted)
		}
	}
	return all
}

// await waits for what is being reclaimed now, and reports whether to try again what
// was refused after so many had ended: not if there was nothing then that is back now,
// and not when ctx or over has ended.
func (r *reclaimer) await(ctx context.Context, over <-chan struct{}, t *tenant, ended uint64) bool {
	all := r.last(t)
	for _, s := range all {
		select {
		case <-s.node.Finished():
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return len(all) > 0 || r.ended.Load() != ended && ctx.Err() == nil
}

// Reclaimed waits until all that was closed before is reclaimed: its memory is
// scrubbed and free, its charges are back.
func (d *Device) Reclaimed(ctx context.Context) error {
	for _, s := range d.reclaim.last(nil) {
		select {
		case <-s.node.Finished():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// orReclaimed calls try, and as long as that is refused for want of what is being
// reclaimed it waits for that and tries again. over ends the wait, too.
func (d *Device) orReclaimed(ctx context.Context, t *tenant, over <-chan struct{}, try func() error) error {
	ended := d.reclaim.ended.Load()
	err := try()
	if gpuerr.CodeOf(err) != gpuerr.Quota {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, reclaimPatience)
	defer stop()
	for gpuerr.CodeOf(err) == gpuerr.Quota && d.reclaim.await(ctx, over, d.waitsFor(t, err), ended) {
		ended = d.reclaim.ended.Load()
		err = try()
	}
	return err
}

// waitsFor is the tenant with the remains that a refused call waits for: t itself, or nil
// (any tenant) where it is the device that has no more.
func (d *Device) waitsFor(t *tenant, refusal error) *tenant {
	e := gpuerr.From(refusal)
	if class, ok := ledger.ParseClass(e.Resource); ok && d.ledger.Root().Available(class) >= e.Asked {
		return t
	}
	return nil
}

// reserve charges for a control call. The session is entered.
func (s *Session) reserve(ctx context.Context, c ledger.Class, n uint64) (charge ledger.Receipt, err error) {
	err = s.dev.orReclaimed(ctx, s.tenant, s.node.Done(), func() (err error) {
		charge, err = s.account.Reserve(c, n)
		return err
	})
	return charge, err
}

// heldOf are what a lost device was given of a session's, see letGo.
func (r *reactor) heldOf(s *Session) (mine []pinned) {
	r.mail.call(func() {
		for _, p := range r.lent {
			if p.session() == s {
				mine = append(mine, p)
			}
		}
	})
	return mine
}

// session is the job's, nil for one that used nothing.
func (p pinned) session() *Session {
	switch {
	case p.program != nil:
		return p.program.session
	case len(p.buffers) > 0:
		return p.buffers[0].session
	case p.list != nil:
		return p.list.session
	}
	return nil
}

// quiesce returns when the device has let go of it.
func (p pinned) quiesce() {
	if p.program != nil {
		p.program.quiesce()
	}
	for _, b := range p.buffers {
		b.quiesce()
	}
	if p.list != nil {
		p.list.quiesce()
	}
}
