package conformance

import (
	"context"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/schema"
)

type rpcQueue struct{ q schema.GpuQueue }

func (x rpcQueue) Submit(ctx context.Context, commands ...Command) (uint64, error) {
	f, release := x.q.Submit(ctx, func(p schema.GpuQueue_submit_Params) error {
		list, err := p.NewCommands(int32(len(commands)))
		if err != nil {
			return err
		}
		for i, c := range commands {
			if err := putCommand(list.At(i), c); err != nil {
				return err
			}
		}
		return nil
	})
	return result(f, release, func(r schema.GpuQueue_submit_Results) (uint64, error) { return r.FirstTicket(), nil })
}

func putCommand(out schema.Command, c Command) error {
	id := func(b Buffer) uint32 {
		if b == nil {
			return 0
		}
		return uint32(b.ID())
	}

	out.SetDeadlineNanos(uint64(c.Deadline))
	switch c.Op {
	case Launch:
		out.SetLaunch()
		l := out.Launch()
		l.SetGridX(c.Grid.X)
		l.SetGridY(c.Grid.Y)
		l.SetGridZ(c.Grid.Z)
		l.SetBlockX(uint16(c.Block.X))
		l.SetBlockY(uint16(c.Block.Y))
		l.SetBlockZ(uint16(c.Block.Z))
		l.SetSharedBytes(c.SharedBytes)
		list, err := l.NewBindings(int32(len(c.Bindings)))
		if err != nil {
			return err
		}
		for i, b := range c.Bindings {
			list.At(i).SetBuffer(id(b.Buffer))
			list.At(i).SetOffset(b.Off)
			list.At(i).SetLength(b.Len)
		}
		if err := l.SetInlineArgs(c.Inline); err != nil {
			return err
		}
		if p, ok := c.Program.(*rpcProgram); ok {
			return l.SetProgram(p.p.AddRef())
		}
		return nil

	case Copy:
		out.SetCopy()
		o := out.Copy()
		o.SetDst(id(c.Dst))
		o.SetDstOffset(c.DstOff)
		o.SetSrc(id(c.Src))
		o.SetSrcOffset(c.SrcOff)
		o.SetLength(c.Bytes)

	case Fill:
		out.SetFill()
		o := out.Fill()
		o.SetBuffer(id(c.Dst))
		o.SetFillOffset(c.DstOff)
		o.SetFillLength(c.Bytes)
		o.SetPattern(c.Pattern)

	case Signal:
		out.SetSignal()
		out.Signal().SetFence(uint32(c.Fence.ID()))
		out.Signal().SetValue(c.Value)

	case Wait:
		out.SetWait()
		out.Wait().SetWaitFence(uint32(c.Fence.ID()))
		out.Wait().SetWaitValue(c.Value)
		out.Wait().SetOrderOnly(c.OrderOnly)
	}

	return nil
}

func (x rpcQueue) Completions(ctx context.Context, most int, timeout time.Duration) ([]client.Completion, error) {
	f, release := x.q.Completions(ctx, func(p schema.GpuQueue_completions_Params) error {
		p.SetMax(uint32(most))
		p.SetTimeoutNanos(uint64(timeout))
		return nil
	})
	return result(f, release, func(r schema.GpuQueue_completions_Results) ([]client.Completion, error) {
		list, err := r.Completions()
		if err != nil {
			return nil, err
		}

		all := make([]client.Completion, list.Len())
		for i := range all {
			o, err := list.At(i).Outcome()
			if err != nil {
				return nil, err
			}
			message, err := o.Message_()
			if err != nil {
				return nil, err
			}
			all[i] = client.Completion{Ticket: list.At(i).Ticket(), Outcome: outcomeOf(o), DeviceTime: time.Duration(list.At(i).DeviceNanos()), EndedAt: time.Duration(list.At(i).EndedAtNanos())}
			all[i].Err = refusalOf(message)
		}

		return all, nil
	})
}

// refusalOf is the error in the message of an outcome: a message that begins with a
// code.
func refusalOf(message string) error {
	for _, code := range gpuerr.Codes() {
		if rest, ok := strings.CutPrefix(message, code.String()); ok {
			return gpuerr.New(code, "%s", strings.TrimLeft(rest, ": "))
		}
	}
	return nil
}

func (x rpcQueue) Cancel(ctx context.Context) error { return done(x.q.Cancel(ctx, nil)) }

func (x rpcQueue) Close(ctx context.Context) error { return done(x.q.Close(ctx, nil)) }

func (x rpcQueue) Release() { x.q.Release() }

// outcomeOf reads an outcome. The numbers are the same in every protocol.
func outcomeOf(o schema.Outcome) outcome.Outcome {
	end := outcome.Outcome{Kind: outcome.Kind(o.Kind()), Cause: outcome.Cause(o.Cause())}
	if t, err := o.Trap(); err == nil && end.Cause == outcome.TrapCause {
		end.Trap = outcome.Trap{Kind: outcome.TrapKind(t.Kind()), Binding: uint16(t.Binding()), Offset: t.Offset(), Workgroup: t.Workgroup(), Lane: t.Lane()}
	}
	return end
}
