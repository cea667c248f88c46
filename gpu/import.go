package gpu

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// Adopt returns the driver's side of a piece of DMA memory that the pool has lent to an
// earlier driver of this epoch, named by its address and its generation there. It becomes
// the caller's with the commit of the upgrade.
type Adopt func(ctx context.Context, iova ddf.IOVA, generation uint64) (ddf.DMABuffer, error)

// importer takes one image over.
type importer struct {
	dev      *Device
	ctx      context.Context
	img      *Image
	adopt    Adopt
	fds      []int // of the rings, not taken yet
	branches map[uint64]*branch
	sessions map[uint64]*Session
	queues   []*queue
}

// Import takes over what another driver's Export has told. The device has served nobody
// yet. It is as that one was, frozen, and writes to nothing that a client sees until Thaw:
// until then the other may go on after all. The descriptors are Import's, also when it
// fails; then the device is of no use, and to be closed.
//
// An image of another version, or of another device, is refused before anything is made.
func (d *Device) Import(ctx context.Context, img *Image, fds []int, adopt Adopt) (err error) {
	im := &importer{dev: d, ctx: ctx, img: img, adopt: adopt, fds: fds, branches: map[uint64]*branch{}, sessions: map[uint64]*Session{}}
	defer func() {
		for _, fd := range im.fds {
			unix.Close(fd)
		}
		if err != nil {
			im.drop()
		}
	}()
	if err := im.check(); err != nil {
		return err
	}
	f := &freeze{arrived: make(chan struct{}, 1), thawed: make(chan struct{}), parked: map[*queue]struct{}{}}
	f.mu.Lock()
	f.held = true
	f.mu.Unlock()
	if !d.freezing.CompareAndSwap(nil, f) {
		return gpuerr.New(gpuerr.Busy, "the device is stopped already")
	}
	if err := im.all(); err != nil {
		return err
	}
	if len(im.fds) > 0 {
		return malformed("there are %d descriptors more than the queues have", len(im.fds))
	}
	f.start = im.queues
	return d.Check()
}

func malformed(format string, args ...any) error {
	return gpuerr.New(gpuerr.Protocol, "the state of the other driver: "+format, args...)
}

// drop lets go of what was made without a word to any client.
func (im *importer) drop() {
	for _, q := range im.queues {
		if r, ok := q.ring.(*ring.Server); ok {
			r.Drop()
		}
		close(q.done)
	}
}

