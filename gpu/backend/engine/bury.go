package engine

import (
	"context"
	"fmt"

	"capgpu/gpu/backend"
)

// runBury ends a dead engine: it has the process killed, and only then ends jobs, because until
// then the process may write to their memory. The first job that the engine had is the one that
// is thought to have been its end; those behind it had not begun, and the next engine runs
// them. If the engine has lied none of them is believed.
func (b *Backend) runBury(p *proc, why string, lie bool) {
	ctx, stop := context.WithTimeout(context.Background(), killBound)
	defer stop()
	err := p.engine.Kill(ctx)
	if p.file != nil {
		_ = p.file.Close() // it is a duplicate: nothing can be lost
	}
	<-p.read
	<-p.written
	p.sending.Lock()
	for len(p.backlog) > 0 {
		p.dropPostponed()
	}
	p.sending.Unlock()
	if p.stop != nil {
		_ = p.stop.Close()
	}

	b.mu.Lock()
	if err != nil {
		err = fmt.Errorf("an engine could not be killed: %w", err)
		first := b.loseLocked(err)
		p.sent, p.buried = nil, true
		b.dying[p.group]--
		b.settleLocked()
		b.mu.Unlock()
		if first {
			b.tellGone(err)
		}
		return
	}

	had := b.loseLocalLocked(p)
	sent := p.sent
	p.sent = nil
	var ended []backend.Completion
	for i, j := range sent {
		j.proc = nil
		switch {
		case j.scrub != nil:
			b.scrubbedLocked(j, false)
		case i > 0 && !lie:
			if b.jobs[j.id] == j {
				b.requeueLocked(j)
			}
		default:
			c := backend.Completion{ID: j.id, Outcome: deviceError}
			if j.work.Op == backend.OpList {
				c.Begun = 1
			}
			if b.endLocked(j, deviceError, true) {
				ended = append(ended, c)
			}
		}
	}
	for _, c := range ended {
		b.tellLocked(c)
	}
	b.mu.Unlock()
	if had {
		b.tellLost(p.group, why)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	p.buried = true
	if b.dying[p.group]--; b.dying[p.group] == 0 {
		delete(b.dying, p.group)
	}
	b.holdLocked(p.group, -1)
	b.settleLocked()
	b.advanceLocked()
}
