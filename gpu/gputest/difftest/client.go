package difftest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpu"
	"capgpu/gpu/gputest/refmodel"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
)

const (
	queueEntries = 256
	queueArgs    = 1 << 20
	// patience is how long nothing may come back.
	patience = 30 * time.Second
)

// kind is what a session is like.
type kind int

const (
	full kind = iota
	noPrograms
	poisoned
	spent
	numKinds
)

// client is a session, a queue of it, and the model of both.
type client struct {
	generator
	dev     *device
	session *gpu.Session
	model   *refmodel.Session
	kind    kind
	queue   queue
	probe   queue // of nothing but what finds out where buffers are

	record    []byte // the memory that recordings lie in
	recordBuf uint64
	lastOff   uint64 // of the last buffer in its memory

	batches [2]batch
	ended   [8]uint64  // entries, by how the model says that they end
	codes   [32]uint64 // and by the code that they are refused with
	dirty   int        // words of the arena that were written over
	moment  uint64     // when the last signal ended
}

// queue is one of a session.
type queue struct {
	handle gpu.Handle
	ring   *rawRing
	model  *refmodel.Queue
}

// hold is a wait that the client itself ends.
type hold struct {
	at           int
	fence, value uint64
}

func modelLimits() refmodel.Limits {
	return refmodel.Limits{
		MaxThreadsPerBlock: limits.MaxThreadsPerBlock, MaxBlockDim: limits.MaxBlockDim, MaxGridDim: limits.MaxGridDim,
		MaxSharedBytes: limits.MaxSharedBytes, MaxBindings: limits.MaxBindings, MaxInlineBytes: limits.MaxInlineBytes,
		OffsetAlign: limits.OffsetAlign, MaxBindingBytes: limits.MaxBindingBytes,
	}
}

// openQueue makes a queue of the session.
func (c *client) openQueue(entries, args uint32) (q queue, err error) {
	info, err := c.session.CreateQueue(entries, args)
	if err != nil {
		return q, err
	}
	memory, wake, done, err := c.session.QueueFDs(info.Handle)
	if err != nil {
		return q, err
	}
	q = queue{handle: info.Handle, model: refmodel.NewQueue(c.model)}
	q.ring, err = attachRaw(memory, wake, done)
	return q, err
}

// open makes everything that a session has at first.
func (c *client) open(dev *gpu.Device, k kind) (err error) {
	a := gpu.Attach{Tenant: "t", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: gpu.FacetFull}
	c.kind = k
	switch k {
	case noPrograms:
		a.Facet = gpu.FacetMemory
	case spent:
		a.Limits[ledger.DeviceTime] = 1 << 40
	}
	if c.session, err = dev.OpenSession(a); err != nil {
		return err
	}
	c.model = refmodel.NewSession(modelLimits(), refmodel.Facet(a.Facet))
	if c.dev.fails {
		c.model.Fails = fails
	}
	c.buffers, c.programs, c.fences, c.lists, c.moment = nil, nil, nil, nil, 0
	if c.queue, err = c.openQueue(queueEntries, queueArgs); err != nil {
		return err
	}
	if c.probe, err = c.openQueue(2, 64); err != nil {
		return err
	}
	if c.args == nil {
		c.args = make([]uint64, queueArgs/8)
	}
	clear(c.args) // as the new ring's
	c.dirty = 0
	for _, bytes := range []uint64{4096, 8192, 65536, 1 << 20, 4096, 12288} {
		if err := c.makeBuffer(bytes, c.usage()); err != nil {
			return err
		}
	}
	if err := c.openRecord(); err != nil {
		return err
	}
	for range 3 {
		if err := c.makeFence(); err != nil {
			return err
		}
	}
	if k != noPrograms {
		for i := range programs {
			if err := c.openProgram(i); err != nil {
				return err
			}
		}
	}
	for range 6 {
		if err := c.makeList(); err != nil {
			return err
		}
	}
	switch k {
	case poisoned:
		c.dev.trap.Store(true)
		return c.last(func() { c.model.Poisoned = true }, outcome.Failed)
	case spent:
		for c.model.DeviceNanos < 1<<40 {
			n := queueEntries
			if c.model.DeviceNanos+queueEntries<<30 >= 1<<40 {
				n = 1 // with more it would not be known which was one too many
			}
			if err := c.use(n); err != nil {
				return err
			}
		}
		c.model.Spent = true
	}
	return nil
}

