package gpu

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
)

// Session is what one client has of the device. All methods may be called from
// any goroutine; once it is closed they answer why, for ever.
type Session struct {
	dev     *Device
	tenant  *tenant
	account *ledger.Account
	node    *revoke.Node
	context backend.Context
	poison  atomic.Pointer[poison]
	charges [2]ledger.Receipt
	passing ledger.Receipts // for what is on its way to the client
	handles *handles.Table
	heaps   heap.Pair
	loaded  loadedPrograms
	loading line

	kin
	rights
	sessionWork
	sessionCounts
}

// kin is a session's place among the others.
type kin struct {
	id     uint64
	attach uint64   // Attach.ID; 0 for a restricted session
	parent *Session // of a restricted session
	depth  int      // the number of sessions above it
	branch *branch  // nil for a session that is not restricted
	opened time.Time
}

// rights are what the session may do. They do not change.
type rights struct {
	facet    Facet
	deadline time.Duration // of a submission that names none
	fair     time.Duration // of a submission, by the policy; missing it is a strike
	longest  time.Duration // of any submission
	programs []string      // sorted; nil: all
	listed   bool          // programs is not its parent's
	check    bool          // its programs run watched
}

// sessionWork is the session's part in the work of the device. The reactor's.
type sessionWork struct {
	flow     *flow
	queues   []*queue
	failures failures
}

// sessionCounts are for operators.
type sessionCounts struct {
	launches atomic.Uint64
	ended    [outcome.DeviceLost + 1]atomic.Uint64 // entries by outcome
	traps    atomic.Uint64
	strikes  atomic.Uint64
}

// OpenSession opens a session for a tenant.
func (d *Device) OpenSession(a Attach) (*Session, error) {
	if err := d.Err(); err != nil {
		return nil, err
	}
	if a.Tenant == "" || a.Facet >= numFacets || a.MaxDeadline < 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "tenant %.64q, facet %d, maxDeadline %v: a tenant has a name, a facet is 0 to 2, a deadline is positive", a.Tenant, a.Facet, a.MaxDeadline)
	}
	t, opening, err := d.openerOf(&a)
	if err != nil {
		return nil, err
	}
	defer d.openEnded(t)
	if err := t.banned(); err != nil {
		return nil, err
	}
	d.reactor.setWeight(t.flow, a.Weight)
	s := &Session{dev: d, tenant: t, kin: kin{attach: a.ID}, rights: rights{facet: a.Facet, longest: d.cfg.MaxDeadline}}
	if a.MaxDeadline > 0 {
		s.longest = a.MaxDeadline // the policy knows its device
	}
	if len(a.Programs) > 0 {
		s.programs = sorted(a.Programs)
	}
	// The places in which sessions are opened are shared by all tenants.
	ctx, stop := context.WithTimeout(context.Background(), reclaimPatience)
	defer stop()
	if opening > maxOpeners {
		stop()
	}
	return s.open(ctx, t.node, t.account, a.Limits)
}

// maxRestrictions bounds the chain of accounts that each charge walks.
const maxRestrictions = 8

// Restrict opens a weaker session below this one. Everything it holds is charged to this
// session, too, and it ends with it.
func (s *Session) Restrict(p Policy) (*Session, error) {
	if err := s.enterToWork(); err != nil {
		return nil, err
	}
	defer s.node.Leave()
	switch {
	case p.Facet > s.facet:
		return nil, gpuerr.New(gpuerr.Denied, "facet %v is more than this session's %v", p.Facet, s.facet)
	case p.MaxDeadline < 0:
		return nil, gpuerr.New(gpuerr.Invalid, "maxDeadline is %v; it must not be negative", p.MaxDeadline)
	case p.MaxDeadline > s.allowed(s.longest):
		return nil, gpuerr.New(gpuerr.Denied, "maxDeadline %v is more than this session's %v", p.MaxDeadline, s.allowed(s.longest))
	}
	if err := s.banned(); err != nil {
		return nil, err
	}
	if s.depth >= maxRestrictions {
		return nil, gpuerr.New(gpuerr.Denied, "this session is restricted %d times already, which is the most; restrict one above it", s.depth)
	}
	child := &Session{
		dev: s.dev, tenant: s.tenant, kin: kin{parent: s, depth: s.depth + 1, branch: s.branch},
		rights: rights{facet: p.Facet, longest: s.longest, fair: s.fair, programs: s.programs, check: s.check || p.Check},
	}
	if p.MaxDeadline > 0 {
		child.longest = p.MaxDeadline
	}
	if len(p.Programs) > 0 {
		for _, name := range p.Programs {
			if !s.mayOpen(name) && s.findLoaded(name) == nil {
				return nil, gpuerr.New(gpuerr.Denied, "program %.64q is not one of this session's", name)
			}
		}
		child.programs, child.listed = sorted(p.Programs), true
	}
	ctx, stop := context.WithTimeout(context.Background(), reclaimPatience)
	defer stop()
	return child.open(ctx, s.node, s.account, p.Limits)
}