// check refuses what is not for this device.
func (im *importer) check() error {
	d, img := im.dev, im.img
	switch {
	case img.Version != ImageVersion:
		return VersionError(ImageVersion, img.Version)
	case img.Device != d.cfg.Info.Name || img.Epoch != d.cfg.Info.Epoch || img.Backend != d.cfg.Backend.Info().Name:
		return malformed("it is of %q in epoch %d on %q, not of %q in %d on %q", img.Device, img.Epoch, img.Backend, d.cfg.Info.Name, d.cfg.Info.Epoch, d.cfg.Backend.Info().Name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sessions) > 0 || d.lastSession > 0 {
		return gpuerr.New(gpuerr.Busy, "this driver has sessions of its own")
	}
	return nil
}

// VersionError is what a successor answers that does not know the state it is told.
func VersionError(have, want uint32) error {
	return gpuerr.New(gpuerr.Version, "have=%d want=%d: this driver takes over state of version %d, and the other one tells version %d; install drivers of one version, or restart the device", have, want, have, want)
}

func (im *importer) all() error {
	d, img := im.dev, im.img
	d.mu.Lock()
	d.lastSession = img.LastSession
	d.opened = time.Now().Add(-max(img.Uptime, 0))
	d.mu.Unlock()
	d.engine.resets.Store(img.Resets)
	d.engine.strays.Store(img.Strays)
	d.engine.faults.Store(img.Faults)
	if err := spendAll(d.ledger.Root(), img.Spent); err != nil {
		return err
	}
	for i := range img.Tenants {
		if err := im.tenant(&img.Tenants[i]); err != nil {
			return err
		}
	}
	for i := range img.Branches {
		b := &img.Branches[i]
		br := &branch{session: b.Session}
		br.strikes.restore(b.Strikes)
		br.banned.Store(b.Banned)
		im.branches[b.Session] = br
	}
	for i := range img.Sessions {
		if err := im.session(&img.Sessions[i]); err != nil {
			return fmt.Errorf("take session %d over: %w", img.Sessions[i].ID, err)
		}
	}
	// Only now: a limit may have been lowered below what was held.
	for i := range img.Tenants {
		d.mu.Lock()
		t := d.tenants[img.Tenants[i].Name]
		d.mu.Unlock()
		setLimits(t.account, img.Tenants[i].Limits)
	}
	for i := range img.Sessions {
		setLimits(im.sessions[img.Sessions[i].ID].account, img.Sessions[i].Limits)
	}
	return nil
}

func spendAll(a *ledger.Account, spent []Spent) error {
	for _, s := range spent {
		if err := a.Spend(s.Class, s.Amount); err != nil && gpuerr.CodeOf(err) != gpuerr.Quota {
			return err
		}
	}
	return nil
}

func (k *strikes) restore(s StrikesImage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recent, k.count = nil, s.Count
	for _, at := range s.Recent {
		k.recent = append(k.recent, steady(at))
	}
}

// steady is a moment of the wall clock, of which the process's own clock is read from here
// on: it does not go back.
func steady(at time.Time) time.Time { return time.Now().Add(time.Until(at)) }

func (im *importer) tenant(ti *TenantImage) error {
	t, err := im.dev.tenantOf(ti.Name, ledger.NoLimits(), ti.Weight)
	if err != nil {
		return err
	}
	im.dev.engine.setWeight(t.flow, ti.Weight)
	t.strikes.restore(ti.Strikes)
	if ti.BannedUntil != nil {
		until := steady(*ti.BannedUntil)
		t.bannedUntil.Store(&until)
	}
	return spendAll(t.account, ti.Spent)
}

// session makes a session with all that it has.
func (im *importer) session(si *SessionImage) error {
	d := im.dev
	d.mu.Lock()
	t := d.tenants[si.Tenant]
	d.mu.Unlock()
	parent := im.sessions[si.Parent]
	switch {
	case t == nil || (si.Parent != 0) != (parent != nil) || im.sessions[si.ID] != nil || si.ID == 0 || si.ID > im.img.LastSession,
		si.Facet >= numFacets, len(si.Ended) > int(outcome.DeviceLost)+1, (si.Branch != 0) != (im.branches[si.Branch] != nil):
		return malformed("session %d below %d of %.64q", si.ID, si.Parent, si.Tenant)
	}
	s := &Session{
		dev: d, tenant: t, parent: parent, id: si.ID, attach: si.Attach, facet: si.Facet, deadline: si.Deadline, fair: si.Fair, longest: si.Longest,
		programs: si.Programs, listed: si.Listed, check: si.Check, branch: im.branches[si.Branch],
		opened: time.Now().Add(-max(si.Age, 0)), loading: newLine(),
	}
	payer, above := t.account, t.node
	if parent != nil {
		s.depth, payer, above = parent.depth+1, parent.account, parent.node
	}
	s.launches.Store(si.Launches)
	s.strikes.Store(si.Strikes)
	s.traps.Store(si.Traps)
	for i, n := range si.Ended {
		s.ended[i].Store(n)
	}
	if si.Poison.Kind != outcome.Pending {
		s.setPoisoned(si.Poison)
	}
	if si.Trapped {
		s.context.Trap()
	}
	if err := im.join(s, payer, above); err != nil {
		return err
	}
	im.sessions[s.id] = s
	if err := spendAll(s.account, si.Spent); err != nil {
		return err
	}
	var err error
	if s.handles, err = restoreTable(si.FirstGeneration, si.Generations, si.FreeSlots); err != nil {
		return err
	}
	for _, step := range []func(*Session, *SessionImage) error{im.memory, im.fences, im.programs, im.lists, im.rings, im.spoils} {
		if err := step(s, si); err != nil {
			return err
		}
	}
	for _, i := range si.FreeSlots {
		if s.handles.slot(i).Load() != nil {
			return malformed("slot %d is free and has an object", i)
		}
	}
	return nil
}

// join charges a session and puts it into the tree, as Session.open does.
func (im *importer) join(s *Session, payer *ledger.Account, above *revoke.Node) (err error) {
	d := im.dev
	if s.charge, err = payer.Reserve(ledger.Sessions, 1); err != nil {
		return err
	}
	if err := d.descriptors.take(sessionDescriptors); err != nil {
		s.charge.Release()
		return err
	}
	s.handles = newTable()
	s.memory.dma = d.cfg.DMA
	s.flow = newFlow(s.tenant.flow, 1)
	name := fmt.Sprintf("session %d", s.id)
	if s.account, err = payer.Child(name, ledger.NoLimits()); err != nil {
		return err
	}
	if s.node, err = above.NewChild(name, revoke.Ops{Urgent: true, Quiesce: s.quiesce, Scrub: s.scrub, Release: s.release}); err != nil {
		return err
	}
	s.memory.done = s.node.Done()
	s.charge.Commit()
	d.mu.Lock()
	d.sessions[s.id] = s
	d.mu.Unlock()
	return nil
}

// charged charges what an object of the session was charged, for good.
func (s *Session) charged(c ledger.Class, n uint64) (ledger.Receipt, error) {
	r, err := s.account.Reserve(c, n)
	if err == nil {
		r.Commit()
	}
	return r, err
}

func restoreTable(first uint32, generations, free []uint32) (*table, error) {
	if len(generations) > maxSlots || len(free) > len(generations) || first == 0 {
		return nil, malformed("a table of %d handles", len(generations))
	}
	pages := make([]*slotPage, (len(generations)+pageSlots-1)/pageSlots)
	for i := range pages {
		pages[i] = new(slotPage)
	}
	seen := map[uint32]bool{}
	for _, i := range free {
		if seen[i] || int(i) >= len(generations) || generations[i] == 0 {
			return nil, malformed("slot %d is not free", i)
		}
		seen[i] = true
	}
	t := &table{}
	t.pages.Store(&pages)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.generations, t.free = first, slices.Clone(generations), slices.Clone(free)
	return t, nil
}

// put publishes an object under the handle that its client knows.
func (t *table) put(obj any, h Handle) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := uint32(h)
	if int(i) >= len(t.generations) || t.generations[i] != uint32(h>>32) || t.generations[i] == 0 || t.slot(i).Load() != nil {
		return malformed("handle %#x is not one of its table", uint64(h))
	}
	t.live++
	t.slot(i).Store(&ref{h: h, obj: obj})
	return nil
}

