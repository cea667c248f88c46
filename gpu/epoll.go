package gpu

import (
	"time"

	"capgpu/internal/epoll"
)

// epollPoller is a poller of rings that are shared with other processes: it sleeps on the
// doorbell of every queue at once.
type epollPoller struct {
	set    *epoll.Set
	queues []*queue // by tag; nil: free
	free   []uint32
}

func newEpollPoller() (*epollPoller, error) {
	set, err := epoll.New()
	return &epollPoller{set: set}, err
}

func (p *epollPoller) add(q *queue) error {
	if len(p.free) == 0 {
		p.free = append(p.free, uint32(len(p.queues)))
		p.queues = append(p.queues, nil)
	}
	last := len(p.free) - 1
	tag := p.free[last]
	if err := p.set.Add(q.ring.Doorbell(), tag); err != nil {
		return err
	}
	p.free, p.queues[tag], q.poll.tag = p.free[:last], q, tag
	return nil
}

// remove may find that the doorbell is closed, and so watched no more.
func (p *epollPoller) remove(q *queue) {
	if int(q.poll.tag) >= len(p.queues) || p.queues[q.poll.tag] != q {
		return
	}
	if fd := q.ring.Doorbell(); fd >= 0 {
		p.set.Remove(fd)
	}
	p.queues[q.poll.tag] = nil
	p.free = append(p.free, q.poll.tag)
}

func (p *epollPoller) look(rang []*queue) []*queue { return p.sleep(0, rang) }

func (p *epollPoller) sleep(d time.Duration, rang []*queue) []*queue {
	for _, tag := range p.set.Wait(d) {
		if q := p.queues[tag]; q != nil {
			rang = append(rang, q)
		}
	}
	return rang
}

func (p *epollPoller) wake()  { p.set.Wake() }
func (p *epollPoller) close() { p.set.Close() }