// open charges the session, joins it to the tree and makes it known. With ctx it waits
// for what is being reclaimed.
func (s *Session) open(ctx context.Context, above *revoke.Node, payer *ledger.Account, limits ledger.Limits) (*Session, error) {
	if err := payer.CanSpend(ledger.AuditBytes); err != nil {
		return nil, err
	}
	d := s.dev
	err := d.orReclaimed(ctx, s.tenant, above.Done(), func() error { return s.chargeTo(payer) })
	if err != nil {
		return nil, err
	}
	s.opened, s.handles, s.loading = time.Now(), handles.New(), newLine()
	s.deadline = min(d.cfg.DefaultDeadline, s.longest)
	if s.parent == nil {
		s.fair = s.deadline
	}
	s.flow = newFlow(s.tenant.flow, 1)
	d.mu.Lock()
	d.lastSession++
	s.id = d.lastSession
	d.mu.Unlock()
	if s.parent != nil && s.branch == nil {
		s.branch = &branch{session: s.id}
	}
	name := fmt.Sprintf("session %d", s.id)
	if s.account, err = payer.Child(name, limits); err != nil {
		s.discharge()
		return nil, err
	}
	if s.node, err = above.NewChild(name, revoke.Ops{Urgent: true, Quiesce: s.quiesce, Scrub: s.scrub, Release: s.release}); err != nil {
		s.discharge()
		s.account.Close()
		return nil, s.closedError(err)
	}
	s.beginMemory()
	s.commit()
	d.mu.Lock()
	if s.node.Live() { // else release may have run, and must stay the last
		d.sessions[s.id] = s
	}
	d.mu.Unlock()
	s.audit("session.open", "attach=%d parent=%d facet=%v", s.attach, s.parentID(), s.facet)
	return s, nil
}

// chargeTo charges what the session itself is, or nothing.
func (s *Session) chargeTo(payer *ledger.Account) (err error) {
	if s.charges[0], err = payer.Reserve(ledger.Sessions, 1); err != nil {
		return err
	}
	if s.charges[1], err = payer.Reserve(ledger.Descriptors, sessionDescriptors); err != nil {
		s.discharge()
	}
	return err
}

// commit says that the session is there.
func (s *Session) commit() {
	for i := range s.charges {
		s.charges[i].Commit()
	}
}

// beginMemory readies the memory of a session that has its account and its node.
func (s *Session) beginMemory() {
	s.context.Group = s.tenant.group
	dma := s.dev.cfg.DMA
	if m := s.dev.reactor.traits.mapper; m != nil {
		dma = &heap.Mapped{DMAPool: dma, Mapper: m, Context: &s.context}
	}
	s.heaps.Shared.Begin(dma, s.account, s.dev.log, s.node.Done())
	if local := s.dev.reactor.traits.local; local != nil {
		dma = local.Local(&s.context)
	}
	s.heaps.Device.Begin(dma, s.account, s.dev.log, s.node.Done())
}

// memoryClass is what memory of a buffer is charged as: deviceMemory, but where the device
// has memory of its own, all other memory is the host's.
func (s *Session) memoryClass(usage Usage) ledger.Class {
	if s.dev.reactor.traits.local != nil && usage&UsageDevice == 0 {
		return ledger.HostMemory
	}
	return ledger.DeviceMemory
}

// parentID is 0 for a session that is not restricted.
func (s *Session) parentID() uint64 {
	if s.parent == nil {
		return 0
	}
	return s.parent.id
}

// quiesce comes when all queues have ended, and with them all jobs. Jobs that are left, if
// the device was lost meanwhile, are those that the device may still have.
func (s *Session) quiesce() {
	for _, p := range s.dev.reactor.heldOf(s) {
		p.quiesce()
	}
}

