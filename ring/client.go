package ring

import (
	"errors"
	"sync"
	"sync/atomic"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// Client is the client's end. Its submitting side (Push to Rollback) has no lock: its caller
// has one of its own, or one goroutine, around all of it and around Close.
type Client struct {
	layout
	view    view
	mapping []byte
	mem     *shm.Memory
	wake    Sender        // wakes the driver
	done    Receiver      // woken when there are completions
	rung    atomic.Uint64 // how often the driver was woken

	submitted atomic.Uint64 // entries the driver may have seen; stored before sqTail

	// The submitting side's.
	pushed   uint64 // entries written
	seenHead uint64 // sqHead as last read and checked
	arena    arena
	bindings []uint64 // of the launch that is pushed next
	pushErr  error    // set once failed or closed

	pollMu sync.Mutex
	// +checklocks:pollMu
	taken uint64 // completions copied out
	// +checklocks:pollMu
	patience patience // of Wait
	// +checklocks:pollMu
	sleeps uint64 // of Wait, until it was woken
	// +checklocks:pollMu
	pollErr error // set once ended
	// +checklocks:pollMu
	closed bool
}

// Attach takes the three descriptors of a queue, in the order of Server.HandOut,
// also when it fails. The memory must be sealed and its header make sense. Rings of
// another Version are answered gpuerr.Version.
func Attach(ringFD, sqFD, cqFD int) (_ *Client, err error) {
	c := &Client{}
	// All three are taken before any of them may fail.
	var memErr, wakeErr, doneErr error
	c.mem, memErr = shm.FromFD(ringFD, headerBytes)
	if wake, err := shm.SenderFromFD(sqFD); err == nil {
		c.wake = wake
	} else {
		wakeErr = err
	}
	if done, err := shm.ReceiverFromFD(cqFD); err == nil {
		c.done = done
	} else {
		doneErr = err
	}
	defer func() {
		if err != nil {
			c.releaseAll()
		}
	}()
	if memErr != nil || wakeErr != nil || doneErr != nil {
		return nil, firstError(memErr, wakeErr, doneErr)
	}
	head, err := c.mem.Map(0, headerBytes, false)
	if err != nil {
		return nil, err
	}
	h := loadHeader(head)
	if err := shm.Unmap(head); err != nil {
		return nil, err
	}
	if c.layout, err = h.layout(c.mem.Size()); err != nil {
		return nil, err
	}
	if c.mapping, err = c.mem.Map(0, c.bytes, true); err != nil {
		return nil, err
	}
	if c.view, err = viewOf(c.mapping, c.layout); err != nil {
		return nil, err
	}
	c.begin(patience{})
	return c, nil
}

// begin makes what a client has for itself.
func (c *Client) begin(p patience) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	c.arena, c.patience = newArena(c.layout), p
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Config is what the ring was made with.
func (c *Client) Config() Config { return c.layout.Config }

// Poll copies out the completions there are, at most len(out), without waiting.
// Once the driver has closed the queue and all is taken it answers the closing
// code; a driver that lies costs gpuerr.Protocol, now and ever after.
func (c *Client) Poll(out []Completion) (int, error) {
	n, wake, err := c.poll(out, false)
	if wake {
		c.signal()
	}
	return n, err
}

// poll is Poll, but that it wakes nobody. It also sets or clears the wait flag: with arm the
// flag is set before the queue is looked at, and cleared when that found something.
func (c *Client) poll(out []Completion, arm bool) (n int, wake bool, err error) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	return c.pollLocked(out, arm)
}

// pollLocked is poll.
//
// +checklocks:c.pollMu
func (c *Client) pollLocked(out []Completion, arm bool) (n int, wake bool, err error) {
	if c.pollErr != nil {
		return 0, false, c.pollErr
	}
	if arm {
		c.done.Drain()
		c.view.cqWait.Swap(waitEntries)
	}
	n, err = c.takeLocked(out)
	if arm && (n > 0 || err != nil) {
		c.view.cqWait.Store(awake)
	}
	if n == 0 {
		return 0, false, err
	}
	c.view.cqHead.Swap(c.taken) // Swap: see view
	return n, c.asked(waitCompletions), nil
}

