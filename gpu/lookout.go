package gpu

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"capgpu/gpu/backend"
	"capgpu/internal/courtesy"
	"capgpu/internal/shm"
)

// lookout lets the runtime look at its pipes and sockets. It does that when a processor
// has nothing to run, or else every 10 ms: so as long as queues spin, or run one burst
// after the other, on all of them, who waits for a pipe or a socket waits for long.
// So when all of them together, and the reclaimer, have gone on for long, each that comes
// by sleeps until the runtime has looked: one writes into a pipe and waits for what it has
// written, as everybody waits for theirs, and the others wait for that. It is some
// microseconds, and nothing where there is no pipe.
type lookout struct {
	r    *os.File
	w    *os.File
	conn syscall.RawConn // r's; nil: there is no pipe

	under atomic.Bool   // somebody looks: who comes by joins in
	kept  atomic.Int64  // about how long queues have gone on since it looked last
	looks atomic.Uint64 // that have ended

	waits   func() bool // courtesy.Waiting
	giveWay func()      // shm.GiveWay

	// mu is held by the one who looks.
	mu sync.Mutex
	// +checklocks:mu
	asked bool
	// +checklocks:mu
	one  [1]byte
	read func(fd uintptr) (over bool) // made once
}

// keptMost is how long, about, queues go on without that, in nanoseconds, and keptCrowded
// where several want the device; keptCalls is how much longer while calls wait for their next
// step. keptLook is what a round of a queue counts besides its work,
// and keptEntry what an entry of its ring does.
const (
	keptMost    = 300_000
	keptCrowded = 100_000
	keptLook    = 500
	keptCalls   = 2_000_000
	keptEntry   = 100
)

// newLookout makes one; where nothing waits for the runtime it has no pipe.
func newLookout(needed bool) *lookout {
	if !needed {
		return &lookout{}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return &lookout{}
	}
	conn, err := r.SyscallConn()
	if err != nil {
		r.Close()
		w.Close()
		return &lookout{}
	}
	l := &lookout{r: r, w: w, conn: conn, waits: courtesy.Waiting, giveWay: shm.GiveWay}
	l.read = l.readOne
	return l
}

// look sleeps until the runtime has looked. Several may call it.
func (l *lookout) look() {
	if l.conn == nil {
		return
	}
	before := l.looks.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.looks.Load() != before { // while it waited for the lock
		return
	}
	l.asked = false
	l.under.Store(true)
	_ = l.conn.Read(l.read) // closed: nobody needs to look
	l.under.Store(false)
	l.kept.Store(0)
	l.looks.Add(1)
}

// readOne is called until it is over, with a sleep before each call but the first.
//
// +checklocksignore: look has it called, and has the lock
func (l *lookout) readOne(fd uintptr) (over bool) {
	if !l.asked {
		l.asked = true
		_, err := l.w.Write(l.one[:])
		return err != nil
	}
	_, _ = syscall.Read(int(fd), l.one[:])
	return true
}

func (l *lookout) close() {
	if l.conn != nil {
		l.r.Close()
		l.w.Close()
	}
}

// goOn counts what a round of the queue took, and has the runtime look when it is time: one
// that has the turn comes by once more before it sleeps, for the device waits for it.
func (q *queue) goOn(nanos int64) {
	l, most := q.session.dev.engine.lookout, int64(keptMost)
	if q.burst.crowded {
		most = keptCrowded
	}
	nanos += q.spin.kept + keptEntry*int64(q.taken-q.spin.counted)
	q.spin.kept, q.spin.counted = 0, q.taken
	if !q.turnCame() {
		l.goOn(nanos, most)
	} else {
		l.kept.Add(nanos)
	}
}

// hostNanos is about what the queue has had to do since goOn counted last, for the entries
// that it took.
func (q *queue) hostNanos() int64 {
	return keptEntry * int64(min(q.taken-q.spin.counted, maxBurst))
}

// Computed implements backend.Host: the device is one of those that go on for long. Who has
// it to itself is spared that.
func (e *engine) Computed(d time.Duration) {
	if e.dev.hasOthers() {
		e.lookout.goOn(int64(d), keptMost)
	}
}

var _ backend.Host = (*engine)(nil)

// hasOthers reports whether there is more than one session, closed ones counted until they
// are reclaimed.
func (d *Device) hasOthers() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.sessions) > 1
}

// goOn counts so many nanoseconds, and looks if there are that many, or somebody does. The
// runtime looks when nothing else can run. So while calls take their steps (package courtesy)
// whoever waited for that would wait for the whole of them: it goes on between two steps, for
// keptCalls in all. Who looks lets other processes go first, too: the manager, where it has the
// same processor.
func (l *lookout) goOn(nanos, most int64) {
	kept := l.kept.Add(nanos)
	switch {
	case kept < most && !l.under.Load() || l.conn == nil:
	case kept < most+keptCalls && l.waits():
		runtime.Gosched()
	default:
		l.giveWay()
		l.look()
	}
}
