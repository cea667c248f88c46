package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/qemu/guest/tap"
)

// checkMemory: no client finds data of an earlier owner, and no memory is freed while the
// device writes to it. A destroyed buffer is free by then, and the memory of a closed session
// soon after.
func (s *suite) checkMemory() {
	s.Check("unmap is acknowledged only after DMA has stopped", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		faults := s.faults(c)
		// A copy takes 100 ms to the board and 100 ms back: these are moments in both.
		for i, moment := range []time.Duration{30, 90, 130, 170, 195} {
			w := t.opened(c)
			src, dst := w.must(c, 4*stepBytes), w.must(c, 4*stepBytes)
			fillRandom(src.mem, uint64(i))
			_, err := w.submit(&client.Copy{Dst: dst.Buffer, Src: src.Buffer, Bytes: 4 * stepBytes})
			c.Must(err, "submit")
			time.Sleep(moment * time.Millisecond)
			if i%2 == 0 {
				c.Must(dst.Buffer.Close(c.Ctx), "destroy the destination")
			} else {
				c.Must(w.Close(c.Ctx), "close the session")
				t.reclaimed(c)
			}
			// It is acknowledged: our mapping of it shows nothing, now and later.
			after := nonZero(dst.mem)
			c.That(after < 0, "after %d ms: a destroyed buffer still holds something at %d", moment, after)
			next := t.opened(c)
			fresh := next.must(c, 1<<20)
			time.Sleep(oneTransfer)
			c.That(nonZero(dst.mem) < 0, "after %d ms: the device has written to a destroyed buffer", moment)
			c.That(nonZero(fresh.mem) < 0, "after %d ms: the device has written to the next owner's memory", moment)
			c.Must(errors.Join(w.Close(c.Ctx), next.Close(c.Ctx)), "close the sessions")
		}
		c.That(s.faults(c) == faults, "the device was stopped by the IOMMU, that is, after the unmap:\n%s", s.lastFault(c))
		c.Say("5 moments of a copy; nothing written afterwards, no IOMMU fault")
	})
	s.Check("memory of a closed session and of a dead driver is scrubbed", func(c *tap.Check) {
		t := s.tenant(c, edu0)
		defer t.close()
		looked := uint64(0)
		for _, killed := range []bool{false, true} {
			filled, left := s.fillAll(c, t)
			epoch := left.Epoch()
			if killed {
				d := tap.Get[driver](c, "find the driver")(s.driverOf(c.Ctx, edu0, left))
				c.Must(unix.Kill(d.pid, unix.SIGKILL), "kill the driver")
				select {
				case <-left.Done():
				case <-c.Ctx.Done():
					c.Fatalf("the session does not notice")
				}
				_, err := t.waitReady(c.Ctx, epoch)
				c.Must(err, "wait for the successor")
			} else {
				c.Must(left.Close(c.Ctx), "close the session")
				t.reclaimed(c)
			}
			n := s.lookAtAll(c, t)
			c.That(n >= filled, "only %d of %d bytes could be had again", n, filled)
			looked += n
		}
		c.Say("%d MiB looked at, not one byte was left", looked>>20)
	})
}

// reclaimed waits until nothing is left of the sessions that the tenant has closed.
func (t *tenant) reclaimed(c *tap.Check) {
	ctx, cancel := context.WithTimeout(c.Ctx, settleBound)
	defer cancel()
	for {
		raw := tap.Get[json.RawMessage](c, "ask for the status")(t.conn.Status(ctx, t.device))
		var status struct {
			Tenants []struct {
				Sessions []struct {
					Closing bool `json:"closing"`
				} `json:"sessions"`
			} `json:"tenants"`
		}
		c.Must(json.Unmarshal(raw, &status), "parse the status")
		closing := false
		for _, tenant := range status.Tenants {
			for _, session := range tenant.Sessions {
				closing = closing || session.Closing
			}
		}
		if !closing {
			return
		}
		time.Sleep(pollEvery)
	}
}

// allOf takes all the memory there is, and gives each buffer to a function.
func allOf(ctx context.Context, w *work, each func(b buffer) error) (bytes uint64, err error) {
	for size := uint64(1 << 20); size >= 4096; {
		b, err := w.buffer(ctx, size)
		if errors.Is(err, gpuerr.Quota) {
			size /= 2
			continue
		}
		if err == nil {
			err = each(b)
		}
		if err != nil {
			return bytes, err
		}
		bytes += size
	}

	return bytes, nil
}

// fillAll fills all memory, and returns the session that holds it.
func (s *suite) fillAll(c *tap.Check, t *tenant) (uint64, *work) {
	w := t.opened(c)
	pattern := bytes.Repeat([]byte{0xa7}, 1<<20)
	n, err := allOf(c.Ctx, w, func(b buffer) error {
		copy(b.mem, pattern)
		return nil
	})
	c.Must(err, "take all memory")
	return n, w
}

// lookAtAll takes all memory and looks whether it is zero.
func (s *suite) lookAtAll(c *tap.Check, t *tenant) uint64 {
	w := t.opened(c)
	n, err := allOf(c.Ctx, w, func(b buffer) error {
		if s.broken == "scrub" {
			b.mem[len(b.mem)-1] = 0xa7
		}
		if at := nonZero(b.mem); at >= 0 {
			return fmt.Errorf("byte %d is %#x before anyone wrote it", at, b.mem[at])
		}
		return nil
	})
	c.Must(err, "look at all memory")
	c.Must(w.Close(c.Ctx), "close the session")
	return n
}
