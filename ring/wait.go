package ring

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
)

// Wait is Poll that waits until there is at least one completion or an error. It
// looks for a moment, if that was worth it lately, and then sleeps. It returns ctx's
// error when ctx ends first, and gpuerr.Disconnected when the driver has died.
func (c *Client) Wait(ctx context.Context, out []Completion) (int, error) {
	if len(out) == 0 {
		return 0, errNoRoom
	}
	for {
		if n, err := c.spin(ctx, out); n > 0 || err != nil {
			return n, err
		}
		n, wake, err := c.poll(out, true)
		if wake {
			c.signal()
		}
		if n > 0 || err != nil {
			return n, err
		}

		began := time.Now()
		if slept := c.done.Wait(ctx); slept != nil {
			n, wake, err := c.awoken(out)
			if wake {
				c.signal()
			}
			if n > 0 || err != nil {
				return n, err
			}
			if errors.Is(slept, gpuerr.Disconnected) {
				return 0, errDriverGone
			}
			return 0, slept
		}
		c.slept(time.Since(began))
	}
}

var errNoRoom = gpuerr.New(gpuerr.Invalid, "out: no room for a completion")

// awoken looks a last time after a wait that failed, and takes the flag away.
func (c *Client) awoken(out []Completion) (n int, wake bool, err error) {
	n, wake, err = c.poll(out, true)
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	if !c.closed {
		c.view.cqWait.Store(awake)
	}
	return n, wake, err
}

// spin is Poll that looks again and again, as long as the patience lasts. It gives up
// the lock and the processor now and then, so that Close and other goroutines come to
// their turn.
func (c *Client) spin(ctx context.Context, out []Completion) (int, error) {
	for looked := 0; ; looked += spinSlice {
		n, wake, again, err := c.look(out, looked)
		if wake {
			c.signal()
		}
		if !again {
			return n, err
		}
		if looked%spinYield == spinYield-spinSlice {
			runtime.Gosched()
		}
		if ended := ctx.Err(); ended != nil {
			return 0, nil // the sleep says so
		}
	}
}

const (
	// spinSlice is how many looks Close and a context's end may have to wait for.
	spinSlice = 64
	// spinYield is after how many looks others run: some microseconds.
	spinYield = 4 * spinSlice
)

// look is poll after a slice of looks, or sooner when there is something to take: a
// completion, an end, a lie. again says that there was nothing and that the patience is
// not at its end, after so many looks before.
func (c *Client) look(out []Completion, looked int) (n int, wake, again bool, err error) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	if c.pollErr != nil {
		return 0, false, false, c.pollErr
	}
	word, before := c.nextLocked(), lapOf(c.taken, c.completions)-1
	most := -1
	for i := 0; ; i++ {
		if lapIn(atomic.LoadUint64(word)) != before || c.view.state.Load() != 0 {
			if looked+i > 0 {
				c.patience.lookedFor(true)
			}
			n, wake, err = c.pollLocked(out, false)
			return n, wake, false, err
		}
		if i == 0 { // one that finds something at once has not asked
			most = min(c.patience.looks()-looked, spinSlice)
		}
		if i >= most {
			break
		}
		pause()
	}
	if most >= 0 && most < spinSlice && looked+most > 0 {
		c.patience.lookedFor(false)
	}
	return 0, false, most == spinSlice, nil
}

// slept notes how long a sleep was that a completion, or a wake for nothing, ended.
func (c *Client) slept(d time.Duration) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	c.sleeps++
	c.patience.slept(d)
}

// Wakes is how often this side has woken the driver so far, which is a system call each,
// and how often a Wait of it slept until it was woken.
func (c *Client) Wakes() (sent, slept uint64) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	return c.rung.Load(), c.sleeps
}

// How long a Wait looks before it sleeps. To sleep and to be woken costs both sides
// together about usualSpin.
const (
	usualSpin = 50 * time.Microsecond
	longSpin  = 200 * time.Microsecond
)

// patience decides how long a wait looks before it sleeps. Looking that found nothing
// was in vain, and worse where the driver waited for this very processor: the next
// waits sleep at once, twice as many each time. Sleeps that were long do not count,
// because looking would not have shortened them either; after one that was too long for
// the usual look, but not for a long one, the next look is long. So nobody has to know how many
// processors there are, nor which side runs on which: a program may be kept on one, and the driver
// on another.
type patience struct {
	found  uint8 // looks that found something, since one was in vain; up to manyFound
	vain   uint8 // how many waits sleep at once after the next look in vain; 0: one
	asleep uint8 // of those, how many are left
	far    bool  // the last sleep says that the next look is to be long
	sleepy bool  // never looks: see NewOver
}

const (
	manyFound = 8  // after so many a wait looks for longSpin
	mostVain  = 64 // bounds patience.vain
)

// looks is how often the next wait looks before it sleeps.
func (p *patience) looks() int {
	switch {
	case p.asleep > 0 || p.sleepy:
		return 0
	case p.found < manyFound && !p.far:
		return spinsFor(usualSpin)
	}
	return spinsFor(longSpin)
}

// lookedFor notes how looking ended.
func (p *patience) lookedFor(found bool) {
	if found {
		p.found, p.vain = min(p.found+1, manyFound), 0
		return
	}
	p.vain = min(max(2*p.vain, 1), mostVain)
	p.found, p.asleep, p.far = 0, p.vain, false
}

// slept notes a wait that ended asleep.
func (p *patience) slept(d time.Duration) {
	if d >= longSpin {
		return
	}
	p.far = d > usualSpin
	if p.asleep > 0 {
		p.asleep--
	}
}
