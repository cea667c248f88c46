package gpu

import (
	"capgpu/gpu/handles"
	"capgpu/gpu/snapshot"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// The queues of another driver's state (restore.go): last, for they use all the rest.

func (im *restorer) rings(s *Session, si *SessionSnapshot) error {
	for i := range si.Queues {
		if err := im.queue(s, &si.Queues[i]); err != nil {
			return err
		}
	}
	return nil
}

// queue makes a queue that stands where the other stood, and does not go yet.
func (im *restorer) queue(s *Session, qi *QueueSnapshot) (err error) {
	if len(im.fds) < 3 {
		return snapshot.Malformed("a queue has no descriptors")
	}
	mem, work, done := im.fds[0], im.fds[1], im.fds[2]
	im.fds = im.fds[3:]
	r, err := ring.Restore(qi.Ring, mem, work, done)
	if err != nil {
		return err
	}
	entries := qi.Ring.Entries
	q := newQueue(s, entries, qi.Ring.ArgBytes)
	q.h, q.ring = qi.Handle, r
	q.outlet.group, q.poll.deaf = qi.Group, qi.Deaf
	q.intake.skipping, q.intake.discard, q.intake.doomed = qi.Skipping, qi.Discard, qi.Doomed
	im.queues = append(im.queues, q)
	if !qi.Group.Valid() || qi.Group.Kind == outcome.Pending || qi.Discard < 0 || qi.Doomed > qi.Ring.Taken+uint64(entries) || qi.Ring.Taken-qi.Ring.Completed != qi.uncompleted() {
		return snapshot.Malformed("queue %#x does not agree with itself", uint64(qi.Handle))
	}
	if q.charges[0], err = s.charged(ledger.QueueSlots, uint64(max(entries, minQueueCharge))); err != nil {
		return err
	}
	if q.charges[2], err = s.charged(ledger.Descriptors, queueDescriptors); err != nil {
		return err
	}
	if q.charges[1], err = s.charged(ledger.HostMemory, q.hostBytes(entries)); err != nil {
		return err
	}
	q.lease, q.meter = s.account.Lease(ledger.InFlight), s.account.Meter(ledger.DeviceTime)
	left := make([]ring.Taken, len(qi.Left))
	for i, t := range qi.Left {
		left[i] = ring.Taken{Args: t.Args, Code: t.Code}
		left[i].SetWords(&t.Words)
	}
	if q.intake.batch, err = ring.RestoreBatch(q.mostArgs, left); err != nil {
		return err
	}
	if q.node, err = s.node.NewChild("queue", revoke.Ops{Urgent: true, Quiesce: q.quiesce, Release: q.release}); err != nil {
		return err
	}
	reactor := s.dev.reactor
	if reactor.mail.call(func() { err = reactor.join(q) }); err != nil {
		return err
	}
	q.joined = true
	if qi.Wait != nil {
		if err := q.restoreWait(qi.Wait); err != nil {
			return err
		}
	}
	return s.handles.Put(q, q.h)
}

// uncompleted is how many entries were taken and not completed. The next completion is that
// of the first of them.
func (qi *QueueSnapshot) uncompleted() uint64 {
	n := uint64(len(qi.Left))
	if qi.Wait != nil {
		n++
	}
	return n
}

// restoreWait has the queue wait as it did.
func (q *queue) restoreWait(w *WaitSnapshot) error {
	f, err := handles.Lookup[fence](q.session.handles, w.Fence)
	if err != nil {
		return snapshot.Malformed("queue %#x waits for a fence that is not there", uint64(q.h))
	}
	if err := q.lease.Take(1); err != nil {
		return err
	}
	reactor := q.session.dev.reactor
	reactor.mail.call(func() {
		j := q.nextJob(&ring.Taken{Entry: ring.Entry{Op: ring.OpWait, UserData: w.UserData}})
		j.charged, j.fence, j.value, j.orderOnly = true, f, w.Value, w.OrderOnly
		q.waitFor(j)
	})
	return nil
}
