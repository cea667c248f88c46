package ring

import (
	"context"
	"sync/atomic"
)

// Taking is room for completions, and what WaitTaking put there: first OK of entries that
// ended ok one after the other, as nothing but their device times, and then Other ones. There
// are no more in all than the longer of the two has room for.
type Taking struct {
	Times  []uint64     // room for device times in nanoseconds, below 1<<48
	Others []Completion // room for what is not, or not known to be, such a one

	User      uint64 // user data of the first of OK; those of the others count up from it
	OK, Other int
}

// any reports whether anything was taken.
func (t *Taking) any() bool { return t.OK+t.Other > 0 }

// others is the room that is left for others.
func (t *Taking) others() []Completion {
	return t.Others[:min(len(t.Others), max(len(t.Times), len(t.Others))-t.OK)]
}

// WaitTaking is Wait for who takes many completions that are ok. to.Others must have room,
// for it is used also for what is ok if the entries do not number themselves by their user
// data, and behind the first that is not ok.
func (c *Client) WaitTaking(ctx context.Context, to *Taking) error {
	if len(to.Others) == 0 {
		return errNoRoom
	}
	return c.wait(ctx, to)
}

// copyOKLocked copies the device times of what is ok out, from c.taken on, up to the first
// completion that is anything else, or that is not there.
//
// +checklocks:c.pollMu
func (c *Client) copyOKLocked(to *Taking, submitted uint64, users *userReader) {
	if to.OK = 0; users.kept != nil || len(to.Times) == 0 {
		return
	}
	to.User = users.of(c.taken)
	for to.OK < len(to.Times) && c.taken != submitted {
		words := c.view.cq[c.taken&uint64(len(c.view.cq)-1):]
		words = words[:min(uint64(len(words)), uint64(len(to.Times)-to.OK), submitted-c.taken)]
		n := okTimes(to.Times[to.OK:], words, lapOf(c.taken, c.completions))
		to.OK += n
		c.taken += uint64(n)
		if n < len(words) {
			return
		}
	}
}

// okTimes copies device times out, up to the first word that does not say ok in this lap, and
// returns how many.
func okTimes(times, words []uint64, lap uint8) int {
	times = times[:len(words)]
	for i := range words {
		word := atomic.LoadUint64(&words[i])
		if uint16(word) != uint16(lap) {
			return i
		}
		times[i] = word >> wordNanosShift
	}
	return len(words)
}
