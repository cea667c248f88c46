package gpu

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/ring"
)

// exportableRing is a ring that can be told to a successor.
type exportableRing interface {
	Export() (st ring.State, ring, work, done int, err error)
}

// RingFDs are the descriptors of a queue's ring, which are duplicated when they are asked
// for: a process that has nearly all that it may have can still tell of them, one ring
// after the other.
type RingFDs struct {
	ring exportableRing
	told ring.State
}

// Dup is the descriptors of the ring's memory and of its pipes, work and done, in this
// order, which the caller owns. It fails with gpuerr.IO when the process can have no more,
// and with gpuerr.Busy when the queue has moved after all.
func (r RingFDs) Dup() (fds [3]int, err error) {
	st, mem, work, done, err := r.ring.Export()
	fds = [3]int{mem, work, done}
	if err == nil && st != r.told {
		for _, fd := range fds {
			unix.Close(fd)
		}
		err = errFrozenLong
	}
	return fds, err
}

// Movable is nil where Snapshot can tell all that the device has: not where that has memory
// of its own, or was told of memory.
func (d *Device) Movable() error {
	switch t := &d.reactor.traits; {
	case t.local == nil && t.mapper == nil:
		return nil
	case t.local == nil:
		return gpuerr.New(gpuerr.Unimplemented, "the driver of a device that maps memory for its sessions cannot be replaced while it has some: those mappings cannot be handed over; restart device-manager")
	}
	return gpuerr.New(gpuerr.Unimplemented, "the driver of a device with memory of its own cannot be replaced while it has sessions: that memory cannot be handed over; restart device-manager")
}

// Snapshot tells all that the device has for its tenants to a successor, with the rings of
// its queues in the order of the Snapshot. The device is frozen and stays so; it has lost
// nothing, and can be thawed. An *Blocked says that one tenant has more than can be told.
func (d *Device) Snapshot() (img *Snapshot, rings []RingFDs, err error) {
	// The reactor has nothing else to do.
	d.reactor.mail.call(func() { img, rings, err = d.snapshot() })
	return img, rings, err
}

func (d *Device) snapshot() (img *Snapshot, rings []RingFDs, err error) {
	r := d.reactor
	if !r.frozen() || r.freeze.moved {
		return nil, nil, gpuerr.New(gpuerr.Busy, "the device is not stopped")
	}
	img = &Snapshot{
		Version: SnapshotVersion, Device: d.cfg.Info.Name, Epoch: d.cfg.Info.Epoch, Backend: d.cfg.Backend.Info().Name,
		Uptime: d.age(), Resets: d.reactor.resets.Load(), Strays: d.reactor.strays.Load(), Faults: d.reactor.faults.Load(),
	}
	sessions := d.sessionList()
	d.mu.Lock()
	img.LastSession = d.lastSession
	tenants := make([]*tenant, 0, len(d.tenants))
	for _, t := range d.tenants {
		tenants = append(tenants, t)
	}
	d.mu.Unlock()
	slices.SortFunc(tenants, func(a, b *tenant) int { return cmp.Compare(a.name, b.name) })

	children := map[*ledger.Account][]*ledger.Account{}
	for _, t := range tenants {
		children[d.ledger.Root()] = append(children[d.ledger.Root()], t.account)
	}
	for _, s := range sessions {
		above := s.tenant.account
		if s.parent != nil {
			above = s.parent.account
		}
		children[above] = append(children[above], s.account)
	}
	img.Spent = spentOf(d.ledger.Root(), children)
	for _, t := range tenants {
		img.Tenants = append(img.Tenants, d.snapshotTenant(t, children))
	}
	seen := map[*branch]bool{}
	bulk, reload := weighed{most: maxBulk}, weighed{most: uint64(maxReload)}
	for _, s := range sessions {
		if b := s.branch; b != nil && !seen[b] {
			seen[b] = true
			img.Branches = append(img.Branches, BranchSnapshot{Session: b.session, Strikes: b.strikes.Snapshot(), Banned: b.banned.Load()})
		}
		// Once there is too much it is only weighed: it must not be written down.
		si, more, err := s.snapshot(children)
		if err != nil {
			return nil, nil, err
		}
		bulk.add(s, uint64(si.bulk()))
		reload.add(s, uint64(s.reloading()))
		if bulk.sum <= bulk.most {
			img.Sessions, rings = append(img.Sessions, si), append(rings, more...)
		}
	}
	if heavy := bulk.heaviest(); heavy != nil {
		return nil, nil, blockedBy(gpuerr.New(gpuerr.Busy, "lists, programs and waiting entries of the sessions take more than %d bytes, which would be too much to write down beside them", maxBulk), heavy)
	}
	if heavy := reload.heaviest(); heavy != nil {
		return nil, nil, blockedBy(gpuerr.New(gpuerr.Busy, "programs of the sessions took more than %v to load, which would be too long to load them again while nothing moves", maxReload), heavy)
	}
	return img, rings, nil
}

