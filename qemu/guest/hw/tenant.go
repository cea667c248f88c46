package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// pollEvery is the interval of looking at a state that sends no event.
const pollEvery = 5 * time.Millisecond

// edu moves stepBytes at once; a step takes 200 ms, memory to board to memory.
const stepBytes = 2048

// tenant is a connection of one tenant, and one of its functions.
type tenant struct {
	conn     *client.Conn
	function string
	device   uint32
}

func socket(tenant string) string { return filepath.Join(runDir, tenant+".sock") }

// dial connects as a tenant. The function must be visible to it.
func dial(ctx context.Context, name, function string) (*tenant, error) {
	var conn *client.Conn
	for {
		var err error
		conn, err = client.Dial(ctx, socket(name))
		if err == nil {
			break
		}
		// A manager that was just started may have no socket yet.
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) || ctx.Err() != nil {
			return nil, fmt.Errorf("dial as %s: %w", name, err)
		}
		time.Sleep(pollEvery)
	}

	devices, err := conn.Devices(ctx)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("list devices as %s: %w", name, err)
	}

	for _, d := range devices {
		if d.Name == function {
			return &tenant{conn, function, d.Index}, nil
		}
	}

	conn.Close()
	return nil, fmt.Errorf("%s has no device %s but %v", name, function, devices)
}

// tenant dials for the length of a check.
func (s *suite) tenant(c *tap.Check, function string) *tenant {
	return tap.Get[*tenant](c, "connect")(dial(c.Ctx, owners[function], function))
}

func (t *tenant) close() { t.conn.Close() }

// waitReady waits for a driver of a later epoch than after, as clients do.
func (t *tenant) waitReady(ctx context.Context, after uint64) (client.State, error) {
	epoch := after
	for {
		state, err := t.conn.NextState(ctx, t.device, epoch)
		switch {
		case err != nil:
			return state, fmt.Errorf("wait for %s to be ready after epoch %d: %w", t.function, after, err)
		case state.State == client.Ready && state.Epoch > after:
			return state, nil
		case state.State == client.Wedged:
			return state, fmt.Errorf("%s is wedged: %s", t.function, state.Cause)
		}
		time.Sleep(pollEvery) // any state but "ready in epoch" is reported at once
	}
}

// work is a session with a queue and a fence.
type work struct {
	*client.Session
	queue *client.Queue
	fence *client.Fence
	value uint64 // of the fence, that was promised last
}