// use has device time spent.
func (c *client) use(n int) error {
	b := &c.batches[0]
	for i := range b.entries[:n] {
		b.entries[i] = refmodel.Entry{refmodel.OpFill, uint64(i), c.buffers[0].handle, 0, c.r.Uint64() >> 32, 0, 4}
	}
	b.n, b.scribble, c.used = n, false, 0
	c.ask(b)
	if err := c.publish(b); err != nil {
		return err
	}
	return c.compare(b)
}

// last does one piece of work that ends so, and after which the session is another.
func (c *client) last(then func(), want outcome.Kind) error {
	c.probe.ring.put(c.probe.ring.tail, &[8]uint64{refmodel.OpFill, 1, c.buffers[0].handle, 0, 0, 0, 4})
	if err := c.probe.ring.publish(1); err != nil {
		return err
	}
	if err := await(c.probe.ring); err != nil {
		return err
	}
	got := c.probe.ring.take()
	if outcome.Kind(got[1]) != want {
		return fmt.Errorf("the last work of a session ended %#x", got)
	}
	f := refmodel.Begin
	for _, w := range [...]uint64{refmodel.OpFill, 0, c.buffers[0].model.IOVA, 4} {
		f.Add(w)
	}
	c.model.DeviceNanos += f.Nanos()
	c.model.Jobs++
	then()
	return c.probe.ring.taken()
}

// await waits for a completion.
func await(r *rawRing) error {
	if r.ready() > 0 {
		return nil
	}
	if err := r.await(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("no completion came (state %d): %w", r.state(), err)
	}
	return nil
}

// batch is entries that are submitted together.
type batch struct {
	n        int
	entries  [queueEntries]refmodel.Entry
	wants    [queueEntries]refmodel.Completion
	holds    []hold
	scribble bool
}

// make fills a batch with so many new entries, and asks the model.
func (c *client) make(b *batch, n int, scribble bool) {
	c.used = 0
	if c.tune.left == 0 && c.n(32) == 0 {
		c.learnTune()
	}
	if c.tune.left > 0 && !scribble {
		c.tune.left--
		c.playTune(b.entries[:n])
		b.n, b.scribble = n, false
		c.ask(b)
		return
	}
	c.rare = [...]int{8, 64, 1024, 1 << 20}[c.n(4)]
	for i := range b.entries[:n] {
		if e := &b.entries[i]; i > 0 && c.n(4) == 0 { // one comes again, with arguments that lie where they are
			user := e[1]
			*e = b.entries[c.n(i)]
			e[1] = user
		} else {
			c.entry(e)
		}
	}
	b.n, b.scribble = n, scribble
	c.ask(b)
}

// ask asks the model.
func (c *client) ask(b *batch) {
	b.holds = b.holds[:0]
	c.model.Publish()
	q := c.queue.model
	for i := range b.entries[:b.n] {
		e := &b.entries[i]
		c.exact(e)
		want, holds := q.Do(e, c.args)
		if holds {
			h := hold{at: i}
			h.fence, h.value, want = q.Release()
			b.holds = append(b.holds, h)
		}
		b.wants[i] = want
		c.ended[outcome.Kind(want[1])%outcome.Kind(len(c.ended))]++
		c.codes[gpuerr.Code(want[1]>>32)%gpuerr.Code(len(c.codes))]++
	}
}