// reloading is how long the session's programs took to load.
func (s *Session) reloading() (sum time.Duration) {
	handles.Each(s.handles, func(p *program) {
		if p.loaded {
			sum += p.took
		}
	})
	return sum
}

// maxBulk is how many bytes of tenants a Snapshot has at most. The driver writes it down
// beside all that it has, within the memory that it may use: a state that is too large
// must not be its end.
const maxBulk = 64 << 20

// bulk is what tenants decide the size of.
func (si *SessionSnapshot) bulk() (bytes int) {
	bytes = 4 * (len(si.Generations) + len(si.FreeSlots))
	for i := range si.Lists {
		bytes += len(si.Lists[i].Recorded)
	}
	for i := range si.Loaded {
		bytes += len(si.Loaded[i].Bundle)
	}
	for i := range si.Queues {
		for j := range si.Queues[i].Left {
			bytes += 8 * len(si.Queues[i].Left[j].Args)
		}
	}
	return bytes
}

// spentOf is what an account itself has spent: those below it keep their own.
func spentOf(a *ledger.Account, children map[*ledger.Account][]*ledger.Account) (spent []Spent) {
	own := map[ledger.Class]uint64{}
	for _, e := range a.Snapshot() {
		if e.Class.Spent() {
			own[e.Class] = e.Used
		}
	}
	for _, child := range children[a] {
		for _, e := range child.Snapshot() {
			if e.Class.Spent() {
				own[e.Class] -= e.Used
			}
		}
	}
	for c := range ledger.NumClasses {
		if own[c] > 0 {
			spent = append(spent, Spent{c, own[c]})
		}
	}
	return spent
}

func limitsOf(a *ledger.Account) (l ledger.Limits) {
	for _, e := range a.Snapshot() {
		l[e.Class] = e.Limit
	}
	return l
}

func (d *Device) snapshotTenant(t *tenant, children map[*ledger.Account][]*ledger.Account) TenantSnapshot {
	return TenantSnapshot{
		Name: t.name, Limits: limitsOf(t.account), Weight: uint32(t.flow.weight), MaxDeadline: time.Duration(t.longest.Load()), Spent: spentOf(t.account, children),
		Strikes: t.strikes.Snapshot(), BannedUntil: t.bannedUntil.Load(),
	}
}

// snapshot tells one session.
func (s *Session) snapshot(children map[*ledger.Account][]*ledger.Account) (si SessionSnapshot, rings []RingFDs, err error) {
	si = SessionSnapshot{
		ID: s.id, Parent: s.parentID(), Attach: s.attach, Tenant: s.tenant.name, Limits: limitsOf(s.account),
		Age: time.Since(s.opened), Spent: spentOf(s.account, children), Poison: s.Poisoned(), Trapped: s.context.Trapped(),
		RightsSnapshot: RightsSnapshot{s.facet, s.deadline, s.fair, s.longest, s.programs, s.listed, s.check},
		CountsSnapshot: CountsSnapshot{Launches: s.launches.Load(), Strikes: s.strikes.Load(), Traps: s.traps.Load()},
	}
	if s.branch != nil {
		si.Branch = s.branch.session
	}
	for i := range s.ended {
		si.Ended = append(si.Ended, s.ended[i].Load())
	}
	si.Snapshot = s.handles.Snapshot()
	var shared, device heap.ChunkIndex
	si.Chunks, shared = s.heaps.Shared.Chunks()
	si.DeviceChunks, device = s.heaps.Device.Chunks()
	for _, b := range inOrder(s.handles, func(b *buffer) Handle { return b.h }) {
		if b.stuck || b.pins.closed() {
			return si, nil, errFrozenLong
		}
		index := shared
		if !b.mapped() {
			index = device
		}
		si.Buffers = append(si.Buffers, BufferSnapshot{Handle: b.h, Usage: b.usage, Bytes: b.bytes, Memory: b.mem.Snapshot(index)})
	}
	for _, f := range inOrder(s.handles, func(f *fence) Handle { return f.h }) {
		si.Fences = append(si.Fences, f.snapshot())
	}
	s.snapshotPrograms(&si)
	for _, l := range inOrder(s.handles, func(l *list) Handle { return l.h }) {
		si.Lists = append(si.Lists, l.snapshot())
	}
	for _, q := range inOrder(s.handles, func(q *queue) Handle { return q.h }) {
		qi, r, err := q.snapshot()
		if err != nil {
			return si, nil, err
		}
		si.Queues, rings = append(si.Queues, qi), append(rings, r)
	}
	return si, rings, nil
}

