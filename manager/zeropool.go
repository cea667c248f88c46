package manager

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
	"capgpu/ledger"
)

// Who makes and frees buffers of one size again and again waits, each time, for the
// host to find and zero pages. So memory of a size that was asked for twice lately is
// made before it is asked for again, while nobody waits:
//
//	asked for ──► making ──► spare ──take──► a driver's
//	                 │          └── not asked for within aheadStays, or its room is needed ──► closed
//	                 └── the host or the account has too little ──► nothing
//
// It is as fresh as any other: a memory file that nobody else ever had, with pages
// that are there and zero. It is charged to the epoch like any other, but never in
// anybody's way: a request that the account refuses has what is spare freed first.
const (
	// zeroPoolMinBytes is the smallest size. Less is quick without, and what small buffers
	// are carved from is kept by the driver.
	zeroPoolMinBytes = 2 << 20
	// zeroPoolMaxBytes is how much of one epoch is spare at most, and so is the aheadPart of
	// its limit.
	zeroPoolMaxBytes = 128 << 20
	zeroPoolPart     = 8
	// accountHeadroom times what is made must be left in the account, and hostRoom times of
	// the host's free memory.
	accountHeadroom = 4
	hostHeadroom    = 8
	// zeroPoolSizes are remembered, aheadSpares kept of one, for so long after it was
	// last asked for.
	zeroPoolSizes  = 4
	zeroPoolSpares = 8
	zeroPoolTTL    = time.Second
	// zeroPiece is backed at once; who gives up waits no longer than that and a rest take.
	zeroPiece = pagesPiece
	// After each piece others go first. If that took longer than aheadFree somebody wants
	// the processor, and nobody waits for what is made: it rests aheadRests times as long,
	// at most aheadRest.
	idleYield   = 20 * time.Microsecond
	pauseFactor = 8
	maxPause    = 2 * time.Millisecond

	// zeroPoolName tells spare memory from what a driver had from the start.
	zeroPoolName = "capgpu-dma-zeroed"
)

// zeroPool is what one epoch has spare.
type zeroPool struct {
	account           *ledger.Account
	create            func(name string, bytes uint64) (*shm.Memory, error)
	maxBytes          uint64
	hasRoom           func(bytes uint64) bool                 // on the host
	yield             func()                                  // shm.GiveWay
	punch             func(m *shm.Memory, bytes uint64) error // punchOut, for whoever waits
	punchInBackground func(m *shm.Memory, bytes uint64) error // punchBehind, where nobody does

	maker   sync.WaitGroup // runMake
	wake    chan struct{}  // somebody asked; capacity 1
	closing chan struct{}  // closed by close: whoever waits for memory to go waits for nobody else

	// mu is held for no system call; the ledger's locks are inside it.
	mu sync.Mutex
	// +checklocks:mu
	sizes []*pooledSize // the one that was asked for last is first
	// +checklocks:mu
	ttl time.Duration // aheadStays
	// +checklocks:mu
	charged uint64 // bytes that are charged: spare, in the making, or about to be closed
	// +checklocks:mu
	running bool // runMake
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	droppers int // who waits until nothing is held

	decreased sync.Cond // of mu: held went down
}

// pooledSize is a size that was asked for.
type pooledSize struct {
	bytes  uint64
	asked  int // times, each within aheadStays of the one before
	last   time.Time
	spares []spare
}

// spare is charged memory that is nobody's yet.
type spare struct {
	memory *shm.Memory
	charge ledger.Receipt
}

func newZeroPool(account *ledger.Account, create func(string, uint64) (*shm.Memory, error)) *zeroPool {
	a := &zeroPool{
		account: account, create: create, hasRoom: hostHasRoom, yield: shm.GiveWay, punch: punchOut, wake: make(chan struct{}, 1), closing: make(chan struct{}), ttl: zeroPoolTTL,
		maxBytes: min(zeroPoolMaxBytes, limitOf(account, ledger.DeviceMemory)/zeroPoolPart),
	}
	a.punchInBackground = func(m *shm.Memory, bytes uint64) error { return punchInBackground(m, bytes, a.closing) }
	a.decreased.L = &a.mu
	return a
}

// hostHasRoom says that making so much ahead leaves the host nearly all that it has free.
func hostHasRoom(bytes uint64) bool {
	var s unix.Sysinfo_t
	return unix.Sysinfo(&s) == nil && bytes <= s.Freeram*uint64(s.Unit)/hostHeadroom
}

// take notes that somebody asks for so much, and returns what is spare of it. Its
// charge goes with it.
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

// noteRequestLocked notes the size, and returns what is spare of one that is forgotten for it.
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

// discardSpares closes what was taken off the books. Nobody else has a descriptor of it, so
// that its pages are back before its charge is.
func (a *zeroPool) discardSpares(spares []spare, punch func(*shm.Memory, uint64) error) {
	for i := range spares {
		s := &spares[i]
		discard(s.memory, punch)
		a.mu.Lock()
		a.uncharge(&s.charge)
		a.mu.Unlock()
	}
}