// publish hands the batch that was made last to the driver, which has nothing else.
func (c *client) publish(b *batch) error {
	r := c.queue.ring
	for i := range b.entries[:b.n] {
		r.put(r.tail+uint64(i), (*[8]uint64)(&b.entries[i]))
	}
	words := max(c.used, c.dirty)
	copy(r.arena[:words], c.args[:words])
	c.dirty = 0
	if b.scribble {
		c.dirty = c.used
		from, tail, used := r.tail, r.tail+uint64(b.n), uint64(c.used)
		scribble := func() { r.scribble(from, tail, used) }
		c.dev.busy.Store(&scribble)
	}
	return r.publish(uint64(b.n))
}

// exact keeps from questions about points of a fence that are so long past that the answer
// may be one of several.
func (c *client) exact(e *refmodel.Entry) {
	if e[0]&0xff != refmodel.OpWait {
		return
	}
	for _, f := range c.fences {
		if f.handle == e[2] && !f.model.Exact(e[3]) {
			e[3] = f.model.Last()
		}
	}
}

// compare reads the completions of a batch and holds them against what the model says.
func (c *client) compare(b *batch) error {
	at, r := 0, c.queue.ring
	read := func(until int) error {
		for at < until {
			if err := await(r); err != nil {
				return fmt.Errorf("entry %d of %d, %x: %w", at, b.n, b.entries[at], err)
			}
			for ready := r.ready(); ready > 0 && at < until; ready-- {
				got := r.take()
				if err := c.takeMoment(&b.entries[at], &got); err != nil {
					return err
				}
				if got != [4]uint64(b.wants[at]) {
					return c.diverged(b, at, got)
				}
				at++
			}
		}
		return nil
	}
	for _, h := range b.holds {
		if err := read(h.at); err != nil {
			return err
		}
		if err := c.session.SignalFence(gpu.Handle(h.fence), h.value); err != nil {
			return fmt.Errorf("entry %d of %d waits for %d of fence %#x, which cannot be signalled: %w", h.at, b.n, h.value, h.fence, err)
		}
	}
	if err := read(b.n); err != nil {
		return err
	}
	c.dev.busy.Store(nil)
	return r.taken()
}

// takeMoment takes out of a completion when a signal ended, which the model does not know. In a
// queue it never goes back.
func (c *client) takeMoment(e *refmodel.Entry, got *[4]uint64) error {
	if e[0]&0xff != refmodel.OpSignal || outcome.Kind(got[1]) != outcome.OK {
		return nil
	}
	at, age := got[2], time.Since(c.dev.began)
	if at < c.moment || at > uint64(age) {
		return fmt.Errorf("divergence: a signal ended at %d ns, the one before it at %d ns, and the device is %d ns old", at, c.moment, age)
	}
	c.moment, got[2] = at, 0
	return nil
}

func (c *client) diverged(b *batch, at int, got [4]uint64) error {
	e := &b.entries[at]
	say := func(w [4]uint64) string {
		return fmt.Sprintf("%v, code %v, value %d (%x)", outcome.Outcome{Kind: outcome.Kind(w[1]), Cause: outcome.Cause(w[1] >> 8)}, gpuerr.Code(w[1]>>32), w[2], w)
	}
	var args []uint64 // as they are in the ring, unless that was written over
	if off, bytes := uint64(uint32(e[6]))/8, min(e[6]>>32, 1024); e[0]&0xff == refmodel.OpLaunch || e[0]&0xff == refmodel.OpReplay {
		if end := off + (bytes+7)/8; end <= uint64(len(c.args)) {
			args = c.queue.ring.arena[off:end]
		}
	}
	return fmt.Errorf("divergence: session of kind %d, entry %d of %d: %x with arguments %x\nthe model: %s\nthe driver: %s", c.kind, at, b.n, *e, args, say(b.wants[at]), say(got))
}

