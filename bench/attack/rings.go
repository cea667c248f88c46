package attack

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/wire"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// The places of the client's words in a ring: docs/wire.md.
const (
	offSQ     = 0x18
	offArena  = 0x20
	offTail   = 0x40
	offCQWait = 0x48
	offCQHead = 0xc0
)

const (
	ringEntries  = 64
	ringArgBytes = 16 << 10
)

// rings is a session with a queue that is written as memory, and with an ordinary
// client of the same queue, which receives the answers.
type rings struct {
	*wire.Session
	*wire.Queue
	tame   *ring.Client
	buffer *wire.Memory
	add    uint64
}

func (a *attacker) openRings(ctx context.Context) (_ *rings, err error) {
	s, err := a.openRaw(ctx)
	if err != nil {
		return nil, err
	}

	r := &rings{Session: s}
	defer func() {
		if err != nil {
			r.end()
		}
	}()

	if r.Queue, err = s.Queue(ctx, ringEntries, ringArgBytes); err != nil {
		return nil, err
	}

	var fds [3]int
	for i, fd := range []int{r.FD, r.SQ, r.CQ} {
		if fds[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, err
		}
	}

	if r.tame, err = ring.Attach(fds[0], fds[1], fds[2]); err != nil {
		return nil, err
	}
	if r.buffer, err = s.Buffer(ctx, 64<<10); err != nil {
		return nil, err
	}

	r.add, err = s.Program(ctx, "vecadd_f32")
	return r, err
}

func (r *rings) end() {
	if r.tame != nil {
		_ = r.tame.Close()
	}
	_ = r.Close()
	r.Forget()
	if r.Queue != nil {
		for _, fd := range []int{r.FD, r.SQ, r.CQ} {
			_ = unix.Close(fd)
		}
	}
	if r.buffer != nil {
		_ = unix.Close(r.buffer.FD)
	}
}

// part is the offset of a part of the ring.
func (r *rings) part(off int) uint64 { return uint64(binary.LittleEndian.Uint32(r.All[off:])) }

// at is the offset of a position's entry.
func (r *rings) at(pos uint64) uint64 { return r.part(offSQ) + pos%ringEntries*ring.EntryBytes }

// put writes an entry as memory.
func (r *rings) put(pos uint64, e ring.Entry) {
	var b [ring.EntryBytes]byte
	e.Encode(&b)
	copy(r.All[r.at(pos):], b[:])
}

// ringBell wakes the driver, whether it sleeps or not.
func (r *rings) ringBell() { _, _ = unix.Write(r.SQ, []byte{1}) } // a full pipe wakes it as well

// launch is a valid launch.
func (r *rings) launch(userData uint64) (ring.Entry, []ring.Binding) {
	var bindings []ring.Binding
	for i := range 3 {
		bindings = append(bindings, ring.Binding{Buffer: r.buffer.Handle, Off: uint64(i) * 4096, Len: 4096})
	}
	return ring.LaunchEntry(userData, r.add, ring.Dim3{X: 4, Y: 1, Z: 1}, ring.Dim3{}, 0, 0), bindings
}

