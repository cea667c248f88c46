package manager

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
	"capgpu/ledger"
)

// A client that frees a buffer and makes one of the same size again waits each time until the
// host has found and zeroed pages. The pool makes memory of a size that was requested twice
// within zeroPoolTTL before the next request:
//
//	requested ──► making ──► spare ──take──► the driver's
//	                │           └── not requested for zeroPoolTTL, or its room is needed ──► closed
//	                └── the host or the account has too little ──► nothing
//
// Spare memory is as fresh as any other: a new memory file that no process has had, with
// pages that are present and zero. It is charged to the epoch, but it never makes a request
// fail: when the account refuses a request, spare memory is freed first.
const (
	// zeroPoolMinBytes is the smallest size. Less memory is quick to make without a pool, and
	// the driver keeps the memory that it carves small buffers from.
	zeroPoolMinBytes = 2 << 20
	// At most zeroPoolMaxBytes of one epoch are spare, and at most 1/zeroPoolPart of the
	// epoch's limit.
	zeroPoolMaxBytes = 128 << 20
	zeroPoolPart     = 8
	// Memory is made only if the account has accountHeadroom times as much left, and the host
	// has hostHeadroom times as much free.
	accountHeadroom = 4
	hostHeadroom    = 8
	// The pool remembers zeroPoolSizes sizes and keeps zeroPoolSpares of each, until
	// zeroPoolTTL after the last request.
	zeroPoolSizes  = 4
	zeroPoolSpares = 8
	zeroPoolTTL    = time.Second
	// zeroPiece is made at once. A maker that is told to stop does so after one piece and one
	// pause.
	zeroPiece = pagesPiece
	// The maker yields after each piece. If the yield took longer than idleYield, another
	// thread wants the processor, and nobody waits for the maker: it pauses for pauseFactor
	// times as long, at most maxPause.
	idleYield   = 20 * time.Microsecond
	pauseFactor = 8
	maxPause    = 2 * time.Millisecond

	// zeroPoolName tells spare memory from memory that a driver asked for.
	zeroPoolName = "capgpu-dma-zeroed"
)

// zeroPool holds the spare memory of one epoch.
type zeroPool struct {
	account           *ledger.Account
	create            func(name string, bytes uint64) (*shm.Memory, error)
	maxBytes          uint64
	hasRoom           func(bytes uint64) bool                 // on the host
	yield             func()                                  // shm.Yield
	punch             func(m *shm.Memory, bytes uint64) error // punchOut, while a caller waits
	punchInBackground func(m *shm.Memory, bytes uint64) error // in the maker, where no caller waits

	maker   sync.WaitGroup // runMake
	wake    chan struct{}  // a request came; capacity 1
	closing chan struct{}  // closed by close: background work is then done in the foreground

	// mu is held across no system call. The ledger's locks are inside it.
	mu sync.Mutex
	// +checklocks:mu
	sizes []*pooledSize // the one that was requested last is first
	// +checklocks:mu
	ttl time.Duration // zeroPoolTTL
	// +checklocks:mu
	charged uint64 // bytes that are charged: spare, in the making, or about to be closed
	// +checklocks:mu
	running bool // runMake
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	droppers int // callers that wait until nothing is charged

	decreased sync.Cond // of mu: charged went down
}

// pooledSize is a size that was requested.
type pooledSize struct {
	bytes  uint64
	asked  int // times, each within zeroPoolTTL of the one before
	last   time.Time
	spares []spare
}

// spare is charged memory that no driver has yet.
type spare struct {
	memory *shm.Memory
	charge ledger.Receipt
}

func newZeroPool(account *ledger.Account, create func(string, uint64) (*shm.Memory, error)) *zeroPool {
	p := &zeroPool{
		account: account, create: create, hasRoom: hostHasRoom, yield: shm.Yield, punch: punchOut, wake: make(chan struct{}, 1), closing: make(chan struct{}), ttl: zeroPoolTTL,
		maxBytes: min(zeroPoolMaxBytes, limitOf(account, ledger.DeviceMemory)/zeroPoolPart),
	}
	p.punchInBackground = func(m *shm.Memory, bytes uint64) error { return punchInBackground(m, bytes, p.closing) }
	p.decreased.L = &p.mu
	return p
}