// books compares what was charged.
func (c *client) books(given uint64) error {
	b := c.session.Budget()
	if used := b[ledger.DeviceTime].Used + b[ledger.DeviceTime].Reserved; used != c.model.DeviceNanos {
		return fmt.Errorf("divergence: the books have %d ns of device time, the model %d", used, c.model.DeviceNanos)
	}
	if n := b[ledger.InFlight].Used + b[ledger.InFlight].Reserved; n != 0 {
		return fmt.Errorf("divergence: %d entries are charged as in flight, and all have ended", n)
	}
	if given != c.model.Jobs {
		return fmt.Errorf("divergence: the device was given %d jobs, the model accepted %d", given, c.model.Jobs)
	}
	if text := c.dev.bad.Load(); text != nil {
		return fmt.Errorf("divergence: the device was given what it must not be: %s", *text)
	}
	return nil
}

// usage is what a buffer may be for.
func (c *client) usage() gpu.Usage {
	return []gpu.Usage{0, 0, 0, gpu.UsageUpload, gpu.UsageReadback, gpu.UsageStorage | gpu.UsageUpload, gpu.UsageDevice}[c.n(7)]
}

// makeBuffer makes one, and finds out where the device sees it.
func (c *client) makeBuffer(bytes uint64, usage gpu.Usage) error {
	info, err := c.session.CreateBuffer(context.Background(), bytes, usage)
	if err != nil {
		return err
	}
	c.lastOff = info.MemOff
	b := &refmodel.Buffer{Bytes: info.MemLen, CanRead: usage != gpu.UsageReadback, CanWrite: usage != gpu.UsageUpload}
	c.model.Add(uint64(info.Handle), b)
	e := refmodel.Entry{refmodel.OpFill, 0, uint64(info.Handle), 0, 0, 0, 4}
	c.probe.ring.put(c.probe.ring.tail, (*[8]uint64)(&e))
	if err := c.probe.ring.publish(1); err != nil {
		return err
	}
	if err := await(c.probe.ring); err != nil {
		return err
	}
	b.IOVA = c.dev.lastIOVA.Load()
	for _, other := range c.buffers {
		if b.IOVA < other.model.IOVA+other.model.Bytes && other.model.IOVA < b.IOVA+b.Bytes {
			return fmt.Errorf("divergence: two buffers of a session are one memory, at %#x and %#x", b.IOVA, other.model.IOVA)
		}
	}
	c.model.Publish()
	want, _ := c.probe.model.Do(&e, nil)
	if got := c.probe.ring.take(); got != [4]uint64(want) {
		return fmt.Errorf("divergence: the first fill of a buffer: %x, not %x", got, want)
	}
	c.buffers = append(c.buffers, object[refmodel.Buffer]{uint64(info.Handle), b})
	return c.probe.ring.taken()
}

func (c *client) openProgram(i int) error {
	h, _, err := c.session.OpenProgram(programs[i].info.Name)
	if err != nil {
		return err
	}
	p := programs[i].model // each is closed by itself
	c.model.Add(uint64(h), &p)
	c.programs = append(c.programs, object[refmodel.Program]{uint64(h), &p})
	return nil
}

func (c *client) makeFence() error {
	initial := uint64(c.n(1000))
	h, err := c.session.CreateFence(initial)
	if err != nil {
		return err
	}
	f := refmodel.NewFence(initial)
	c.model.Add(uint64(h), f)
	c.fences = append(c.fences, object[refmodel.Fence]{uint64(h), f})
	return nil
}

// openRecord makes the buffer that recordings lie in, and maps it.
func (c *client) openRecord() error {
	if err := c.makeBuffer(1<<16, 0); err != nil {
		return err
	}
	last := len(c.buffers) - 1
	c.recordBuf = c.buffers[last].handle
	c.buffers = c.buffers[:last]
	fd, err := c.session.BufferFD(gpu.Handle(c.recordBuf))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	c.record, err = unix.Mmap(fd, int64(c.lastOff), 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return err
}

// forget notes that an object is closed.
func forget[T any](c *client, from []object[T], i int) []object[T] {
	c.model.Close(from[i].handle)
	if len(c.bad) < 64 {
		c.bad = append(c.bad, from[i].handle)
	} else {
		c.bad[c.n(64)] = from[i].handle
	}
	return slices.Delete(from, i, i+1)
}
