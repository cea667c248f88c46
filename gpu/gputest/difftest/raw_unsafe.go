package difftest

import (
	"errors"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets of the ring's header (docs/wire.md).
const (
	offEntries  = 0x00c
	offArgBytes = 0x014
	offSQ       = 0x018
	offCQ       = 0x01c
	offArena    = 0x020
	offSQHead   = 0x038
	offSQTail   = 0x040
	offCQWait   = 0x048
	offSQWait   = 0x080
	offState    = 0x084
	offCQHead   = 0x0c0
)

// rawRing is a client's end that keeps to no rule but those that it wants to.
type rawRing struct {
	mapping []byte
	wake    int      // writing end of the submission pipe
	news    *os.File // reading end of the completion pipe

	entries uint64
	sq      [][8]uint64
	cq      [][4]uint64
	arena   []uint64

	tail, head uint64 // published; completions read
}

func (r *rawRing) u32(off int) *uint32 { return (*uint32)(unsafe.Pointer(&r.mapping[off])) }
func (r *rawRing) u64(off int) *uint64 { return (*uint64)(unsafe.Pointer(&r.mapping[off])) }

// attachRaw maps a ring. It owns the descriptors from here on.
func attachRaw(memory, wake, done int) (_ *rawRing, err error) {
	defer unix.Close(memory)
	var st unix.Stat_t
	r := &rawRing{wake: wake}
	if err = errors.Join(unix.SetNonblock(done, true), unix.Fstat(memory, &st)); err == nil {
		r.news = os.NewFile(uintptr(done), "completion pipe")
		r.mapping, err = unix.Mmap(memory, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(wake))
	}
	r.entries = uint64(*r.u32(offEntries))
	r.sq = unsafe.Slice((*[8]uint64)(unsafe.Pointer(r.u64(int(*r.u32(offSQ))))), r.entries)
	r.cq = unsafe.Slice((*[4]uint64)(unsafe.Pointer(r.u64(int(*r.u32(offCQ))))), 2*r.entries)
	r.arena = unsafe.Slice(r.u64(int(*r.u32(offArena))), *r.u32(offArgBytes)/8)
	return r, nil
}

// put writes the entry of a position.
func (r *rawRing) put(pos uint64, e *[8]uint64) { r.sq[pos%r.entries] = *e }

// publish makes n more entries known.
func (r *rawRing) publish(n uint64) error {
	r.tail += n
	return r.jump(r.tail)
}

// jump writes any tail.
func (r *rawRing) jump(tail uint64) error {
	atomic.SwapUint64(r.u64(offSQTail), tail) // and then look, as in ring.view
	return r.ring()
}

// ring wakes the driver if it sleeps.
func (r *rawRing) ring() error {
	if atomic.LoadUint32(r.u32(offSQWait)) == 0 || atomic.SwapUint32(r.u32(offSQWait), 0) == 0 {
		return nil
	}
	_, err := unix.Write(r.wake, []byte{1})
	if err == unix.EAGAIN || err == unix.EPIPE { // it is awake, or the queue has ended
		return nil
	}
	return err
}

// ready is how many completions there are.
func (r *rawRing) ready() (n uint64) {
	for n < uint64(len(r.cq)) && uint8(r.word(r.head+n)>>lapShift) == r.lap(r.head+n) {
		n++
	}
	return n
}

// lapShift is where word 1 of a completion has the lap.
const lapShift = 24

// word is word 1 of the completion at a position.
func (r *rawRing) word(pos uint64) uint64 {
	return atomic.LoadUint64(&r.cq[pos%uint64(len(r.cq))][1])
}

func (r *rawRing) lap(pos uint64) uint8 { return uint8(pos/uint64(len(r.cq)) + 1) }

// looks is how often it is looked for completions before the client sleeps.
const looks = 500

// await waits for a completion that was not read, at most until then.
func (r *rawRing) await(deadline time.Time) error {
	for range looks {
		if r.ready() > 0 {
			return nil
		}
	}
	var some [64]byte
	for {
		atomic.SwapUint32(r.u32(offCQWait), 1)
		if r.ready() > 0 {
			atomic.StoreUint32(r.u32(offCQWait), 0)
			return nil
		}
		if err := r.news.SetReadDeadline(deadline); err != nil {
			return err
		}
		if _, err := r.news.Read(some[:]); err != nil {
			return err
		}
	}
}

// take reads the next completion, which is there, but for its lap.
func (r *rawRing) take() (c [4]uint64) {
	c = r.cq[r.head%uint64(len(r.cq))]
	c[1] &^= 0xff << lapShift
	r.head++
	return c
}

// taken gives the slots back.
func (r *rawRing) taken() error {
	atomic.SwapUint64(r.u64(offCQHead), r.head)
	return r.ring()
}

// state is 0, or the code with which the driver ended the ring.
func (r *rawRing) state() uint32 { return atomic.LoadUint32(r.u32(offState)) }

// scribble writes nonsense over the entries and the arguments that the driver has taken: they are the client's again. It looks where that is, and writes only what is of the
// batch that begins and ends there, so that the client knows what it has to write anew.
func (r *rawRing) scribble(from, tail, args uint64) {
	until := atomic.LoadUint64(r.u64(offSQHead))
	for pos := from; pos < until; pos++ {
		slot := &r.sq[pos%r.entries]
		for i := range slot {
			atomic.StoreUint64(&slot[i], ^uint64(0)-pos)
		}
	}
	if until == tail { // all that use the arena are taken
		for i := range r.arena[:args] {
			atomic.StoreUint64(&r.arena[i], ^uint64(i))
		}
	}
}

func (r *rawRing) close() error {
	return errors.Join(unix.Munmap(r.mapping), unix.Close(r.wake), r.news.Close())
}
