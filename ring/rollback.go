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
	c.rollbackLocked(mark)
}

// Mark is Client.Mark.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Mark() uint64 { return s.c.pushed }

// Rollback is Client.Rollback.
//
// +checklocksignore: the caller has a lock in place of it.
func (s Submitter) Rollback(mark uint64) { s.c.rollbackLocked(mark) }

// rollbackLocked is Rollback.
//
// +checklocks:c.pushMu
func (c *Client) rollbackLocked(mark uint64) {
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