// hostHasRoom reports whether the host has hostHeadroom times as many bytes free.
func hostHasRoom(bytes uint64) bool {
	var s unix.Sysinfo_t
	return unix.Sysinfo(&s) == nil && bytes <= s.Freeram*uint64(s.Unit)/hostHeadroom
}

// take notes a request for so many bytes. If memory of that size is spare, it returns it with
// its charge.
func (p *zeroPool) take(bytes uint64) (s spare, ok bool) {
	if bytes < zeroPoolMinBytes || bytes > p.maxBytes {
		return spare{}, false
	}

	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return spare{}, false
	}

	size, old := p.noteRequestLocked(bytes)
	if n := len(size.spares); n > 0 {
		s, ok = size.spares[n-1], true
		size.spares = size.spares[:n-1]
		p.decreaseLocked(bytes)
	}

	if size.asked > 1 && !p.running {
		p.running = true
		p.maker.Go(p.runMake)
	}
	p.mu.Unlock()
	p.discardSpares(old, p.punch)
	p.wakeMaker()
	return s, ok
}

func (p *zeroPool) wakeMaker() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// noteRequestLocked notes the size. If another size is forgotten for it, it returns the spare
// memory of that one.
//
// +checklocks:p.mu
func (p *zeroPool) noteRequestLocked(bytes uint64) (size *pooledSize, old []spare) {
	now := time.Now()
	i := slices.IndexFunc(p.sizes, func(s *pooledSize) bool { return s.bytes == bytes })
	switch {
	case i >= 0:
		size = p.sizes[i]
		p.sizes = slices.Delete(p.sizes, i, i+1)
	case len(p.sizes) == zeroPoolSizes:
		old = p.sizes[zeroPoolSizes-1].spares
		p.sizes = p.sizes[:zeroPoolSizes-1]
		fallthrough
	default:
		size = &pooledSize{bytes: bytes}
	}

	p.sizes = slices.Insert(p.sizes, 0, size)
	if now.Sub(size.last) > p.ttl {
		size.asked = 0
	}

	size.asked, size.last = size.asked+1, now
	return size, old
}

// discardSpares closes spare memory that the pool no longer lists. No other process has a
// descriptor of it, so its pages are free before its charge is.
func (p *zeroPool) discardSpares(spares []spare, punch func(*shm.Memory, uint64) error) {
	for i := range spares {
		s := &spares[i]
		discard(s.memory, punch)
		p.mu.Lock()
		p.uncharge(&s.charge)
		p.mu.Unlock()
	}
}

// discard frees the pages piece by piece, as punchOut does. A close would free all of them in
// one system call, which keeps others from the processor for a millisecond and more.
func discard(m *shm.Memory, punch func(*shm.Memory, uint64) error) {
	_ = punch(m, m.Size()) // close frees the rest
	_ = m.Close()          // close of a memory file cannot fail
}

// +checklocks:p.mu
func (p *zeroPool) uncharge(charge *ledger.Receipt) {
	bytes := charge.Amount()
	charge.Release()
	p.decreaseLocked(bytes)
}

// +checklocks:p.mu
func (p *zeroPool) decreaseLocked(bytes uint64) {
	p.charged -= bytes
	p.decreased.Broadcast()
}

// drop frees all spare memory and returns its charges. It reports whether there was any.
func (p *zeroPool) drop() bool {
	p.mu.Lock()
	if p.charged == 0 {
		p.mu.Unlock()
		return false
	}

	var old []spare
	for _, s := range p.sizes {
		old = append(old, s.spares...)
		s.spares, s.asked = nil, 0 // the size must be requested twice again
	}

	p.droppers++
	p.mu.Unlock()
	p.discardSpares(old, p.punch)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.charged > 0 {
		p.decreased.Wait()
	}

	p.droppers--
	return true
}

// close frees all spare memory and ends the maker. The pool stays empty.
func (p *zeroPool) close() {
	p.mu.Lock()
	if !p.closed {
		close(p.closing)
	}
	p.closed = true
	var old []spare
	for _, s := range p.sizes {
		old = append(old, s.spares...)
	}
	p.sizes = nil
	p.mu.Unlock()
	p.discardSpares(old, p.punch)
	p.wakeMaker()
	p.maker.Wait()
}

// excluding returns how much the account holds without the spare memory.
func (p *zeroPool) excluding(holds func() uint64) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return holds() - p.charged
}
