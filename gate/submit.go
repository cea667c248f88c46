package gate

import (
	"context"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/schema"
)

// defaultQueueLocked makes the default queue at its first use.
//
// +checklocks:s.submitMu
func (s *session) defaultQueueLocked(ctx context.Context) (*client.Queue, error) {
	if s.queue != nil {
		return s.queue, nil
	}
	q, err := s.client.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return nil, err
	}
	s.queue = q
	s.g.workers.Go(func() { runDrain(q) })
	return q, nil
}

// runDrain takes the completions of a default queue until its session is over, so
// that the queue never stops for lack of room.
func runDrain(q *client.Queue) {
	var out [64]client.Completion
	for {
		if _, err := q.Completions(context.Background(), out[:]); err != nil {
			return
		}
	}
}

func (s *session) SubmitMemcpy(ctx context.Context, call schema.GpuMemorySession_submitMemcpy) error {
	args := call.Args()
	dst, err := s.buffers.find(args.Dst(), "dst")
	if err != nil {
		return err
	}

	src, err := s.buffers.find(args.Src(), "src")
	if err != nil {
		return err
	}

	cmd, err := newCopy(dst, 0, src, 0, args.Bytes(), "bytes")
	if err != nil {
		return err
	}

	_, err = s.submit(ctx, func(b *batch) error {
		b.commands = append(b.commands, cmd)
		return nil
	})
	return err
}

func (s *session) SubmitFenceWait(ctx context.Context, call schema.GpuMemorySession_submitFenceWait) error {
	orderOnly := call.Args().OrderOnly()
	f, err := s.fences.find(call.Args().Fence(), "fence")
	if err != nil {
		return err
	}
	_, err = s.submit(ctx, func(b *batch) error {
		value := f.lastPromised()
		if value == 0 {
			return gpuerr.New(gpuerr.Invalid, "fence: nothing was promised on fence %d yet", f.id)
		}
		b.commands = append(b.commands, newWait(f.line, value, orderOnly))
		return nil
	})
	return err
}

func (s *session) SubmitFenceSignal(ctx context.Context, call schema.GpuMemorySession_submitFenceSignal) error {
	f, err := s.fences.find(call.Args().Fence(), "fence")
	if err != nil {
		return err
	}

	var value uint64
	_, err = s.submit(ctx, func(b *batch) (err error) {
		value, err = b.signal(f)
		return err
	})
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetValue(value)
	return nil
}

// launch queues a launch, and the signal of the fence if there is one.
func (s *session) launch(ctx context.Context, l *client.Launch, f *fence) error {
	_, err := s.submit(ctx, func(b *batch) error {
		b.commands = append(b.commands, l)
		if f == nil {
			return nil
		}
		_, err := b.signal(f)
		return err
	})
	return err
}

func (s *session) RunProgram(ctx context.Context, call schema.GpuProgramSession_runProgram) error {
	args := call.Args()
	code, err := s.programArgument(ctx, args.Program(), "program")
	if err != nil {
		return err
	}

	f, err := s.fenceArgument(args.Fence(), "fence")
	if err != nil {
		return err
	}

	list, err := args.Bindings()
	if err != nil {
		return badArgument("bindings", err)
	}

	bindings, err := s.readBindings(list)
	if err != nil {
		return err
	}

	inline, err := args.InlineArgs()
	if err != nil {
		return badArgument("inlineArgs", err)
	}

	l := &client.Launch{Program: code, Bindings: bindings, Inline: inline}
	if err := s.checkLaunch(l, "bindings"); err != nil {
		return err
	}

	return s.launch(ctx, l, f)
}

func (s *session) LaunchKernel(ctx context.Context, call schema.GpuSession_launchKernel) error {
	args := call.Args()
	f, err := s.fenceArgument(args.Fence(), "fence")
	if err != nil {
		return err
	}

	ids, err := args.BufferList()
	if err != nil {
		return badArgument("bufferList", err)
	}
	if uint64(ids.Len()) > uint64(s.description.MaxBindings) {
		return gpuerr.New(gpuerr.LaunchLimit, "bufferList: %d buffers; at most %d", ids.Len(), s.description.MaxBindings)
	}

	bindings := make([]client.Binding, ids.Len())
	for i := range bindings {
		b, err := s.buffers.find(ids.At(i), "bufferList")
		if err != nil {
			return err
		}
		bindings[i] = client.Binding{Buffer: b.mem}
	}

	name, err := args.Program()
	if err != nil {
		return badArgument("program", err)
	}

	code, err := s.programNamed(ctx, name)
	if err != nil {
		return err
	}

	l := &client.Launch{
		Program:  code,
		Grid:     client.Dim3{X: args.Grid(), Y: 1, Z: 1},
		Block:    client.Dim3{X: args.Block(), Y: 1, Z: 1},
		Bindings: bindings,
	}

	if err := s.checkLaunch(l, "bufferList"); err != nil {
		return err
	}

	return s.launch(ctx, l, f)
}

func (s *session) Submit(ctx context.Context, call schema.GpuSession_submit) error {
	f, err := s.fenceArgument(call.Args().Fence(), "fence")
	if err != nil {
		return err
	}

	list, err := call.Args().Commands()
	if err != nil {
		return badArgument("commands", err)
	}

	commands, err := s.readCommands(ctx, list, maxCommands)
	if err != nil {
		return err
	}

	ticket, err := s.submit(ctx, func(b *batch) error {
		*b = *commands
		if f == nil {
			return nil
		}
		_, err := b.signal(f)
		return err
	})
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetTicket(ticket)
	return nil
}