func (t *tenant) open(ctx context.Context) (_ *work, err error) {
	w := &work{}
	for {
		w.Session, err = t.conn.Open(ctx, t.device)
		if !errors.Is(err, gpuerr.Busy) {
			break
		}
		time.Sleep(pollEvery) // its driver is slow, as the whole guest may be
	}
	if err != nil {
		return nil, fmt.Errorf("open a session on %s: %w", t.function, err)
	}

	if w.queue, err = w.CreateQueue(ctx, client.QueueOptions{}); err == nil {
		w.fence, err = w.CreateFence(ctx, 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a queue and a fence on %s: %w", t.function, err), w.Session.Close(ctx))
	}
	return w, nil
}

// opened is open for the length of a check.
func (t *tenant) opened(c *tap.Check) *work {
	return tap.Get[*work](c, "open")(t.open(c.Ctx))
}

// buffer is a mapped buffer; it goes with the session.
type buffer struct {
	*client.Buffer
	mem []byte
}

func (w *work) buffer(ctx context.Context, bytes uint64) (buffer, error) {
	b, err := w.CreateBuffer(ctx, bytes, client.Storage)
	if err != nil {
		return buffer{}, fmt.Errorf("create a buffer of %d bytes: %w", bytes, err)
	}
	mem, err := b.Map()
	if err != nil {
		return buffer{}, fmt.Errorf("map a buffer: %w", err)
	}
	return buffer{b, mem}, nil
}

func (w *work) must(c *tap.Check, bytes uint64) buffer {
	return tap.Get[buffer](c, "buffer")(w.buffer(c.Ctx, bytes))
}

// run submits one command and waits for how it ended.
func (w *work) run(ctx context.Context, command client.Command) (client.Completion, error) {
	ticket, err := w.submit(command)
	if err != nil {
		return client.Completion{}, err
	}
	return w.await(ctx, ticket)
}

// submit queues a command and, after it, the next value of the fence.
func (w *work) submit(command client.Command) (ticket uint64, err error) {
	ticket, err = w.queue.Submit(command, &client.Signal{Fence: w.fence, Value: w.value + 1})
	if err != nil {
		return 0, fmt.Errorf("submit: %w", err)
	}
	w.value++
	return ticket, nil
}

// await takes completions until that of a ticket and of the signal after it.
func (w *work) await(ctx context.Context, ticket uint64) (client.Completion, error) {
	var found client.Completion
	some := make([]client.Completion, 2)
	for {
		n, err := w.queue.Completions(ctx, some)
		if err != nil {
			return found, fmt.Errorf("wait for a completion: %w", err)
		}
		for _, done := range some[:n] {
			switch done.Ticket {
			case ticket:
				found = done
			case ticket + 1:
				return found, nil
			}
		}
	}
}

// copied has the device copy n bytes from one place to another.
func (w *work) copied(ctx context.Context, dst, src buffer, dstOff, srcOff, n uint64) error {
	done, err := w.run(ctx, &client.Copy{Dst: dst.Buffer, DstOff: dstOff, Src: src.Buffer, SrcOff: srcOff, Bytes: n})
	if err == nil && done.Outcome != outcome.Success {
		err = fmt.Errorf("the copy ended %v (%v)", done.Outcome, done.Err)
	}
	return err
}

// factorials has the device's unit compute 0! to 12!, and looks at each.
func (w *work) factorials(ctx context.Context) error {
	const n = 13 // 13! has more than 32 bits
	in, err := w.buffer(ctx, 4*n)
	if err != nil {
		return err
	}

	out, err := w.buffer(ctx, 4*n)
	if err != nil {
		return err
	}

	program, err := w.OpenProgram(ctx, "edu.factorial")
	if err != nil {
		return fmt.Errorf("open edu.factorial: %w", err)
	}

	for i := range uint32(n) {
		binary.LittleEndian.PutUint32(in.mem[4*i:], i)
	}

	done, err := w.run(ctx, &client.Launch{Program: program, Bindings: []client.Binding{{Buffer: in.Buffer}, {Buffer: out.Buffer}}})
	if err != nil {
		return err
	}
	if done.Outcome != outcome.Success {
		return fmt.Errorf("edu.factorial ended %v (%v)", done.Outcome, done.Err)
	}

	want := uint32(1)
	for i := range uint32(n) {
		want *= max(i, 1)
		if got := binary.LittleEndian.Uint32(out.mem[4*i:]); got != want {
			return fmt.Errorf("%d! is %d, says the device; it is %d", i, got, want)
		}
	}

	for _, b := range []buffer{in, out} {
		if err := errors.Join(b.Unmap(), b.Buffer.Close(ctx)); err != nil {
			return err
		}
	}

	return program.Close(ctx)
}

// fillRandom writes bytes, none of them zero, and returns a copy of them.
func fillRandom(mem []byte, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range mem {
		mem[i] = byte(1 + r.IntN(255))
	}
	return append([]byte(nil), mem...)
}

// nonZero returns where memory is not zero, or -1. It looks at words: the guest is slow, and
// the memory large.
func nonZero(mem []byte) int {
	i := 0
	for ; i+8 <= len(mem) && binary.LittleEndian.Uint64(mem[i:]) == 0; i += 8 {
	}
	for ; i < len(mem); i++ {
		if mem[i] != 0 {
			return i
		}
	}
	return -1
}
