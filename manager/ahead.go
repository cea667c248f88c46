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
	// aheadLeast is the smallest size. Less is quick without, and what small buffers
	// are carved from is kept by the driver.
	aheadLeast = 2 << 20
	// aheadMost is how much of one epoch is spare at most, and so is the aheadPart of
	// its limit.
	aheadMost = 128 << 20
	aheadPart = 8
	// aheadRoom times what is made must be left in the account, and hostRoom times of
	// the host's free memory.
	aheadRoom = 4
	hostRoom  = 8
	// aheadSizes are remembered, aheadSpares kept of one, for so long after it was
	// last asked for.
	aheadSizes  = 4
	aheadSpares = 8
	aheadStays  = time.Second
	// aheadPiece is backed at once; who gives up waits no longer than that and a rest take.
	aheadPiece = pagesPiece
	// After each piece others go first. If that took longer than aheadFree somebody wants
	// the processor, and nobody waits for what is made: it rests aheadRests times as long,
	// at most aheadRest.
	aheadFree  = 20 * time.Microsecond
	aheadRests = 8
	aheadRest  = 2 * time.Millisecond

	// aheadName tells spare memory from what a driver had from the start.
	aheadName = "capgpu-dma-ahead"
)

// ahead is what one epoch has spare.
type ahead struct {
	account *ledger.Account
	create  func(name string, bytes uint64) (*shm.Memory, error)
	most    uint64
	hasRoom func(bytes uint64) bool                 // on the host
	giveWay func()                                  // shm.GiveWay
	punch   func(m *shm.Memory, bytes uint64) error // punchOut, for whoever waits
	behind  func(m *shm.Memory, bytes uint64) error // punchBehind, where nobody does

	making sync.WaitGroup // runMake
	wake   chan struct{}  // somebody asked; capacity 1
	hurry  chan struct{}  // closed by close: whoever waits for memory to go waits for nobody else

	// mu is held for no system call; the ledger's locks are inside it.
	mu sync.Mutex
	// +checklocks:mu
	sizes []*aheadSize // the one that was asked for last is first
	// +checklocks:mu
	stays time.Duration // aheadStays
	// +checklocks:mu
	held uint64 // bytes that are charged: spare, in the making, or about to be closed
	// +checklocks:mu
	running bool // runMake
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	dropping int // who waits until nothing is held

	less sync.Cond // of mu: held went down
}

// aheadSize is a size that was asked for.
type aheadSize struct {
	bytes uint64
	asked int // times, each within aheadStays of the one before
	last  time.Time
	made  []spare
}

// spare is charged memory that is nobody's yet.
type spare struct {
	memory *shm.Memory
	charge ledger.Receipt
}

func newAhead(account *ledger.Account, create func(string, uint64) (*shm.Memory, error)) *ahead {
	a := &ahead{
		account: account, create: create, hasRoom: hostHasRoom, giveWay: shm.GiveWay, punch: punchOut, wake: make(chan struct{}, 1), hurry: make(chan struct{}), stays: aheadStays,
		most: min(aheadMost, limitOf(account, ledger.DeviceMemory)/aheadPart),
	}
	a.behind = func(m *shm.Memory, bytes uint64) error { return punchBehind(m, bytes, a.hurry) }
	a.less.L = &a.mu
	return a
}

// hostHasRoom says that making so much ahead leaves the host nearly all that it has free.
func hostHasRoom(bytes uint64) bool {
	var s unix.Sysinfo_t
	return unix.Sysinfo(&s) == nil && bytes <= s.Freeram*uint64(s.Unit)/hostRoom
}

// take notes that somebody asks for so much, and returns what is spare of it. Its
// charge goes with it.
func (a *ahead) take(bytes uint64) (s spare, ok bool) {
	if bytes < aheadLeast || bytes > a.most {
		return spare{}, false
	}
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return spare{}, false
	}
	size, old := a.askedLocked(bytes)
	if n := len(size.made); n > 0 {
		s, ok = size.made[n-1], true
		size.made = size.made[:n-1]
		a.heldLessLocked(bytes)
	}
	if size.asked > 1 && !a.running {
		a.running = true
		a.making.Go(a.runMake)
	}
	a.mu.Unlock()
	a.giveUp(old, a.punch)
	a.awaken()
	return s, ok
}

func (a *ahead) awaken() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// askedLocked notes the size, and returns what is spare of one that is forgotten for it.
//
// +checklocks:a.mu
func (a *ahead) askedLocked(bytes uint64) (size *aheadSize, old []spare) {
	now := time.Now()
	i := slices.IndexFunc(a.sizes, func(s *aheadSize) bool { return s.bytes == bytes })
	switch {
	case i >= 0:
		size = a.sizes[i]
		a.sizes = slices.Delete(a.sizes, i, i+1)
	case len(a.sizes) == aheadSizes:
		old = a.sizes[aheadSizes-1].made
		a.sizes = a.sizes[:aheadSizes-1]
		fallthrough
	default:
		size = &aheadSize{bytes: bytes}
	}
	a.sizes = slices.Insert(a.sizes, 0, size)
	if now.Sub(size.last) > a.stays {
		size.asked = 0
	}
	size.asked, size.last = size.asked+1, now
	return size, old
}

