package gpu

// heldOf are what a lost device was given of a session's, see letGo.
func (e *engine) heldOf(s *Session) []pinned {
	e.mu.Lock()
	defer e.mu.Unlock()
	var mine []pinned
	for _, p := range e.held {
		if p.session() == s {
			mine = append(mine, p)
		}
	}
	return mine
}

// session is whose job it was, nil for one that used nothing.
func (p pinned) session() *Session {
	switch {
	case p.program != nil:
		return p.program.session
	case len(p.buffers) > 0:
		return p.buffers[0].session
	}
	return nil
}

// quiesce returns when the device has let go of it.
func (p pinned) quiesce() {
	if p.program != nil {
		p.program.quiesce()
	}
	for _, b := range p.buffers {
		b.quiesce()
	}
}
