package ring

import (
	"errors"
	"sync"
	"sync/atomic"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// Client is the client's end. What every batch needs comes first, in few cache lines: who
// has many rings, and comes from one to the next, finds none of it in a near cache. What only
// one of two goroutines writes, of which one pushes and the other polls, is in lines of its own.
type Client struct {
	layout
	submitted atomic.Uint64 // entries the driver may have seen; stored before sqTail
	pushMu    sync.Mutex

	users users
	// +checklocks:pushMu
	pushed uint64 // entries written
	// +checklocks:pushMu
	seenHead uint64 // sqHead as last read and checked
	// +checklocks:pushMu
	pushErr error // set once failed or closed
	_       uint64
	// +checklocks:pushMu
	arena arena

	view   view
	pollMu sync.Mutex
	// +checklocks:pollMu
	taken uint64 // completions copied out
	// +checklocks:pollMu
	pollErr error // set once ended
	// +checklocks:pollMu
	patience patience // of Wait
	// +checklocks:pollMu
	closed bool
	_      [16]byte

	// +checklocks:pushMu
	keeper keeper
	// +checklocks:pushMu
	said    []uint64 // the entry being pushed and its arguments, before they go anywhere
	mem     *shm.Memory
	mapping []byte
	wake    sender        // wakes the driver
	done    receiver      // woken when there are completions
	rung    atomic.Uint64 // how often the driver was woken
	// +checklocks:pollMu
	sleeps uint64 // of Wait, until it was woken
}

// Attach takes the three descriptors of a queue, in the order of Server.FDs,
// also when it fails. The memory must be sealed and its header make sense.
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
	c.begin()
	return c, nil
}

// begin makes what a client has for itself.
func (c *Client) begin() {
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	c.arena, c.keeper, c.said = newArena(c.layout), newKeeper(c.layout), make([]uint64, keptWords)
	c.users.places = usersPerEntry * c.Entries
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
	to := Taking{Others: out}
	wake, err := c.poll(&to, false)
	if wake {
		c.signal()
	}
	return to.Other, err
}

// poll is Poll, but that it wakes nobody. It also sets or clears the wait flag: with arm the
// flag is set before the queue is looked at, and cleared when that found something.
func (c *Client) poll(to *Taking, arm bool) (wake bool, err error) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	return c.pollLocked(to, arm)
}

// pollLocked is poll.
//
// +checklocks:c.pollMu
func (c *Client) pollLocked(to *Taking, arm bool) (wake bool, err error) {
	to.OK, to.Other = 0, 0
	if c.pollErr != nil {
		return false, c.pollErr
	}
	if arm {
		c.done.Drain()
		c.view.cqWait.Swap(waitEntries)
	}
	err = c.takeLocked(to)
	if arm && (to.any() || err != nil) {
		c.view.cqWait.Store(awake)
	}
	if !to.any() {
		return false, err
	}
	c.view.cqHead.Swap(c.taken)
	return c.asked(waitCompletions), nil
}

// takeLocked copies completions out; an error comes only without any.
//
// +checklocks:c.pollMu
func (c *Client) takeLocked(to *Taking) error {
	if err := c.copyLocked(to); to.any() || err != nil {
		return err
	}
	state := c.view.state.Load()
	if state == 0 {
		return nil
	}
	// What was published before the state is now seen.
	err := c.copyLocked(to)
	if err == nil && uint8(atomic.LoadUint64(c.view.word(c.taken))) != lapOf(c.taken, c.completions) && !to.any() {
		c.pollErr = closingError(state)
		return c.pollErr
	}
	return err
}

// copyLocked copies out what is there.
//
// +checklocks:c.pollMu
func (c *Client) copyLocked(to *Taking) error {
	submitted := c.submitted.Load()
	users := c.users.reader(submitted)
	c.copyOKLocked(to, submitted, &users)
	out, n := to.others(), 0
	for ; n < len(out); n++ {
		word := atomic.LoadUint64(c.view.word(c.taken))
		lap := lapOf(c.taken, c.completions)
		if uint8(word) != lap {
			if uint8(word) != lap-1 {
				c.pollErr = errDriverLap
			}
			break
		}
		if c.taken == submitted {
			if submitted = c.submitted.Load(); c.taken == submitted {
				c.pollErr = errDriverAhead
				break
			}
			users = c.users.reader(submitted)
		}
		if word&(1<<wordNanosShift-1-0xff) == 0 {
			out[n].SetOK(users.of(c.taken), word>>wordNanosShift)
		} else if err := c.loadRecord(word, users.of(c.taken), &out[n]); err != nil {
			c.pollErr = err
			break
		}
		c.taken++
	}
	if to.Other = n; !to.any() { // else the error is for the next call: those before it are good
		return c.pollErr
	}
	return nil
}

// loadRecord reads what a word does not say.
//
// +checklocks:c.pollMu
func (c *Client) loadRecord(word, user uint64, to *Completion) error {
	if word&^0xff != wordRecord {
		return errBadCompletion
	}
	var w [4]uint64
	c.view.loadRecord(c.taken, &w)
	if err := to.setWords(&w); err != nil {
		return err
	}
	to.UserData = user
	return nil
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
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
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
	if c.mem != nil { // else it is a local ring's
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