// takeLocked copies completions out; an error comes only without any.
//
// +checklocks:c.pollMu
func (c *Client) takeLocked(out []Completion) (int, error) {
	if n, err := c.copyLocked(out); n > 0 || err != nil {
		return n, err
	}
	state := c.view.state.Load()
	if state == 0 {
		return 0, nil
	}
	// Anything that was published before the state is now seen.
	n, err := c.copyLocked(out)
	if n == 0 && err == nil && lapIn(atomic.LoadUint64(c.nextLocked())) != lapOf(c.taken, c.completions) {
		c.pollErr = closingError(state)
		return 0, c.pollErr
	}
	return n, err
}

// nextLocked is the word that says whether the next completion is there.
//
// +checklocks:c.pollMu
func (c *Client) nextLocked() *uint64 { return &c.view.completion(c.taken)[1] }

// copyLocked copies out what is there.
//
// +checklocks:c.pollMu
func (c *Client) copyLocked(out []Completion) (n int, err error) {
	submitted := c.submitted.Load()
	for ; n < len(out); n++ {
		from, lap := c.view.completion(c.taken), lapOf(c.taken, c.completions)
		w := [completionWords]uint64{1: atomic.LoadUint64(&from[1])} // first: see completion.go
		if lapIn(w[1]) != lap {
			if lapIn(w[1]) != lap-1 {
				c.pollErr = errDriverLap
			}
			break
		}
		if c.taken == submitted {
			if submitted = c.submitted.Load(); c.taken == submitted {
				c.pollErr = errDriverAhead
				break
			}
		}
		w[0], w[2], w[3] = atomic.LoadUint64(&from[0]), atomic.LoadUint64(&from[2]), atomic.LoadUint64(&from[3])
		if err := out[n].setWords(&w); err != nil {
			c.pollErr = err
			break
		}
		c.taken++
	}
	if n > 0 { // then an error is for the next call: those before it are good
		return n, nil
	}
	return 0, c.pollErr
}

// closingError is why the driver closed the queue.
func closingError(state uint32) error {
	code := gpuerr.Code(state)
	if uint32(code) != state || !code.Valid() {
		return gpuerr.New(gpuerr.Protocol, "the driver closed the queue with the unknown code %d", state)
	}
	return gpuerr.New(code, "the queue was closed by the driver")
}

// Close releases this side and wakes its waiter with gpuerr.Closed. The driver
// learns of it by the control socket. Idempotent.
func (c *Client) Close() error {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.pushErr, c.pollErr = errClientClosed, errClientClosed
	return c.releaseAll()
}

// releaseAll releases what there is, also of a client half made.
func (c *Client) releaseAll() error {
	var errs []error
	if c.wake != nil {
		errs = append(errs, c.wake.Close())
	}
	if c.done != nil {
		errs = append(errs, c.done.Close()) // wakes Wait
	}
	c.view = view{}
	if c.mem != nil { // else the memory is the caller's of NewOver
		errs = append(errs, shm.Unmap(c.mapping), c.mem.Close())
	}
	c.mapping = nil
	return errors.Join(errs...)
}

var (
	errQueueFull    = gpuerr.New(gpuerr.QueueFull, "the queue has no room; flush it and take completions")
	errDriverHead   = gpuerr.New(gpuerr.Protocol, "the driver's sqHead went back or beyond what was submitted; close the queue")
	errDriverAhead  = gpuerr.New(gpuerr.Protocol, "the driver completed what was not submitted; close the queue")
	errDriverLap    = gpuerr.New(gpuerr.Protocol, "the driver wrote a completion of a lap that is not now; close the queue")
	errDriverGone   = gpuerr.New(gpuerr.Disconnected, "the driver is gone; open the device again")
	errClientClosed = gpuerr.New(gpuerr.Closed, "the queue is closed")
)
