package gpu

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
)

// buffer is device memory of one session.
type buffer struct {
	session *Session
	h       Handle
	node    *revoke.Node
	usage   Usage
	bytes   uint64
	mem     heap.Extent
	host    []byte // the driver's mapping, see backend.Span.Host
	iova    uint64
	pins    pins // jobs that use it
	lists   listSet

	charges [3]ledger.Receipt // buffers, iovaEntries, memory
	stuck   bool              // could not be unmapped: its charges stay
}

var errDestroyed = gpuerr.New(gpuerr.Closed, "closed by its session")

// roundUp rounds to whole pages; ok is false when that does not fit.
func roundUp(bytes uint64) (rounded uint64, ok bool) {
	rounded = (bytes + ddf.PageBytes - 1) &^ (ddf.PageBytes - 1)
	return rounded, rounded >= bytes
}

// CreateBuffer makes zeroed memory. The device reaches it; the client does too, unless it is
// of UsageDevice. The charge is in whole pages.
func (s *Session) CreateBuffer(ctx context.Context, bytes uint64, usage Usage) (BufferInfo, error) {
	if err := s.enterToWork(); err != nil {
		return BufferInfo{}, err
	}
	defer s.node.Leave()
	size, ok := roundUp(bytes)
	switch {
	case bytes == 0:
		return BufferInfo{}, gpuerr.New(gpuerr.Invalid, "bytes is 0; ask for at least one")
	case !ok || bytes > s.dev.cfg.MaxBufferBytes:
		return BufferInfo{}, gpuerr.New(gpuerr.Invalid, "bytes is %d; a buffer has at most %d", bytes, s.dev.cfg.MaxBufferBytes)
	case usage&^usageAll != 0:
		return BufferInfo{}, gpuerr.New(gpuerr.Invalid, "usage is %#x; only bits 0 to 3 have a meaning", uint32(usage))
	}
	if usage&^UsageDevice == 0 {
		usage |= UsageStorage
	}
	if err := s.audited(); err != nil {
		return BufferInfo{}, err
	}
	b := &buffer{session: s, usage: usage, bytes: size}
	b.pins.init()
	if err := b.charge(ctx); err != nil {
		return BufferInfo{}, err
	}
	crashpoint.Here("driver.buffer.charged")
	if err := b.back(ctx); err != nil {
		b.refund()
		return BufferInfo{}, err
	}
	crashpoint.Here("driver.buffer.mapped")
	if err := s.handles.Add(b, func(h Handle) { b.h = h }); err != nil {
		b.node.CloseAsync(err) // not Close: we are inside the session
		return BufferInfo{}, err
	}
	s.audit("buffer.create", "buffer=%#x bytes=%d usage=%d", uint64(b.h), b.bytes, b.usage)
	info := BufferInfo{Handle: b.h, MemLen: b.bytes}
	if b.mapped() {
		_, info.MemOff = b.mem.File()
	}
	return info, nil
}

// mapped reports whether the client may map the buffer.
func (b *buffer) mapped() bool { return b.usage&UsageDevice == 0 }

// BufferFD returns a duplicate of the memfd that a buffer lies in, which the
// caller owns; -1 of a buffer of UsageDevice. The buffer cannot go while it is made, so that
// the number can never be another's memory.
func (s *Session) BufferFD(h Handle) (int, error) {
	if err := s.enter(); err != nil {
		return -1, err
	}
	defer s.node.Leave()
	b, err := handles.Lookup[buffer](s.handles, h)
	if err != nil {
		return -1, err
	}
	if err := b.node.Enter(); err != nil {
		return -1, handles.ErrStale
	}
	defer b.node.Leave()
	if !b.mapped() {
		return -1, nil
	}

	own, _ := b.mem.File()
	fd, err := unix.FcntlInt(uintptr(own), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, gpuerr.New(gpuerr.IO, "the driver has no free descriptor; close other objects and try again")
	}
	return fd, nil
}

