package crashtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// callBound is how long a call of a client may take while processes die: detection of a hang,
// the recovery and a respawn on a busy machine are well within.
const callBound = 20 * time.Second

// tally counts the results of all clients.
type tally struct {
	rounds   atomic.Uint64 // of work that was reported ok, and compared
	ok       atomic.Uint64 // pieces of that
	notOK    atomic.Uint64 // pieces with another outcome
	lost     atomic.Uint64 // sessions that ended under their client
	sessions atomic.Uint64
	scarcity atomic.Uint64 // refusals for want of something

	say func(fault string) // nil: faults are reported at the end only

	mu    sync.Mutex
	wrong []string          // what must never be
	dead  []*client.Session // some of dead drivers
}

func (y *tally) fault(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.wrong) == 10 {
		return
	}
	y.wrong = append(y.wrong, fmt.Sprintf(format, args...))
	if y.say != nil {
		y.say(y.wrong[len(y.wrong)-1])
	}
}

func (y *tally) faults() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Clone(y.wrong)
}

// worker is one client.
type worker struct {
	*tally
	socket   string
	deadline time.Duration // of its work; 0: the policy's
	rng      *rand.Rand
	scarce   bool // memory, descriptors or a disk may be used up
}

// absent says that there is no manager just now: it is down, or it died while it was
// being connected to.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ended says whether an error is one that a client may see when a process dies: it
// lost its session or has to come again.
func ended(err error) bool {
	switch gpuerr.CodeOf(err) {
	case gpuerr.Disconnected, gpuerr.DeviceLost, gpuerr.Revoked, gpuerr.Closed, gpuerr.Busy:
		return true
	}
	return false
}

// judge notes an error that no client may see, and a call that took too long.
func (w *worker) judge(what string, err error) {
	if code := gpuerr.CodeOf(err); w.scarce && (code == gpuerr.IO || code == gpuerr.Quota) {
		w.scarcity.Add(1)
		return
	}
	if !ended(err) && !absent(err) {
		w.fault("%s: %v", what, err)
	}
}

// run works until ctx ends, through as many managers and drivers as there are.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.Background(), callBound)
		conn, err := client.Dial(call, w.socket)
		cancel()
		if err != nil {
			w.judge("dial", err)
			pause(ctx, 2*time.Millisecond)
			continue
		}
		w.connected(ctx, conn)
		conn.Close()
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// connected opens sessions as long as the manager runs. It learns of epochs from the manager,
// and no epoch comes twice.
func (w *worker) connected(ctx context.Context, conn *client.Conn) {
	epoch := uint64(0)
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(context.Background(), callBound)
		s, err := conn.Open(call, 0)
		if err == nil {
			if s.Epoch() < epoch {
				w.fault("a session of epoch %d after one of %d", s.Epoch(), epoch)
			}
			epoch = s.Epoch()
			w.sessions.Add(1)
			err = w.session(ctx, call, conn, s)
			if err == nil {
				err = s.Close(call)
			}
			if err != nil {
				w.judge("work", err)
				w.leave(call, s)
			}
		} else {
			w.judge("open", err)
		}
		if err != nil {
			state, err := conn.NextStateFor(call, 0, 0, 50*time.Millisecond)
			switch {
			case err != nil:
				w.judge("next state", err)
				cancel()
				return
			case state.State == client.Wedged:
				w.fault("the device is wedged: %s", state.Cause)
			}
		}
		cancel()
	}
}

// leave ends a session that went wrong. Some of those that ended by themselves are kept.
func (w *worker) leave(ctx context.Context, s *client.Session) {
	keep := false
	select {
	case <-s.Done():
		w.lost.Add(1)
		w.mu.Lock()
		defer w.mu.Unlock()
		if keep = len(w.dead) < 4; keep {
			w.dead = append(w.dead, s)
		}
	default: // it was refused something, and lives
	}
	if !keep {
		_ = s.Close(ctx)
	}
}

// awake are those of the buried sessions that still do something.
func (y *tally) awake() (which []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, s := range y.dead {
		ctx, cancel := context.WithTimeout(context.Background(), callBound)
		if _, err := s.CreateBuffer(ctx, 4096, client.Storage); err == nil || !ended(err) {
			which = append(which, fmt.Sprintf("a buffer of a session of epoch %d that ended: %v", s.Epoch(), err))
		}
		if _, err := s.Describe(ctx); err == nil || !ended(err) {
			which = append(which, fmt.Sprintf("a description of a session of epoch %d that ended: %v", s.Epoch(), err))
		}
		_ = s.Close(ctx)
		cancel()
	}
	y.dead = nil
	return which
}

// elements of each vector: few, so that work is short, and in some sessions many.
const (
	elements     = 256
	manyElements = 1 << 17
)

// bench is the objects of a session.
type bench struct {
	a, b, sum, copied, filled *client.Buffer
	program                   *client.Program
	queue                     *client.Queue
	fence                     *client.Fence
	point                     uint64
	bytes                     uint64 // of each buffer
}

