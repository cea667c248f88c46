package ring

// Mark is a point in what was pushed, for Rollback.
func (c *Client) Mark() uint64 {
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	return c.pushed
}

// Rollback forgets what was pushed since mark, so that a batch can be all or
// nothing. What was flushed stays.
func (c *Client) Rollback(mark uint64) {
	c.pushMu.Lock()
	defer c.pushMu.Unlock()
	mark = max(mark, c.submitted.Load())
	if c.pushErr != nil || mark >= c.pushed {
		return
	}
	c.pushed = mark
	c.keeper.rollback(mark)
	if mark == c.seenHead {
		// All before the mark is taken: its arena bytes are free as well.
		c.arena.reset(mark)
		return
	}
	c.arena.rollback(mark - 1)
}
