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
	// At most zeroPoolMaxBytes of one epoch are spare, and at most one zeroPoolPart of the
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
	a := &zeroPool{
		account: account, create: create, hasRoom: hostHasRoom, yield: shm.Yield, punch: punchOut, wake: make(chan struct{}, 1), closing: make(chan struct{}), ttl: zeroPoolTTL,
		maxBytes: min(zeroPoolMaxBytes, limitOf(account, ledger.DeviceMemory)/zeroPoolPart),
	}
	a.punchInBackground = func(m *shm.Memory, bytes uint64) error { return punchInBackground(m, bytes, a.closing) }
	a.decreased.L = &a.mu
	return a
}

// hostHasRoom reports whether the host has hostHeadroom times as many bytes free.
func hostHasRoom(bytes uint64) bool {
	var s unix.Sysinfo_t
	return unix.Sysinfo(&s) == nil && bytes <= s.Freeram*uint64(s.Unit)/hostHeadroom
}

// take notes a request for so many bytes. If memory of that size is spare, it returns it with
// its charge.
func (a *zeroPool) take(bytes uint64) (s spare, ok bool) {
	if bytes < zeroPoolMinBytes || bytes > a.maxBytes {
		return spare{}, false
	}

	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return spare{}, false
	}

	size, old := a.noteRequestLocked(bytes)
	if n := len(size.spares); n > 0 {
		s, ok = size.spares[n-1], true
		size.spares = size.spares[:n-1]
		a.decreaseLocked(bytes)
	}

	if size.asked > 1 && !a.running {
		a.running = true
		a.maker.Go(a.runMake)
	}
	a.mu.Unlock()
	a.discardSpares(old, a.punch)
	a.wakeMaker()
	return s, ok
}

func (a *zeroPool) wakeMaker() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// noteRequestLocked notes the size. If another size is forgotten for it, it returns the spare
// memory of that one.
//
// +checklocks:a.mu
func (a *zeroPool) noteRequestLocked(bytes uint64) (size *pooledSize, old []spare) {
	now := time.Now()
	i := slices.IndexFunc(a.sizes, func(s *pooledSize) bool { return s.bytes == bytes })
	switch {
	case i >= 0:
		size = a.sizes[i]
		a.sizes = slices.Delete(a.sizes, i, i+1)
	case len(a.sizes) == zeroPoolSizes:
		old = a.sizes[zeroPoolSizes-1].spares
		a.sizes = a.sizes[:zeroPoolSizes-1]
		fallthrough
	default:
		size = &pooledSize{bytes: bytes}
	}

	a.sizes = slices.Insert(a.sizes, 0, size)
	if now.Sub(size.last) > a.ttl {
		size.asked = 0
	}

	size.asked, size.last = size.asked+1, now
	return size, old
}

// discardSpares closes spare memory that the pool no longer lists. No other process has a
// descriptor of it, so its pages are free before its charge is.
func (a *zeroPool) discardSpares(spares []spare, punch func(*shm.Memory, uint64) error) {
	for i := range spares {
		s := &spares[i]
		discard(s.memory, punch)
		a.mu.Lock()
		a.uncharge(&s.charge)
		a.mu.Unlock()
	}
}

// discard frees the pages piece by piece, as punchOut does. A close would free all of them in
// one system call, which keeps others from the processor for a millisecond and more.
func discard(m *shm.Memory, punch func(*shm.Memory, uint64) error) {
	_ = punch(m, m.Size()) // close frees the rest
	_ = m.Close()          // close of a memory file cannot fail
}

// +checklocks:a.mu
func (a *zeroPool) uncharge(charge *ledger.Receipt) {
	bytes := charge.Amount()
	charge.Release()
	a.decreaseLocked(bytes)
}

// +checklocks:a.mu
func (a *zeroPool) decreaseLocked(bytes uint64) {
	a.charged -= bytes
	a.decreased.Broadcast()
}

// drop frees all spare memory and returns its charges. It reports whether there was any.
func (a *zeroPool) drop() bool {
	a.mu.Lock()
	if a.charged == 0 {
		a.mu.Unlock()
		return false
	}

	var old []spare
	for _, s := range a.sizes {
		old = append(old, s.spares...)
		s.spares, s.asked = nil, 0 // the size must be requested twice again
	}

	a.droppers++
	a.mu.Unlock()
	a.discardSpares(old, a.punch)
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.charged > 0 {
		a.decreased.Wait()
	}

	a.droppers--
	return true
}

// close frees all spare memory and ends the maker. The pool stays empty.
func (a *zeroPool) close() {
	a.mu.Lock()
	if !a.closed {
		close(a.closing)
	}
	a.closed = true
	var old []spare
	for _, s := range a.sizes {
		old = append(old, s.spares...)
	}
	a.sizes = nil
	a.mu.Unlock()
	a.discardSpares(old, a.punch)
	a.wakeMaker()
	a.maker.Wait()
}

// excluding returns how much the account holds without the spare memory.
func (a *zeroPool) excluding(holds func() uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return holds() - a.charged
}