func (im *importer) lend(iova, generation, bytes uint64) (ddf.DMABuffer, error) {
	if err := im.dev.descriptors.take(dmaDescriptors); err != nil {
		return nil, err
	}
	b, err := im.adopt(im.ctx, ddf.IOVA(iova), generation)
	if err != nil {
		im.dev.descriptors.give(dmaDescriptors)
		return nil, err
	}
	pool, _ := im.dev.cfg.DMA.(*countedPool)
	counted := &countedBuffer{DMABuffer: b, pool: pool}
	if uint64(b.IOVA()) != iova || b.Generation() != generation || b.Size() < bytes || uint64(len(b.Bytes())) < bytes {
		return nil, malformed("memory of %d bytes at %#x is not that which the pool has lent", bytes, iova)
	}
	return counted, nil
}

// memory takes chunks and buffers.
func (im *importer) memory(s *Session, si *SessionImage) error {
	m := &s.memory
	for _, ci := range si.Chunks {
		if ci.Bytes == 0 || ci.Bytes > maxChunkBytes || ci.Bytes%ddf.PageBytes != 0 {
			return malformed("a chunk of %d bytes", ci.Bytes)
		}
		dma, err := im.lend(ci.IOVA, ci.Generation, ci.Bytes)
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.chunks = append(m.chunks, &chunk{dma: dma, bytes: ci.Bytes, pages: make([]uint64, (ci.Bytes/ddf.PageBytes+63)/64)})
		m.mu.Unlock()
	}
	for i := range si.Buffers {
		if err := im.buffer(s, &si.Buffers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) buffer(s *Session, bi *BufferImage) (err error) {
	if bi.Bytes == 0 || bi.Bytes%ddf.PageBytes != 0 || bi.Usage == 0 || bi.Usage&^usageAll != 0 {
		return malformed("a buffer of %d bytes", bi.Bytes)
	}
	b := &buffer{session: s, h: bi.Handle, usage: bi.Usage, bytes: bi.Bytes}
	b.pins.init()
	if b.mem, err = im.extent(&s.memory, bi); err != nil {
		return err
	}
	b.host, b.iova = b.mem.dma.Bytes()[b.mem.off:b.mem.off+b.mem.bytes], uint64(b.mem.dma.IOVA())+b.mem.off
	if err := b.charge(im.ctx); err != nil {
		return err
	}
	for i := range b.charges {
		b.charges[i].Commit()
	}
	if b.node, err = s.node.NewChild("buffer", revoke.Ops{Quiesce: b.quiesce, Unmap: b.unmap, Scrub: b.scrub, Release: b.release}); err != nil {
		return err
	}
	return s.handles.put(b, b.h)
}

// extent is where a buffer lies: memory of its own, or pages of a chunk that are nobody
// else's.
func (im *importer) extent(m *memory, bi *BufferImage) (extent, error) {
	if bi.Chunk < 0 {
		dma, err := im.lend(bi.IOVA, bi.Generation, bi.Bytes)
		return extent{dma: dma, bytes: bi.Bytes}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if bi.Chunk >= len(m.chunks) || bi.Off%ddf.PageBytes != 0 {
		return extent{}, malformed("a buffer of chunk %d at %d", bi.Chunk, bi.Off)
	}
	c := m.chunks[bi.Chunk]
	if bi.Off > c.bytes || bi.Bytes > c.bytes-bi.Off {
		return extent{}, malformed("a buffer at %d of %d bytes is beyond its chunk", bi.Off, bi.Bytes)
	}
	for p := bi.Off / ddf.PageBytes; p < (bi.Off+bi.Bytes)/ddf.PageBytes; p++ {
		if c.pages[p/64]&(1<<(p%64)) != 0 {
			return extent{}, malformed("two buffers share a page of chunk %d", bi.Chunk)
		}
	}
	return m.takeLocked(c, bi.Off/ddf.PageBytes, bi.Bytes), nil
}

func (im *importer) fences(s *Session, si *SessionImage) error {
	for i := range si.Fences {
		f, err := restoreFence(s, &si.Fences[i])
		if err != nil {
			return err
		}
		if f.charge, err = s.charged(ledger.Fences, 1); err != nil {
			return err
		}
		ops := revoke.Ops{Quiesce: func() { f.die(outcome.Outcome{Kind: outcome.Revoked, Cause: outcome.Closed}) }, Release: f.charge.Release}
		if f.node, err = s.node.NewChild("fence", ops); err != nil {
			return err
		}
		if err := s.handles.put(f, f.h); err != nil {
			return err
		}
	}
	return nil
}

// restoreFence checks that a fence's points are in order, and ended where they must be.
func restoreFence(s *Session, fi *FenceImage) (*fence, error) {
	bad := fi.Reached < fi.Initial || fi.Promised < fi.Reached || len(fi.Open) > maxOpenPoints ||
		uint64(len(fi.Past)) != min(fi.PastCount, fencePoints) || !fi.Forgotten.How.Valid()
	f := &fence{session: s, h: fi.Handle}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.initial, f.reached, f.promised, f.pastCount = fi.Initial, fi.Reached, fi.Promised, fi.PastCount
	f.forgotten = point{fi.Forgotten.Value, fi.Forgotten.Ended, fi.Forgotten.How}
	last := uint64(0)
	for i, p := range fi.Past {
		bad = bad || p.Value <= last || p.Value > fi.Reached || !p.Ended || !p.How.Valid()
		last = p.Value
		f.past[(fi.PastCount-uint64(len(fi.Past))+uint64(i))%fencePoints] = point{p.Value, p.Ended, p.How}
	}
	last = fi.Reached
	for i, p := range fi.Open {
		bad = bad || p.Value <= last || p.Value > fi.Promised || !p.How.Valid() || i == 0 && p.Ended
		last = p.Value
		f.open = append(f.open, point{p.Value, p.Ended, p.How})
	}
	if bad {
		return nil, malformed("fence %#x does not agree with itself", uint64(fi.Handle))
	}
	return f, nil
}

func (im *importer) programs(s *Session, si *SessionImage) error {
	for i := range si.Loaded {
		if err := im.program(s, &si.Loaded[i]); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) program(s *Session, pi *ProgramImage) (err error) {
	p := &program{session: s, h: pi.Handle, name: pi.Name, bundle: pi.Bundle, loaded: len(pi.Bundle) > 0}
	p.pins.init()
	switch {
	case p.loaded:
		if p.charges[1], err = s.charged(ledger.ProgramBytes, loadedBytes(uint64(len(pi.Bundle)))); err != nil {
			return err
		}
		p.code, err = im.dev.cfg.Backend.Load(im.ctx, slices.Clone(pi.Bundle))
	case pi.Source != 0:
		above := im.sessions[pi.SourceSession]
		if above == nil {
			return malformed("program %#x was opened from a session that is not there", uint64(pi.Handle))
		}
		if p.source, err = lookup[program](above.handles, pi.Source); err == nil {
			p.code = p.source.code
		}
	default:
		p.code, err = im.dev.cfg.Backend.Builtin(pi.Name)
	}
	if err != nil {
		return err
	}
	if p.charges[0], err = s.charged(ledger.Programs, 1); err != nil {
		return err
	}
	p.info = p.code.Info()
	p.mu.Lock()
	p.opened = map[*program]struct{}{}
	p.mu.Unlock()
	if p.node, err = s.node.NewChild("program", revoke.Ops{Quiesce: p.quiesce, Release: p.release}); err != nil {
		return err
	}
	if p.source != nil && !p.source.derive(p) {
		return malformed("program %#x was opened from one that is closed", uint64(pi.Handle))
	}
	if p.loaded {
		s.loaded.add(p)
	}
	return s.handles.put(p, p.h)
}

func (im *importer) lists(s *Session, si *SessionImage) error {
	for i := range si.Lists {
		if err := im.list(s, &si.Lists[i]); err != nil {
			return err
		}
	}
	return nil
}

// list records a list again, of the same bytes; one that was dead stays so.
func (im *importer) list(s *Session, li *ListImage) (err error) {
	if li.Entries == 0 || li.Entries > MaxListEntries || li.ArgBytes > MaxListArgBytes || li.ArgBytes%ring.ArgAlign != 0 || li.Frames < 0 || li.Frames > keptFrames {
		return malformed("a list of %d entries", li.Entries)
	}
	l := &list{session: s, h: li.Handle, entries: li.Entries, argBytes: li.ArgBytes, recording: li.Recorded}
	l.burster, _ = im.dev.cfg.Backend.(backend.Burster)
	l.pins.init()
	if l.charge, err = s.charged(ledger.HostMemory, listBytes(li.Entries, li.ArgBytes)); err != nil {
		return err
	}
	dead := li.Recorded == nil
	if !dead {
		if uint64(len(li.Recorded)) != uint64(li.Entries)*ring.EntryBytes+uint64(li.ArgBytes) {
			return malformed("a list of %d entries has %d bytes", li.Entries, len(li.Recorded))
		}
		if err := l.record(newRecording(li.Recorded, li.Entries), int(li.Entries)); err != nil {
			return err
		}
		for range li.Frames {
			charge, err := s.charged(ledger.HostMemory, l.charge.Amount())
			if err != nil {
				return err
			}
			l.putFrame(l.newFrame(charge))
		}
	} else {
		l.pins.close()
	}
	l.forget(true, dead)
	if l.node, err = s.node.NewChild("list", revoke.Ops{Quiesce: l.quiesce, Release: l.release}); err != nil {
		return err
	}
	return s.handles.put(l, l.h)
}

func (im *importer) rings(s *Session, si *SessionImage) error {
	for i := range si.Queues {
		if err := im.queue(s, &si.Queues[i]); err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) spoils(s *Session, si *SessionImage) error {
	return s.spoils.restore(s.handles, si.Spoiled)
}

// queue makes a queue that stands where the other stood, and does not go yet.
func (im *importer) queue(s *Session, qi *QueueImage) (err error) {
	if len(im.fds) < 3 {
		return malformed("a queue has no descriptors")
	}
	mem, work, done := im.fds[0], im.fds[1], im.fds[2]
	im.fds = im.fds[3:]
	r, err := ring.Restore(qi.Ring, mem, work, done)
	if err != nil {
		return err
	}
	entries := qi.Ring.Entries
	q := newQueue(s, entries, qi.Ring.ArgBytes)
	q.h, q.ring, q.group, q.skipping, q.deaf, q.discard = qi.Handle, r, qi.Group, qi.Skipping, qi.Deaf, qi.Discard
	im.queues = append(im.queues, q)
	if !qi.Group.Valid() || qi.Group.Kind == outcome.Pending || qi.Discard < 0 {
		return malformed("queue %#x does not agree with itself", uint64(qi.Handle))
	}
	if q.charges[0], err = s.charged(ledger.QueueSlots, uint64(max(entries, minQueueCharge))); err != nil {
		return err
	}
	if err := im.dev.descriptors.take(queueDescriptors); err != nil {
		return err
	}
	q.descriptors.Store(queueDescriptors)
	if q.charges[1], err = s.charged(ledger.HostMemory, q.hostBytes(entries)); err != nil {
		return err
	}
	q.lease, q.meter = s.account.Lease(ledger.InFlight), s.account.Meter(ledger.DeviceTime)
	left := make([]ring.Taken, len(qi.Left))
	for i, t := range qi.Left {
		left[i] = ring.Taken{Words: t.Words, Args: t.Args, Code: t.Code}
	}
	if q.batch, err = ring.RestoreBatch(q.batchArgs(), left); err != nil {
		return err
	}
	s.spoils.join(q)
	q.burst.init(q)
	if q.node, err = s.node.NewChild("queue", revoke.Ops{Urgent: true, Quiesce: func() { <-q.done }, Release: q.release}); err != nil {
		return err
	}
	if qi.Wait != nil {
		if err := q.restoreWait(qi.Wait); err != nil {
			return err
		}
	}
	return s.handles.put(q, q.h)
}

// restoreWait has the queue wait as it did.
func (q *queue) restoreWait(w *WaitImage) error {
	f, err := lookup[fence](q.session.handles, w.Fence)
	if err != nil {
		return malformed("queue %#x waits for a fence that is not there", uint64(q.h))
	}
	if err := q.lease.Take(1); err != nil {
		return err
	}
	j := q.nextJob(&ring.Taken{Entry: ring.Entry{Op: ring.OpWait, UserData: w.UserData}})
	j.charged, j.fence, j.value, j.orderOnly = true, f, w.Value, w.OrderOnly
	q.waiter.value = w.Value
	if how, over := f.wait(&q.waiter); over {
		q.waited(j, how)
	} else {
		q.waiting = j
	}
	return nil
}