// session works some rounds. It is nil when it has done all of them.
func (w *worker) session(ctx, call context.Context, conn *client.Conn, s *client.Session) (err error) {
	x := &bench{bytes: 4 * elements}
	if w.rng.IntN(3) == 0 {
		x.bytes = 4 * manyElements
	}
	for _, b := range []**client.Buffer{&x.a, &x.b, &x.sum, &x.copied, &x.filled} {
		if *b, err = s.CreateBuffer(call, x.bytes, client.Storage); err != nil {
			return err
		}
	}
	if x.program, err = s.OpenProgram(call, "vecadd_f32"); err != nil {
		return err
	}
	if x.queue, err = s.CreateQueue(call, client.QueueOptions{}); err != nil {
		return err
	}
	if x.fence, err = s.CreateFence(call, 0); err != nil {
		return err
	}
	if _, err := conn.Status(call, 0); err != nil {
		return err
	}
	for range 1 + w.rng.IntN(8) {
		if ctx.Err() != nil {
			break
		}
		if err := w.round(s, x); err != nil {
			return err
		}
	}
	return x.filled.Close(call)
}

// sentinel fills the outputs before: no completed work leaves it.
const sentinel = 0xdeadbeef

// round runs a batch with inputs of its own, and checks the result.
func (w *worker) round(s *client.Session, x *bench) error {
	ctx, cancel := context.WithTimeout(context.Background(), callBound)
	defer cancel()
	in := [2][]byte{make([]byte, x.bytes), make([]byte, x.bytes)}
	want := make([]byte, x.bytes)
	for i := range x.bytes / 4 {
		p, q := float32(w.rng.IntN(1<<20)), float32(1+w.rng.IntN(1<<20))
		binary.LittleEndian.PutUint32(in[0][4*i:], math.Float32bits(p))
		binary.LittleEndian.PutUint32(in[1][4*i:], math.Float32bits(q))
		binary.LittleEndian.PutUint32(want[4*i:], math.Float32bits(p+q))
	}
	pattern := w.rng.Uint32() | 1
	fill := make([]byte, x.bytes)
	blank := make([]byte, x.bytes)
	for i := 0; i < len(fill); i += 4 {
		binary.LittleEndian.PutUint32(fill[i:], pattern)
		binary.LittleEndian.PutUint32(blank[i:], sentinel)
	}
	for _, put := range []struct {
		b *client.Buffer
		p []byte
	}{{x.a, in[0]}, {x.b, in[1]}, {x.sum, blank}, {x.copied, blank}, {x.filled, blank}} {
		if _, err := put.b.WriteAt(put.p, 0); err != nil {
			return err
		}
	}
	x.point++
	first, err := x.queue.Submit(
		&client.Launch{Program: x.program, Bindings: []client.Binding{{Buffer: x.a}, {Buffer: x.b}, {Buffer: x.sum}}, Deadline: w.deadline},
		&client.Copy{Dst: x.copied, Src: x.sum, Bytes: x.bytes, Deadline: w.deadline},
		&client.Fill{Buffer: x.filled, Bytes: x.bytes, Pattern: pattern, Deadline: w.deadline},
		&client.Signal{Fence: x.fence, Value: x.point},
	)
	if err != nil {
		return err
	}
	results := []struct {
		what string
		b    *client.Buffer
		want []byte
	}{{"a launch", x.sum, want}, {"a copy", x.copied, want}, {"a fill", x.filled, fill}, {what: "a signal"}}
	for at := 0; at < len(results); {
		var done [8]client.Completion
		n, err := x.queue.Completions(ctx, done[:])
		if err != nil {
			return err
		}
		for _, c := range done[:n] {
			if at == len(results) || c.Ticket != first+uint64(at) {
				w.fault("a completion of ticket %d, where %d was next", c.Ticket, first+uint64(at))
				return nil
			}
			r := results[at]
			at++
			switch {
			case c.Err != nil:
				w.judge(r.what, c.Err)
				w.notOK.Add(1)
			case c.Outcome.Kind != outcome.OK:
				w.notOK.Add(1)
				if k := c.Outcome.Kind; k == outcome.Pending || k == outcome.Failed {
					w.fault("%s ended %v", r.what, c.Outcome)
				}
			default:
				w.ok.Add(1)
				if r.b != nil {
					w.compare(s, r.what, r.b, r.want)
				}
			}
		}
	}
	how, err := x.fence.Wait(ctx, x.point)
	if err != nil {
		return err
	}
	if how.Kind == outcome.OK {
		w.rounds.Add(1)
		w.compare(s, "what a fence covers", x.copied, want)
	}
	return nil
}

// compare checks work that was reported ok. Memory is zero once its driver is dead, and the
// client learns of that: such zeros are no false answer.
func (w *worker) compare(s *client.Session, what string, b *client.Buffer, want []byte) {
	got := make([]byte, len(want))
	if _, err := b.ReadAt(got, 0); err != nil {
		w.judge("read", err)
		return
	}
	wrong, zeros := 0, 0
	for i := 0; i < len(want); i += 4 {
		if v := binary.LittleEndian.Uint32(got[i:]); v != binary.LittleEndian.Uint32(want[i:]) {
			wrong++
			if v == 0 {
				zeros++
			}
		}
	}
	if wrong == 0 {
		return
	}
	if wrong == zeros {
		select {
		case <-s.Done():
			return
		case <-time.After(callBound):
		}
	}
	w.fault("FALSE OK: %s was told to be ok, and %d of %d words are wrong, %d of these zero", what, wrong, len(want)/4, zeros)
}