// charge charges all of the buffer or nothing.
func (b *buffer) charge(ctx context.Context) error {
	amounts := [...]struct {
		class ledger.Class
		n     uint64
	}{{ledger.Buffers, 1}, {ledger.IOVAEntries, 1}, {b.session.memoryClass(b.usage), b.bytes}}
	for i, a := range amounts {
		r, err := b.session.reserve(ctx, a.class, a.n)
		if err != nil {
			b.refund()
			return err
		}
		b.charges[i] = r
	}
	return nil
}

func (b *buffer) refund() {
	for i := range b.charges {
		b.charges[i].Release()
	}
}

// back gives a charged buffer its memory and its node.
func (b *buffer) back(ctx context.Context) error {
	s := b.session
	var mem heap.Extent
	err := s.dev.orReclaimed(ctx, nil, s.node.Done(), func() (err error) {
		mem, err = s.heaps.For(!b.mapped()).Alloc(ctx, b.bytes)
		return err
	})
	if err != nil {
		return poolError(err)
	}
	b.mem, b.host, b.iova = mem, mem.Host(), mem.IOVA()
	for i := range b.charges {
		b.charges[i].Commit()
	}
	b.node, err = s.node.NewChild("buffer", revoke.Ops{Quiesce: b.quiesce, Unmap: b.unmap, Scrub: b.scrub, Release: b.release})
	if err != nil {
		b.scrub()
		b.releaseMemory()
		return s.closedError(err)
	}
	return nil
}

// poolError makes sure that what the DMA pool refused has a code a client knows.
func poolError(err error) error {
	switch code := gpuerr.CodeOf(err); {
	case code != gpuerr.Internal:
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return gpuerr.New(gpuerr.Busy, "device memory did not come in time: %v", err)
	}
	return gpuerr.New(gpuerr.IO, "device memory: %v", err)
}

// DestroyBuffer frees a buffer. Jobs that use it are cancelled and end revoked;
// when it returns, the device no longer reaches the memory and it is scrubbed.
func (s *Session) DestroyBuffer(h Handle) error {
	b, err := remove[buffer](s, h)
	if err != nil {
		return err
	}
	if err := b.node.Close(errDestroyed); err != nil {
		return err
	}
	s.audit("buffer.destroy", "buffer=%#x bytes=%d", uint64(h), b.bytes)
	return nil
}

// quiesce waits until no job uses the buffer: bounded by the cancel and reset
// ladder of the engine.
func (b *buffer) quiesce() {
	b.pins.close()
	if !b.goesWithSession() { // else nothing runs that could have it, nor will
		b.session.cancelAll(func(j *job) bool { return j.usesBuffer(b) })
	}
	<-b.pins.drained
	b.lists.kill()
}

// unmap takes the buffer's own mapping away. A carved one stays in its chunk's
// mapping, which only jobs of this session are given spans of.
func (b *buffer) unmap() { b.host = nil }

// scrub zeroes the memory; for a buffer with a mapping of its own that includes
// the unmap, which the pool does first.
func (b *buffer) scrub() (more bool) {
	if b.mem.Carved() && b.goesWithSession() {
		return false // the session's own scrub frees the chunk
	}
	if err := b.mem.Scrub(); err != nil {
		b.stuck = true
		b.session.dev.memoryLost(err)
	}
	return false
}

// goesWithSession reports whether the buffer is closed because its session is.
func (b *buffer) goesWithSession() bool { return b.node != nil && b.node.ClosedByParent() }

func (b *buffer) release() {
	b.releaseMemory()
	if !b.stuck {
		b.refund()
	}
}

func (b *buffer) releaseMemory() {
	if b.stuck {
		return
	}
	if b.mem.Carved() && b.goesWithSession() {
		b.stuck = b.mem.Stuck()
		return
	}
	if err := b.session.heaps.For(!b.mapped()).Release(b.mem); err != nil {
		b.stuck = true
		b.session.dev.memoryLost(err)
	}
}

var revokedOutcome = outcome.Outcome{Kind: outcome.Revoked, Cause: outcome.Closed}
