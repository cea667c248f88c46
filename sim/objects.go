package sim

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpu"
	"capgpu/manager"
	"capgpu/outcome"
	"capgpu/ring"
	"capgpu/ring/ringtest"
)

// tenant is one client process of each tenant, with its connection to the broker.
type tenant struct {
	name    string
	conn    *manager.StageConn
	opening bool
	stopped bool // SIGSTOP: it takes nothing and sends nothing
}

// session is one session of a client.
type session struct {
	n       int
	t       *tenant
	drv     *driver
	real    *gpu.Session
	parent  *session
	busy    int         // calls
	closing bool        // asked for
	closed  atomic.Bool // Close has returned
	bufs    []*buffer
	fences  []*fence
	queues  []*queue
	program gpu.Handle

	failures  []failure
	successes []success
}

func (s *session) live() bool { return !s.closing && !s.drv.gone() }

// over reports whether the session, or a parent, was closed.
func (s *session) over() bool {
	for ; s != nil; s = s.parent {
		if s.closed.Load() {
			return true
		}
	}
	return false
}

type buffer struct {
	h     gpu.Handle
	bytes uint64
	mem   []byte      // the client's own mapping
	fd    int         // the client's own descriptor
	dying bool        // its end was requested
	dead  atomic.Bool // and has been answered
	wrote uint64      // the op that wrote it last
}

func (b *buffer) unmap() {
	if b.mem != nil {
		_ = unix.Munmap(b.mem)
		unix.Close(b.fd)
		b.mem = nil
	}
}

type fence struct {
	h        gpu.Handle
	next     uint64 // to be signalled
	promised []promise
}

// promise is a promised value of a fence.
type promise struct {
	value uint64
	op    *op // nil: the client itself signals it
}

type queue struct {
	n       int
	s       *session
	h       gpu.Handle
	local   *ringtest.Local
	ending  bool
	held    atomic.Pointer[chan struct{}] // the client does not read, until it is closed
	got     []ring.Completion             // not checked yet; guarded by world.guarded.mu
	ended   error                         // why the ring has ended; guarded by world.guarded.mu
	over    bool                          // its end was seen
	mustEnd bool                          // the driver must have noticed
	lied    bool                          // the client broke the protocol
	pushed  uint64                        // entries
	pending []*op                         // in order
	after   uint64                        // a moment before the last completion was published
	group   outcome.Outcome               // since the last signal
	moment  uint64                        // when the last signal that was ok ended
	done    chan struct{}                 // its reader has ended
}

// argBytes is the size of its arena: another one for each queue of a driver.
func (q *queue) argBytes() uint32 { return 4096 + 64*uint32(q.n) }

// opKind is the operation of an entry.
type opKind uint8

const (
	opNop opKind = iota
	opFill
	opCopy
	opLaunch
	opSignal
	opWait
	opBad
)

var opNames = [...]string{"nop", "fill", "copy", "launch", "signal", "wait", "bad"}

func (k opKind) device() bool { return k == opFill || k == opCopy || k == opLaunch }

// op is one entry.
type op struct {
	id        uint64
	kind      opKind
	q         *queue
	plan      plan
	dst, src  *buffer
	off, n    uint64 // of dst
	f         *fence
	value     uint64
	published time.Time
	flushed   uint64 // moment of its publication; 0: it was not
	ended     bool
	lost      bool // its ring has ended without its completion
	how       outcome.Outcome
}

// run reads a queue's completions.
func (q *queue) run(w *world) {
	defer close(q.done)
	var out [16]ring.Completion
	for {
		if held := q.held.Load(); held != nil {
			<-*held
		}

		n, err := q.local.Client.Wait(context.Background(), out[:])
		w.guarded.mu.Lock()
		got := out[:n]
		if n > 1 && w.mutant == MutantSwaps {
			got[0], got[1] = got[1], got[0]
		}

		q.got = append(q.got, got...)
		if n > 0 && w.mutant == MutantTwice {
			q.got = append(q.got, got[n-1])
		}

		q.ended = err
		w.guarded.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// call is a client's request that may take long.
type call struct {
	n    int
	what string
	s    *session // nil: of no session
	done atomic.Bool
	err  error
	then func() // in the run's own goroutine, when it is reaped

	waits *wait // nil: for no point of a fence
}

// wait is for a point of a fence.
type wait struct {
	f     *fence
	value uint64
}
