package gate

import (
	"context"
	"errors"

	"capgpu/client"
	"capgpu/gate/encode"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// maxCompletions is the most that one call returns.
const maxCompletions = 64

// queue implements GpuQueue.
type queue struct {
	object
	ring *client.Queue
	// collecting is held by the one call of completions that is waiting.
	collecting chan struct{}
}

func (s *session) CreateQueue(ctx context.Context, call schema.GpuSession_createQueue) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	ring, err := s.client.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return err
	}
	q := &queue{object: s.newObject("queue", ring), ring: ring, collecting: make(chan struct{}, 1)}
	return res.SetQueue(schema.GpuQueue(s.export(rpcguard.Spec{
		Name: "GpuQueue", Gate: q.gate, Impl: q, Ends: "close",
		Methods: schema.GpuQueue_Methods(nil, q), Shutdown: q.shutdown,
	})))
}

func (q *queue) Submit(ctx context.Context, call schema.GpuQueue_submit) error {
	list, err := call.Args().Commands()
	if err != nil {
		return badArgument("commands", err)
	}

	b, err := q.s.readCommands(ctx, list, maxCommands)
	if err != nil {
		return err
	}

	crashpoint.Here("gate.submit.read")
	q.s.submitMu.Lock()
	first, err := b.submit(q.ring)
	q.s.submitMu.Unlock()
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	crashpoint.Here("gate.submit.queued")
	res.SetFirstTicket(first)
	return nil
}

func (q *queue) Completions(ctx context.Context, call schema.GpuQueue_completions) error {
	rpcguard.Go(ctx, call.Call)
	most := call.Args().Max()
	if most == 0 {
		return gpuerr.New(gpuerr.Invalid, "max: 0")
	}

	waiting, cancel := context.WithTimeout(ctx, encode.Duration(call.Args().TimeoutNanos()))
	defer cancel()
	var taken [maxCompletions]client.Completion
	n, err := q.collect(waiting, taken[:min(most, maxCompletions)])
	if err != nil && !(errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil) {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	crashpoint.Here("gate.completions.taken")
	list, err := res.NewCompletions(int32(n))
	if err != nil {
		return err
	}

	for i, c := range taken[:n] {
		out := list.At(i)
		out.SetTicket(c.Ticket)
		out.SetDeviceNanos(uint64(c.DeviceTime))
		out.SetEndedAtNanos(uint64(c.EndedAt))
		if err := putOutcome(out.NewOutcome, c.Outcome, c.Err); err != nil {
			return err
		}
	}

	return nil
}

// collect waits for its turn and for completions.
func (q *queue) collect(ctx context.Context, out []client.Completion) (int, error) {
	select {
	case q.collecting <- struct{}{}:
		defer func() { <-q.collecting }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return q.ring.Completions(ctx, out)
}

func (q *queue) Cancel(ctx context.Context, _ schema.GpuQueue_cancel) error {
	return q.ring.Cancel(ctx)
}

func (q *queue) Close(ctx context.Context, _ schema.GpuQueue_close) error { return q.close(ctx) }
