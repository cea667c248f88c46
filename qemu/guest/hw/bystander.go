package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/qemu/guest/tap"
)

// restTime is between its rounds.
const restTime = 200 * time.Millisecond

// bystander works on one function and has data there, while something happens to the
// other one.
type bystander struct {
	t    *tenant
	w    *work
	kept buffer // it must not change
	want []byte

	stop context.CancelFunc
	done chan error
	runs int // copies and launches that were right; read after done
}

// bystander starts one. It is in the middle of its session until quit.
func (s *suite) bystander(c *tap.Check, function string) *bystander {
	b := &bystander{t: s.tenant(c, function), done: make(chan error, 1)}
	b.w = b.t.opened(c)
	b.kept = b.w.must(c, 1<<20)
	b.want = fillRandom(b.kept.mem, 77)
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	go func() { b.done <- b.runWork(ctx) }()
	return b
}

// runWork copies and computes until it is stopped.
func (b *bystander) runWork(ctx context.Context) error {
	bound, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	dst, err := b.w.buffer(bound, stepBytes)
	if err != nil {
		return err
	}

	for ctx.Err() == nil {
		off := uint64(b.runs) * 512 % (1<<20 - stepBytes)
		if err := b.w.copied(bound, dst, b.kept, 0, off, stepBytes); err != nil {
			return fmt.Errorf("copy %d: %w", b.runs, err)
		}
		if !bytes.Equal(dst.mem, b.want[off:off+stepBytes]) {
			return fmt.Errorf("copy %d differs at %d", b.runs, differ(dst.mem, b.want[off:off+stepBytes]))
		}
		if err := b.w.factorials(bound); err != nil {
			return err
		}
		b.runs++
		time.Sleep(restTime) // the guest has other things to do
	}

	return nil
}

// quit ends it. It must have worked all the time, and its data must be as they were.
func (b *bystander) quit(c *tap.Check) (runs int) {
	b.stop()
	defer b.t.close()
	c.Must(<-b.done, "the tenant of "+b.t.function)
	c.That(b.runs > 0, "the tenant of %s had no time to do anything", b.t.function)
	c.That(bytes.Equal(b.kept.mem, b.want), "data of the tenant of %s have changed at %d", b.t.function, differ(b.kept.mem, b.want))
	c.Must(b.w.Close(c.Ctx), "close its session")
	return b.runs
}

// checkBystander: what one tenant does to its function is nothing to the other.
func (s *suite) checkBystander() {
	s.Check("bob works on while alice misbehaves", func(c *tap.Check) {
		before := s.ready(c, edu1)
		bobs := s.bystander(c, edu1)
		t := s.tenant(c, edu0)
		defer t.close()
		for range 3 { // copies that miss their deadlines, and sessions that are left in the middle
			w := t.opened(c)
			src, dst := w.must(c, 1<<20), w.must(c, 1<<20)
			done := tap.Get[client.Completion](c, "copy")(w.run(c.Ctx, &client.Copy{Dst: dst.Buffer, Src: src.Buffer, Bytes: 1 << 20, Deadline: 50 * time.Millisecond}))
			c.That(done.Outcome.Kind == outcome.TimedOut, "a copy ended %v", done.Outcome)
			_, err := w.submit(&client.Copy{Dst: dst.Buffer, Src: src.Buffer, Bytes: 1 << 20})
			c.Must(err, "submit")
			c.Must(w.Close(c.Ctx), "close the session in the middle of a copy")
		}
		w := t.opened(c)
		var refused error
		for refused == nil { // all the memory that there is
			_, refused = w.CreateBuffer(c.Ctx, 1<<20, client.Storage)
		}
		c.Refused(refused, "a buffer beyond the budget", gpuerr.Quota)
		c.Must(w.Close(c.Ctx), "close the session")
		if s.broken == "bystander" {
			bobs.kept.mem[4711] ^= 0x10
		}
		runs := bobs.quit(c)
		c.That(s.ready(c, edu1) == before, "bob has another driver now")
		c.Say("%d rounds of copies and launches, all right, his data as they were", runs)
	})
}

// ended are the codes that a dead driver's clients see.
var ended = []gpuerr.Code{gpuerr.Disconnected, gpuerr.DeviceLost}

// isEnded reports whether an error says that the driver is gone.
func isEnded(err error) bool {
	return errors.Is(err, gpuerr.Disconnected) || errors.Is(err, gpuerr.DeviceLost)
}