// inOrder are the objects of one type, by handle's slot.
func inOrder[T any](t *handles.Table, h func(*T) Handle) (all []*T) {
	handles.Each(t, func(x *T) { all = append(all, x) })
	slices.SortFunc(all, func(a, b *T) int { return cmp.Compare(uint32(h(a)), uint32(h(b))) })
	return all
}

func (f *fence) snapshot() FenceSnapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	fi := FenceSnapshot{Handle: f.h, Initial: f.initial, Reached: f.reached, Promised: f.promised, PastCount: f.pastCount, Forgotten: PointSnapshot{f.forgotten.value, f.forgotten.ended, f.forgotten.how}}
	for _, p := range f.open {
		fi.Open = append(fi.Open, PointSnapshot{p.value, p.ended, p.how})
	}
	for i := f.pastCount - min(f.pastCount, fencePoints); i < f.pastCount; i++ {
		p := f.past[i%fencePoints]
		fi.Past = append(fi.Past, PointSnapshot{p.value, p.ended, p.how})
	}
	return fi
}

func (s *Session) snapshotPrograms(si *SessionSnapshot) {
	var opened []ProgramSnapshot
	for _, p := range inOrder(s.handles, func(p *program) Handle { return p.h }) {
		switch {
		case p.loaded:
			si.Loaded = append(si.Loaded, ProgramSnapshot{Handle: p.h, Bundle: p.bundle})
		case p.source != nil:
			opened = append(opened, ProgramSnapshot{Handle: p.h, SourceSession: p.source.session.id, Source: p.source.h})
		default:
			opened = append(opened, ProgramSnapshot{Handle: p.h, Name: p.name})
		}
	}
	si.Loaded = append(si.Loaded, opened...)
}

func (l *list) snapshot() ListSnapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return ListSnapshot{Handle: l.h, Entries: l.entries, ArgBytes: l.argBytes}
	}
	return ListSnapshot{Handle: l.h, Entries: l.entries, ArgBytes: l.argBytes, Recorded: l.recording, Frames: len(l.free)}
}

// snapshot tells a parked queue.
func (q *queue) snapshot() (qi QueueSnapshot, rf RingFDs, err error) {
	r, ok := q.ring.(exportableRing)
	if !ok {
		return qi, rf, gpuerr.New(gpuerr.Unimplemented, "a ring of another kind stays where it is")
	}
	st, mem, work, done, err := r.Export()
	if err != nil {
		return qi, rf, err
	}
	for _, fd := range []int{mem, work, done} {
		unix.Close(fd)
	}
	qi = QueueSnapshot{Handle: q.h, Ring: st, Group: q.outlet.group, Skipping: q.intake.skipping, Deaf: q.poll.deaf, Discard: q.intake.discard, Doomed: q.intake.doomed}
	if j := q.intake.waiting; j != nil {
		qi.Wait = &WaitSnapshot{UserData: j.user, Fence: j.fence.h, Value: j.value, OrderOnly: j.orderOnly}
	}
	for _, t := range q.leftEntries() {
		qi.Left = append(qi.Left, TakenSnapshot{Words: t.Words(), Args: slices.Clone(t.Args), Code: t.Code})
	}
	return qi, RingFDs{r, st}, nil
}

// ID is the session's number, which it keeps when another device goes on with it, and
// ParentID that of the session it was restricted from, or 0.
func (s *Session) ID() uint64       { return s.id }
func (s *Session) ParentID() uint64 { return s.parentID() }

// Session is the session of a number, or nil.
func (d *Device) Session(id uint64) *Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[id]
}
