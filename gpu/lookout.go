package gpu

import (
	"os"
	"sync"
	"syscall"
)

// lookout lets the runtime look at its pipes and sockets. It does that when a processor
// has nothing to run, or else every 10 ms: so as long as queues spin, or run one burst
// after the other, on all of them, who waits for a pipe or a socket waits for long.
// A queue that goes on for long sleeps until the runtime has looked: it writes into a pipe
// and waits for what it has written, as everybody waits for theirs. That is some
// microseconds, and nothing where there is no pipe.
type lookout struct {
	r    *os.File
	w    *os.File
	conn syscall.RawConn // r's; nil: there is no pipe

	// mu is held by the one who looks.
	mu sync.Mutex
	// +checklocks:mu
	asked bool
	// +checklocks:mu
	one  [1]byte
	read func(fd uintptr) (over bool) // made once
}

// keptMost is how long, about, a queue goes on without that, in nanoseconds, and keptLook
// is what a round of it counts besides its work.
const (
	keptMost = 300_000
	keptLook = 500
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
	l := &lookout{r: r, w: w, conn: conn}
	l.read = l.readOne
	return l
}

// look sleeps until the runtime has looked. Several may call it.
func (l *lookout) look() {
	if l.conn == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = false
	_ = l.conn.Read(l.read) // closed: nobody needs to look
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

// goOn counts what a round of the queue took, and has the runtime look when it is time.
func (q *queue) goOn(nanos int64) {
	if q.spin.kept += nanos; q.spin.kept >= keptMost && !q.asks() && !q.turnCame() {
		q.spin.kept = 0
		q.session.dev.engine.lookout.look()
	}
}
