package gpu

import "time"

// poller is where a reactor sleeps: until a client rings, until another goroutine wakes
// it, or until a time has passed.
//
// All but wake is the reactor's.
type poller interface {
	// add watches the doorbell of a queue until remove.
	add(q *queue) error
	remove(q *queue)
	// look appends the queues that rang, and does not wait.
	look(rang []*queue) []*queue
	// sleep waits at most d, below 0: as long as it takes, and then looks.
	sleep(d time.Duration, rang []*queue) []*queue
	// wake ends a sleep that goes on, or the next one.
	wake()
	close()
}

// channelPoller is a poller of rings within the process; their doorbells are calls. It
// works on virtual time.
type channelPoller struct {
	mail  *mailbox
	token chan struct{} // capacity 1
}

func newChannelPoller(m *mailbox) *channelPoller {
	return &channelPoller{mail: m, token: make(chan struct{}, 1)}
}

func (p *channelPoller) add(q *queue) error {
	q.ring.OnDoorbell(func() { p.mail.due(q) })
	return nil
}

func (p *channelPoller) remove(q *queue)             { q.ring.OnDoorbell(nil) }
func (p *channelPoller) look(rang []*queue) []*queue { return rang }
func (p *channelPoller) wake()                       { nudge(p.token) }
func (p *channelPoller) close()                      {}

func (p *channelPoller) sleep(d time.Duration, rang []*queue) []*queue {
	if d < 0 {
		<-p.token
		return rang
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.token:
	case <-timer.C:
	}
	return rang
}
