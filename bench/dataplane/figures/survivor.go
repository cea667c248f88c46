package figures

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// survivor is a client that works on a device, and continues with the next driver
// when its driver dies. It checks every completion.
type survivor struct {
	conn *client.Conn
	rng  *rand.Rand

	mu      sync.Mutex
	changed chan struct{}        // guarded by mu; closed, and replaced, by each change
	first   map[uint64]time.Time // guarded by mu; the first right completion of an epoch
	epoch   uint64               // guarded by mu; the last of them
	tally   tally                // guarded by mu
	err     error                // guarded by mu; why it has ended
}

// tally counts how jobs ended.
type tally struct{ right, lost, scrubbed, wrong int }

func (t *tally) add(o tally) {
	t.right, t.lost, t.scrubbed, t.wrong = t.right+o.right, t.lost+o.lost, t.scrubbed+o.scrubbed, t.wrong+o.wrong
}

func (t *tally) jobs() int { return t.right + t.lost + t.scrubbed + t.wrong }

const (
	survivorFloats = 1024
	// survivorJobs are in flight at once, each on buffers of its own.
	survivorJobs = 4
)

func openSurvivor(ctx context.Context, socket string, seed int64) (*survivor, error) {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return &survivor{conn: conn, rng: rand.New(rand.NewPCG(uint64(seed), 8)), changed: make(chan struct{}), first: map[uint64]time.Time{}}, nil
}

// run works until ctx ends, or something is wrong.
func (s *survivor) run(ctx context.Context) {
	for {
		session, err := s.conn.OpenReady(ctx, 0)
		if err == nil {
			err = s.work(ctx, session)
			_ = session.Close(ctx) // it is over, or ctx is
		}
		if ctx.Err() != nil {
			err = nil
		} else if isDeath(err) {
			continue
		}
		s.update(func() { s.err = err })
		return
	}
}

// isDeath reports whether an error is that of a session with a dead driver.
func isDeath(err error) bool {
	return errors.Is(err, gpuerr.Disconnected) || errors.Is(err, gpuerr.DeviceLost)
}

// addition is one job, sum = a + b, with buffers of its own.
type addition struct {
	launch    *client.Launch
	a, b, sum []byte
	want      [survivorFloats]float32 // in memory that nobody scrubs
}

// work adds vectors until the session ends. It returns why.
func (s *survivor) work(ctx context.Context, session *client.Session) error {
	program, err := session.OpenProgram(ctx, kernel)
	if err != nil {
		return err
	}

	queue, err := session.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}

	var buffers []*client.Buffer
	defer func() {
		for _, b := range buffers {
			_ = b.Unmap()
		}
	}()

	var jobs [survivorJobs]*addition
	for i := range jobs {
		// The first one is done before the others are made.
		if jobs[i], err = newAddition(ctx, session, program, &buffers); err != nil {
			return err
		}
		if i == 0 {
			if err := s.round(ctx, session, queue, jobs[:1]); err != nil {
				return err
			}
		}
	}

	for {
		if err := s.round(ctx, session, queue, jobs[:]); err != nil {
			return err
		}
	}
}

func newAddition(ctx context.Context, session *client.Session, program *client.Program, buffers *[]*client.Buffer) (j *addition, err error) {
	j = &addition{launch: &client.Launch{Program: program}}
	for _, mem := range []*[]byte{&j.a, &j.b, &j.sum} {
		b, err := session.CreateBuffer(ctx, 4*survivorFloats, client.Storage)
		if err != nil {
			return j, err
		}
		if *mem, err = b.Map(); err != nil {
			return j, err
		}
		*buffers = append(*buffers, b)
		j.launch.Bindings = append(j.launch.Bindings, client.Binding{Buffer: b})
	}
	return j, nil
}

// round runs all jobs once, and checks each.
func (s *survivor) round(ctx context.Context, session *client.Session, queue *client.Queue, jobs []*addition) error {
	tickets := map[uint64]*addition{}
	for _, j := range jobs {
		for i := range j.want {
			a, b := float32(s.rng.IntN(1<<20)), float32(s.rng.IntN(1<<20)+1)
			binary.LittleEndian.PutUint32(j.a[4*i:], math.Float32bits(a))
			binary.LittleEndian.PutUint32(j.b[4*i:], math.Float32bits(b))
			binary.LittleEndian.PutUint32(j.sum[4*i:], 0xffffffff)
			j.want[i] = a + b
		}
		ticket, err := queue.PushLaunch(j.launch)
		if err == nil {
			err = queue.Flush()
		}
		if err != nil {
			return s.lose(len(tickets), err)
		}
		tickets[ticket] = j
	}

	done := make([]client.Completion, len(jobs))
	for len(tickets) > 0 {
		n, err := queue.Completions(ctx, done)
		for _, c := range done[:n] {
			j := tickets[c.Ticket]
			delete(tickets, c.Ticket)
			if err := s.judge(session, queue, j, c); err != nil {
				return s.lose(len(tickets), err)
			}
		}
		if err != nil {
			return s.lose(len(tickets), err)
		}
	}

	return nil
}

// lose counts jobs without a completion when their session ended.
func (s *survivor) lose(n int, why error) error {
	if isDeath(why) {
		s.update(func() { s.tally.lost += n })
	}
	return why
}

// judge checks whether a completion is true. It returns why to stop.
func (s *survivor) judge(session *client.Session, queue *client.Queue, j *addition, c client.Completion) error {
	switch {
	case j == nil:
		s.update(func() { s.tally.wrong++ })
		return fmt.Errorf("a completion of ticket %d, which is not under way", c.Ticket)
	case c.Outcome.Kind == outcome.DeviceLost:
		s.update(func() { s.tally.lost++ })
		return nil // the session reports it, too
	case c.Outcome.Kind != outcome.OK:
		s.update(func() { s.tally.wrong++ })
		return fmt.Errorf("a job ended %v (%v)", c.Outcome, c.Err)
	}

	at := time.Now()
	if !j.isRight() {
		// The driver may have died after the job, and the memory is scrubbed: then
		// the queue reports it.
		if err := queue.Err(); err != nil && j.isScrubbed() {
			s.update(func() { s.tally.scrubbed++ })
			return err
		}
		s.update(func() { s.tally.wrong++ })
		return errors.New("the sum of a completed launch is wrong")
	}

	s.update(func() {
		s.tally.right++
		if s.epoch != session.Epoch() {
			s.epoch = session.Epoch()
			s.first[s.epoch] = at
		}
	})

	return nil
}

func (j *addition) isRight() bool {
	for i, want := range j.want {
		if binary.LittleEndian.Uint32(j.sum[4*i:]) != math.Float32bits(want) {
			return false
		}
	}
	return true
}

func (j *addition) isScrubbed() bool {
	for _, b := range j.sum {
		if b != 0 {
			return false
		}
	}
	return true
}

func (s *survivor) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns when the first work of that epoch was done and found right.
func (s *survivor) await(epoch uint64, end time.Time) (at time.Time, err error) {
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	for {
		s.mu.Lock()
		at, ok := s.first[epoch]
		now, changed := s.epoch, s.changed
		err := s.err
		s.mu.Unlock()
		switch {
		case ok:
			return at, nil
		case err != nil:
			return at, err
		case now > epoch:
			return at, fmt.Errorf("it is in epoch %d already, and was never in %d", now, epoch)
		}

		select {
		case <-changed:
		case <-timer.C:
			return at, fmt.Errorf("it has done nothing in epoch %d; it is in epoch %d", epoch, now)
		}
	}
}

func (s *survivor) counts() tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tally
}

func (s *survivor) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