// answers counts the queue's answers, until there are none for a while or it has
// ended.
func (a *attacker) answers(ctx context.Context, r *rings, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var done [ringEntries]ring.Completion
	for {
		n, err := r.tame.Wait(ctx, done[:])
		for _, c := range done[:n] {
			a.ended(c.Code, c.Outcome)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// halfWritten publishes entries of which it has written half, continues one, and
// stops in the middle of it.
func halfWritten(ctx context.Context, a *attacker) error {
	r, err := a.openRings(ctx)
	if err != nil {
		return err
	}

	for i := range uint64(ringEntries / 2) {
		e, _ := r.launch(i)
		r.put(i, e)
		if i%2 == 1 {
			at := r.at(i) + ring.EntryBytes/2
			for j := range uint64(ring.EntryBytes / 2) {
				r.All[at+j] = byte(a.random.Uint32())
			}
		}
	}

	binary.LittleEndian.PutUint64(r.All[offTail:], ringEntries/2)
	r.ringBell()
	return unix.Kill(unix.Getpid(), unix.SIGSTOP)
}

// tails publishes impossible positions.
func tails(ctx context.Context, a *attacker) error {
	r, err := a.openRings(ctx)
	if err != nil {
		return err
	}
	defer r.end()

	for i := range uint64(ringEntries) {
		e, _ := r.launch(i)
		if a.random.IntN(2) == 0 {
			e = ring.NopEntry(i)
		}
		r.put(i, e)
	}

	honest := uint64(a.random.IntN(ringEntries))
	binary.LittleEndian.PutUint64(r.All[offTail:], honest)
	r.ringBell()
	for range 1 + a.random.IntN(4) {
		value := a.random.Uint64()
		switch a.random.IntN(6) {
		case 0:
			value = honest + ringEntries + 1 + a.random.Uint64N(1<<20) // it jumps
		case 1:
			value = honest - 1 - a.random.Uint64N(ringEntries) // it goes back, also below 0
		case 2:
			value = ^uint64(0) - a.random.Uint64N(ringEntries)
		case 3:
			value = 1 << 32
		case 4:
			value = honest + 1<<63
		}
		binary.LittleEndian.PutUint64(r.All[offTail:], value)
		r.ringBell()
	}

	for _, off := range []int{offCQHead, offCQWait} { // and its completion words
		if a.random.IntN(2) == 0 {
			binary.LittleEndian.PutUint32(r.All[off:], a.random.Uint32())
		}
	}

	return a.answers(ctx, r, 20*time.Millisecond)
}

// arguments publishes launches and replays with impossible arguments: outside the
// arena, over those of other entries, or none at all.
func arguments(ctx context.Context, a *attacker) error {
	r, err := a.openRings(ctx)
	if err != nil {
		return err
	}
	defer r.end()

	arena := r.All[r.part(offArena):][:ringArgBytes]
	for i := range uint64(ringEntries) {
		e, bindings := r.launch(i)
		switch off := a.random.IntN(ringArgBytes - 1024); a.random.IntN(8) {
		case 0: // beyond the arena's end, or across it
			e.SetArgs(ringArgBytes-8*a.random.Uint32N(16), len(bindings), 0)

		case 1: // at any offset
			e.SetArgs(a.random.Uint32(), len(bindings), a.random.IntN(1<<16))
		case 2: // of a wrong length
			e.SetArgs(0, len(bindings), 0)
			e.D += a.random.Uint64() << 32

		case 3:
			e = ring.ReplayEntry(i, a.random.Uint64N(8)<<32|a.random.Uint64N(8), 0)
			e.Count, e.D = uint16(a.random.Uint32()), a.random.Uint64()

		case 4: // impossible bindings
			bindings[a.random.IntN(len(bindings))] = ring.Binding{Buffer: a.random.Uint64(), Off: a.random.Uint64(), Len: a.random.Uint64()}
			fallthrough

		default: // valid ones, perhaps over others
			copy(arena[off&^7:], ring.AppendArgs(nil, bindings, nil))
			e.SetArgs(uint32(off&^7), len(bindings), 0)
		}

		r.put(i, e)
		binary.LittleEndian.PutUint64(r.All[offTail:], i+1)
		r.ringBell()
	}

	return a.answers(ctx, r, 20*time.Millisecond)
}

// changing makes a second thread overwrite entries, arguments and operands while
// valid launches are read from there.
func changing(ctx context.Context, a *attacker) error {
	r, err := a.openRings(ctx)
	if err != nil {
		return err
	}
	defer r.end()

	stop := make(chan struct{})
	var writer sync.WaitGroup
	seed := a.random.Uint64()

	// Completions lie in between, and are for the tame end.
	entries, arena := r.All[r.part(offSQ):][:ringEntries*ring.EntryBytes], r.All[r.part(offArena):][:ringArgBytes]
	writer.Go(func() {
		x := seed
		for {
			select {
			case <-stop:
				return
			default:
			}
			for range 64 {
				x = x*6364136223846793005 + 1442695040888963407
				part := entries
				if x>>61&1 != 0 {
					part = arena
				}
				at := int(x>>33) % len(part)
				if x>>62 == 0 {
					binary.LittleEndian.PutUint64(part[at&^7:], x)
				} else {
					part[at] ^= 1 << (x >> 29 & 7)
				}
			}
		}
	})

	var done [ringEntries]ring.Completion
	end := time.Now().Add(100 * time.Millisecond)
	for i := uint64(1); time.Now().Before(end) && err == nil; i++ {
		e, bindings := r.launch(i)
		if i%2 == 0 {
			e, bindings = ring.CopyEntry(i, r.buffer.Handle, 0, r.buffer.Handle, 8192, 4096, 0), nil
		}
		if full := r.tame.Push(&e, bindings, nil); full != nil && !errors.Is(full, gpuerr.QueueFull) {
			err = full
		}
		if flushed := r.tame.Flush(); err == nil {
			err = flushed
		}

		n, polled := r.tame.Poll(done[:])
		for _, c := range done[:n] {
			a.ended(c.Code, c.Outcome)
		}

		if err == nil {
			err = polled
		}
	}

	close(stop)
	writer.Wait()
	return err
}

// neverDrained fills a queue again and again as its entries are taken, and takes no
// completions.
func neverDrained(ctx context.Context, a *attacker) error {
	r, err := a.openRings(ctx)
	if err != nil {
		return err
	}
	defer r.end()
	for range 4 * ringEntries {
		e, bindings := r.launch(1)
		a.answered(r.tame.Push(&e, bindings, nil))
		if err := r.tame.Flush(); err != nil {
			return err
		}
		r.ringBell()
	}
	return nil
}