// discard gives the pages back piece by piece, as punchOut does: a close would give them all
// back in one system call, for a millisecond and more of a processor that others may want.
func discard(m *shm.Memory, punch func(*shm.Memory, uint64) error) {
	_ = punch(m, m.Size()) // what it leaves goes with the memory
	_ = m.Close()          // that of a memory file cannot fail
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

// runMake makes what is missing until nothing is asked for any more, and is behind others
// meanwhile (reclaim.go).
func (a *zeroPool) runMake() { inBackground(a.fillLoop) }

func (a *zeroPool) fillLoop() {
	timer := time.NewTimer(zeroPoolTTL)
	defer timer.Stop()
	for {
		bytes, old, ended := a.next()
		a.discardSpares(old, a.punchInBackground)
		if ended {
			return
		}
		if bytes > 0 && a.make(bytes) {
			continue
		}
		timer.Reset(zeroPoolTTL)
		select {
		case <-a.wake:
		case <-timer.C:
		}
	}
}

// next says what to make, where 0 is nothing, and what to give up because it is not
// asked for any more or in the way. It ends runMake when there is nothing left.
func (a *zeroPool) next() (bytes uint64, old []spare, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, closed, stays := time.Now(), a.closed, a.ttl
	a.sizes = slices.DeleteFunc(a.sizes, func(s *pooledSize) bool {
		past := closed || now.Sub(s.last) >= stays
		if past {
			old = append(old, s.spares...)
		}
		return past
	})
	if len(a.sizes) == 0 {
		a.running = false
		return 0, old, true
	}

	for i, s := range a.sizes {
		if a.droppers > 0 || len(s.spares) >= min(s.asked-1, zeroPoolSpares) {
			continue
		}
		// Others that were asked for earlier make room.
		need := a.charged + s.bytes - min(a.charged+s.bytes, a.maxBytes)
		for j := len(a.sizes) - 1; j > i && need > 0; j-- {
			for other := a.sizes[j]; len(other.spares) > 0 && need > 0; other.spares = other.spares[1:] {
				old = append(old, other.spares[0])
				need -= min(need, other.bytes)
			}
		}
		if need == 0 {
			return s.bytes, old, false
		}
	}

	return 0, old, false
}

// make makes one. It is false where there is too little of something: then nothing is
// made before somebody asks again.
func (a *zeroPool) make(bytes uint64) bool {
	if bytes > a.account.Available(ledger.DeviceMemory)/accountHeadroom || !a.hasRoom(bytes) {
		return false
	}

	a.mu.Lock()
	charge, err := a.account.Reserve(ledger.DeviceMemory, bytes)
	if err == nil {
		a.charged += bytes
	}

	a.mu.Unlock()
	if err != nil {
		return false
	}

	if memory := a.makeZeroed(bytes); memory != nil {
		if a.keep(spare{memory: memory, charge: charge}) {
			return true
		}
		a.discardInForeground(memory)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.uncharge(&charge)
	return false
}

// keep puts what was made with its size, if that is still wanted.
func (a *zeroPool) keep(s spare) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, size := range a.sizes {
		if size.bytes == s.memory.Size() && !a.closed && a.droppers == 0 {
			size.spares = append(size.spares, s)
			return true
		}
	}
	return false
}

// makeZeroed makes memory with all its pages; nil: the host has too little, or it is not wanted
// any more. It lets others go first after each piece, and rests where they do.
func (a *zeroPool) makeZeroed(bytes uint64) *shm.Memory {
	m, err := a.create(zeroPoolName, bytes)
	if err != nil {
		return nil
	}

	for off := uint64(0); off < bytes; off += zeroPiece {
		if a.unwanted() || m.Back(off, min(zeroPiece, bytes-off)) != nil {
			a.discardInForeground(m)
			return nil
		}
		before := time.Now()
		a.yield()
		runtime.Gosched()
		if others := time.Since(before); others > idleYield {
			time.Sleep(min(pauseFactor*others, maxPause))
		}
	}

	return m
}

// discardInForeground has it done by a thread that is not behind, for somebody may wait.
func (a *zeroPool) discardInForeground(m *shm.Memory) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		discard(m, a.punch)
	}()
	<-done
}

func (a *zeroPool) unwanted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed || a.droppers > 0
}

// drop gives up all, and reports whether there was any: then its charges are back.
func (a *zeroPool) drop() bool {
	a.mu.Lock()
	if a.charged == 0 {
		a.mu.Unlock()
		return false
	}

	var old []spare
	for _, s := range a.sizes {
		old = append(old, s.spares...)
		s.spares, s.asked = nil, 0 // it has to be asked for twice again
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

// close gives up all, for good.
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

// excluding is how much of what the account holds is not spare.
func (a *zeroPool) excluding(holds func() uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return holds() - a.charged
}