// giveUp closes what was taken off the books. Nobody else has a descriptor of it, so
// that its pages are back before its charge is.
func (a *ahead) giveUp(spares []spare, punch func(*shm.Memory, uint64) error) {
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
func (a *ahead) uncharge(charge *ledger.Receipt) {
	bytes := charge.Amount()
	charge.Release()
	a.heldLessLocked(bytes)
}

// +checklocks:a.mu
func (a *ahead) heldLessLocked(bytes uint64) {
	a.held -= bytes
	a.less.Broadcast()
}

// runMake makes what is missing until nothing is asked for any more, and is behind others
// meanwhile (behind.go).
func (a *ahead) runMake() { behind(a.makeAll) }

func (a *ahead) makeAll() {
	timer := time.NewTimer(aheadStays)
	defer timer.Stop()
	for {
		bytes, old, ended := a.next()
		a.giveUp(old, a.behind)
		if ended {
			return
		}
		if bytes > 0 && a.make(bytes) {
			continue
		}
		timer.Reset(aheadStays)
		select {
		case <-a.wake:
		case <-timer.C:
		}
	}
}

// next says what to make, where 0 is nothing, and what to give up because it is not
// asked for any more or in the way. It ends runMake when there is nothing left.
func (a *ahead) next() (bytes uint64, old []spare, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, closed, stays := time.Now(), a.closed, a.stays
	a.sizes = slices.DeleteFunc(a.sizes, func(s *aheadSize) bool {
		past := closed || now.Sub(s.last) >= stays
		if past {
			old = append(old, s.made...)
		}
		return past
	})
	if len(a.sizes) == 0 {
		a.running = false
		return 0, old, true
	}
	for i, s := range a.sizes {
		if a.dropping > 0 || len(s.made) >= min(s.asked-1, aheadSpares) {
			continue
		}
		// Others that were asked for earlier make room.
		need := a.held + s.bytes - min(a.held+s.bytes, a.most)
		for j := len(a.sizes) - 1; j > i && need > 0; j-- {
			for other := a.sizes[j]; len(other.made) > 0 && need > 0; other.made = other.made[1:] {
				old = append(old, other.made[0])
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
func (a *ahead) make(bytes uint64) bool {
	if bytes > a.account.Available(ledger.DeviceMemory)/aheadRoom || !a.hasRoom(bytes) {
		return false
	}
	a.mu.Lock()
	charge, err := a.account.Reserve(ledger.DeviceMemory, bytes)
	if err == nil {
		a.held += bytes
	}
	a.mu.Unlock()
	if err != nil {
		return false
	}
	if memory := a.whole(bytes); memory != nil {
		if a.keep(spare{memory: memory, charge: charge}) {
			return true
		}
		a.discardUnwanted(memory)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uncharge(&charge)
	return false
}

// keep puts what was made with its size, if that is still wanted.
func (a *ahead) keep(s spare) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, size := range a.sizes {
		if size.bytes == s.memory.Size() && !a.closed && a.dropping == 0 {
			size.made = append(size.made, s)
			return true
		}
	}
	return false
}

// whole makes memory with all its pages; nil: the host has too little, or it is not wanted
// any more. It lets others go first after each piece, and rests where they do.
func (a *ahead) whole(bytes uint64) *shm.Memory {
	m, err := a.create(aheadName, bytes)
	if err != nil {
		return nil
	}
	for off := uint64(0); off < bytes; off += aheadPiece {
		if a.unwanted() || m.Back(off, min(aheadPiece, bytes-off)) != nil {
			a.discardUnwanted(m)
			return nil
		}
		before := time.Now()
		a.giveWay()
		runtime.Gosched()
		if others := time.Since(before); others > aheadFree {
			time.Sleep(min(aheadRests*others, aheadRest))
		}
	}
	return m
}

// discardUnwanted has it done by a thread that is not behind, for somebody may wait.
func (a *ahead) discardUnwanted(m *shm.Memory) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		discard(m, a.punch)
	}()
	<-done
}

func (a *ahead) unwanted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed || a.dropping > 0
}

// drop gives up all, and reports whether there was any: then its charges are back.
func (a *ahead) drop() bool {
	a.mu.Lock()
	if a.held == 0 {
		a.mu.Unlock()
		return false
	}
	var old []spare
	for _, s := range a.sizes {
		old = append(old, s.made...)
		s.made, s.asked = nil, 0 // it has to be asked for twice again
	}
	a.dropping++
	a.mu.Unlock()
	a.giveUp(old, a.punch)
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.held > 0 {
		a.less.Wait()
	}
	a.dropping--
	return true
}

// close gives up all, for good.
func (a *ahead) close() {
	a.mu.Lock()
	if !a.closed {
		close(a.hurry)
	}
	a.closed = true
	var old []spare
	for _, s := range a.sizes {
		old = append(old, s.made...)
	}
	a.sizes = nil
	a.mu.Unlock()
	a.giveUp(old, a.punch)
	a.awaken()
	a.making.Wait()
}

// without is how much of what the account holds is not spare.
func (a *ahead) without(holds func() uint64) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return holds() - a.held
}
