package neighbour

import (
	"context"
	"errors"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
)

// behave does the same as Victim, one after the other.
func (n *neighbour) behave(ctx context.Context, s *client.Session, begun func()) error {
	w, err := NewWork(ctx, s)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := w.Do(ctx); err != nil {
			return err
		}
		n.report.Done++
		begun()
	}
	return nil
}

// endlessDeadline is below the policy's. A client that sets the deadline itself and
// misses it gets no strike, and so is never banned.
const endlessDeadline = time.Second

// endless launches endless work, again and again.
func (n *neighbour) endless(ctx context.Context, s *client.Session, begun func()) error {
	spin, err := s.OpenProgram(ctx, "spin")
	if err != nil {
		return err
	}

	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}

	for ctx.Err() == nil {
		if _, err := q.Submit(&client.Launch{Program: spin, Grid: one, Block: spin.Info().Block, Deadline: endlessDeadline}); err != nil {
			return err
		}

		begun()
		var done [1]client.Completion
		if _, err := q.Completions(ctx, done[:]); err != nil {
			return err
		}

		if done[0].Err != nil {
			n.refused(done[0].Err)
			if errors.Is(done[0].Err, gpuerr.Banned) {
				return done[0].Err
			}
			continue
		}

		n.refused(&client.OutcomeError{Outcome: done[0].Outcome})
	}

	return nil
}

var one = client.Dim3{X: 1, Y: 1, Z: 1}

// The bounds of a flood.
const (
	floodQueues  = 4
	floodEntries = 1024
	floodBytes   = 4096
)

// flood keeps several queues full of the shortest work there is.
func (n *neighbour) flood(ctx context.Context, s *client.Session, begun func()) error {
	b, err := s.CreateBuffer(ctx, floodBytes, client.Storage)
	if err != nil {
		return err
	}

	var queues [floodQueues]*client.Queue
	for i := range queues {
		if queues[i], err = s.CreateQueue(ctx, client.QueueOptions{Entries: floodEntries}); err != nil {
			return err
		}
	}

	least := &client.Fill{Buffer: b, Bytes: 4}
	var done [floodEntries]client.Completion
	for ctx.Err() == nil {
		for _, q := range queues {
			pushed := 0
			for ; pushed < floodEntries; pushed++ {
				if _, err := q.PushFill(least); err != nil {
					break // it is full
				}
			}
			if err := q.Flush(); err != nil {
				return err
			}
		}

		begun()
		for _, q := range queues {
			got, err := q.Completions(ctx, done[:])
			if err != nil {
				return err
			}
			n.report.Done += got
		}
	}

	return nil
}

// exhaust requests memory until there is none, gives one piece back and continues.
func (n *neighbour) exhaust(ctx context.Context, s *client.Session, begun func()) error {
	var held []*client.Buffer
	for ctx.Err() == nil {
		b, err := s.CreateBuffer(ctx, quotaBytes, client.Storage)
		switch {
		case err == nil:
			held = append(held, b)
			n.report.Done++
		case errors.Is(err, gpuerr.Quota) && len(held) > 0:
			n.refused(err)
			if err := held[0].Close(ctx); err != nil {
				return err
			}
			held = held[1:]
		default:
			return err
		}
		begun()
	}

	return nil
}

const (
	quotaBytes = 4 << 20
	// fillBuffers of fillBytes are in a session when it is closed.
	fillBuffers = 8
	fillBytes   = 8 << 20
)

// fill takes memory and touches all of it; its caller closes the session with all
// of it.
func (n *neighbour) fill(ctx context.Context, s *client.Session, begun func()) error {
	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}

	for range fillBuffers {
		b, err := s.CreateBuffer(ctx, fillBytes, client.Storage)
		if err != nil {
			return err
		}

		mem, err := b.Map()
		if err != nil {
			return err
		}

		for i := 0; i < len(mem) && ctx.Err() == nil; i += 4096 {
			mem[i] = 1
		}

		if err := b.Unmap(); err != nil {
			return err
		}
		if _, err := q.Submit(&client.Fill{Buffer: b, Bytes: fillBytes}); err != nil {
			return err
		}

		begun()
	}

	n.report.Done++
	return nil
}
