package ring

import (
	"errors"

	"capgpu/gpuerr"
)

// Err says why the driver serves the queue no more, nil while it does: the closing code,
// gpuerr.Disconnected when the driver has died, gpuerr.Closed after Close. Poll tells the
// same once all completions are taken; Err tells it at once.
//
// A driver closes the queues of a session before it scrubs its memory, and nobody scrubs
// what a driver left before that is dead. So what was read from such memory before Err
// was called, and found nothing, had not been scrubbed.
func (c *Client) Err() error {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	if c.closed {
		return errClientClosed
	}
	// In this order: the system call keeps what was read before it from being read after
	// the state.
	gone := c.done.Err()
	if state := c.view.state.Load(); state != 0 {
		return closingError(state)
	}
	if errors.Is(gone, gpuerr.Disconnected) {
		return errDriverGone
	}
	return gone
}