// scrub frees the memory of all buffers of a session, a chunk at a time.
func (s *Session) scrub() (more bool) { return s.heaps.FreeOne(s.dev.memoryLost) }

// release is the end of a session; everything below it is released.
func (s *Session) release() {
	s.passing.ReleaseAll() // its socket is closed, and with it what nobody has taken
	if err := s.account.Close(); err != nil {
		s.dev.log.Error("a session ends with charges", "session", s.id, "error", err)
	}
	s.discharge()
	s.dev.mu.Lock()
	delete(s.dev.sessions, s.id)
	s.dev.mu.Unlock()
	s.dev.auditEvent("session.close", s.tenant, "session=%d attach=%d parent=%d launches=%d ok=%d failed=%d innocent=%d cancelled=%d revoked=%d timedOut=%d deviceLost=%d cause=%q",
		s.id, s.attach, s.parentID(), s.launches.Load(), s.ended[outcome.OK].Load(), s.ended[outcome.Failed].Load(), s.ended[outcome.Innocent].Load(),
		s.ended[outcome.Cancelled].Load(), s.ended[outcome.Revoked].Load(), s.ended[outcome.TimedOut].Load(), s.ended[outcome.DeviceLost].Load(), clip(s.Err()))
}

// discharge gives back what the session itself is.
func (s *Session) discharge() {
	for i := range s.charges {
		s.charges[i].Release()
	}
}

// clip is an error for a record: its code and the beginning of its text.
func clip(err error) string { return fmt.Sprintf("%.256v", err) }

// Close ends the session and everything below it: when it returns nothing of it is
// accepted any more, its queues have ended, and none of its jobs runs or will. How much
// the session has does not matter. Its memory is scrubbed and its charges are given
// back soon after: see reclaim.go, and Device.Reclaimed. Closing twice is harmless.
func (s *Session) Close() error {
	cause := gpuerr.New(gpuerr.Closed, "the session was closed; open another")
	return s.node.Cut(cause, func(rest *revoke.Rest) { s.dev.reclaim.add(s, rest) })
}

// Done is closed as soon as the session refuses work.
func (s *Session) Done() <-chan struct{} { return s.node.Done() }

// Err says why the session refuses work, nil while it does not.
func (s *Session) Err() error {
	if err := s.dev.Err(); err != nil {
		return err
	}
	return s.node.Err()
}

// enter begins a call. The caller Leaves the session's node.
func (s *Session) enter() error {
	select {
	case <-s.dev.lost:
		return s.dev.Err()
	default:
	}
	if err := s.node.Enter(); err != nil {
		return s.closedError(err)
	}
	return nil
}

// closedError is what a closed session answers.
func (s *Session) closedError(cause error) error {
	if err := s.dev.Err(); err != nil {
		return err
	}
	return cause
}

func (s *Session) mayOpen(name string) bool {
	if s.programs == nil {
		return true
	}
	_, found := slices.BinarySearch(s.programs, name)
	return found
}

// remove ends a handle of the session and returns its object for the caller to
// close. It is inside the session only meanwhile: a session that is being closed
// waits for those inside, and to close an object is to wait for that.
func remove[T any](s *Session, h Handle) (*T, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.node.Leave()
	return handles.Take[T](s.handles, h)
}

// Describe tells what the session may do and the bounds that are promised.
func (s *Session) Describe() Description {
	c := &s.dev.cfg
	info := c.Backend.Info()
	d := Description{
		Device: c.Info, Backend: info.Name, Deterministic: info.Deterministic, MemoryBytes: info.MemoryBytes, LocalBytes: info.LocalBytes,
		HangBound: c.HangBound, RevokeBound: c.HangBound, MaxDeadline: s.allowed(s.longest), MaxBufferBytes: c.MaxBufferBytes,
		Limits: info.Limits, MaxQueueEntries: c.MaxQueueEntries, MaxArgBytes: c.MaxArgBytes, Facet: s.facet, Poisoned: s.Poisoned(), Checked: s.check,
	}
	if s.facet >= FacetProgram {
		for _, name := range c.Backend.Programs() {
			if s.mayOpen(name) {
				d.Programs = append(d.Programs, name)
			}
		}
	}
	return d
}

// Budget is the session's ledger account. The limits of those above it count,
// too, and are not told.
func (s *Session) Budget() []ledger.Entry {
	return s.account.Snapshot()
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return slices.Compact(out)
}
