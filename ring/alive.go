package ring

import (
	"errors"

	"capgpu/gpuerr"
)

// Err says why the driver serves the queue no more, nil while it does: the closing code,
// gpuerr.Disconnected when the driver has died, gpuerr.Closed after Close. Poll tells the
// same once all completions are taken; Err tells it at once.
//
// A driver closes the queues of a session before it scrubs its memory, and memory that a
// driver left is scrubbed when that is dead: its descriptors are closed then. So data that was
// read from such memory before Err was called, and found nothing, had not been scrubbed. It says
// nothing of a driver that was killed and does not come to an end: its device is given up
// and its memory taken back (package manager), and its queues look as before.
func (c *Client) Err() error {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	if c.closed {
		return errClientClosed
	}
	// A read of the memory that came before this stays before it: the lock is an atomic exchange, and the
	// load of the state is sequentially consistent.
	gone := c.done.Err()
	if state := c.view.state.Load(); state != 0 {
		return closingError(state)
	}
	if errors.Is(gone, gpuerr.Disconnected) {
		return errDriverGone
	}
	return gone
}
