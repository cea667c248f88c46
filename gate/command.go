package gate

import (
	"context"

	"capgpu/client"
	"capgpu/gate/encode"
	"capgpu/gpuerr"
	"capgpu/schema"
)

// maxCommands is the capacity of one submission: that of an empty queue, minus the
// signal that follows.
const maxCommands = client.DefaultQueueEntries - 1

// promised is a signal in a batch that is still being read.
type promised struct {
	fence *fence
	value uint64
	field string
}

// batch is a checked list of commands, with its promises.
type batch struct {
	commands []client.Command
	promises []promised
}

// submit queues the batch and makes its promises. The caller holds submitMu.
func (b *batch) submit(q *client.Queue) (first uint64, err error) {
	last := make(map[*fence]uint64, len(b.promises))
	for _, p := range b.promises {
		before, seen := last[p.fence]
		if !seen {
			before = p.fence.lastPromised()
		}
		if p.value <= before {
			return 0, gpuerr.New(gpuerr.Invalid, "%s: %d does not exceed %d, which is promised already", p.field, p.value, before)
		}
		last[p.fence] = p.value
	}

	first, err = q.Submit(b.commands...)
	if err != nil {
		return 0, err
	}

	for f, value := range last {
		f.mu.Lock()
		f.promised = value
		f.mu.Unlock()
	}

	return first, nil
}

// signal appends the signal of a fence to its next value.
func (b *batch) signal(f *fence) (uint64, error) {
	next := f.lastPromised()
	for _, p := range b.promises {
		if p.fence == f {
			next = p.value
		}
	}
	if next++; next == 0 {
		return 0, gpuerr.New(gpuerr.Invalid, "fence: its timeline is at its end; create another")
	}
	b.promises = append(b.promises, promised{f, next, "fence"})
	b.commands = append(b.commands, &client.Signal{Fence: f.line, Value: next})
	return next, nil
}

// readCommands checks a list of commands, of a bounded length, against the session.
func (s *session) readCommands(ctx context.Context, list schema.Command_List, most int) (*batch, error) {
	if list.Len() == 0 || list.Len() > most {
		return nil, gpuerr.New(gpuerr.Invalid, "commands: %d commands; from 1 to %d", list.Len(), most)
	}
	b := &batch{commands: make([]client.Command, 0, list.Len()+1)}
	for i := range list.Len() {
		if err := s.readCommand(ctx, b, list.At(i)); err != nil {
			e := *gpuerr.From(err)
			e.Msg = gpuerr.New(e.Code, "commands[%d].%s", i, e.Msg).Msg
			return nil, &e
		}
	}
	return b, nil
}

func (s *session) readCommand(ctx context.Context, b *batch, in schema.Command) error {
	deadline := encode.Duration(in.DeadlineNanos())
	switch in.Which() {
	case schema.Command_Which_launch:
		launch, err := s.readLaunch(ctx, in.Launch())
		if err != nil {
			return err
		}
		launch.Deadline = deadline
		b.commands = append(b.commands, launch)

	case schema.Command_Which_copy:
		c := in.Copy()
		dst, err := s.buffers.find(c.Dst(), "dst")
		if err != nil {
			return err
		}
		src, err := s.buffers.find(c.Src(), "src")
		if err != nil {
			return err
		}
		cmd, err := newCopy(dst, c.DstOffset(), src, c.SrcOffset(), c.Length(), "length")
		if err != nil {
			return err
		}
		cmd.Deadline = deadline
		b.commands = append(b.commands, cmd)

	case schema.Command_Which_fill:
		f := in.Fill()
		buf, err := s.buffers.find(f.Buffer(), "buffer")
		if err != nil {
			return err
		}
		if err := checkFill(buf, f.FillOffset(), f.FillLength()); err != nil {
			return err
		}
		b.commands = append(b.commands, &client.Fill{Buffer: buf.mem, Off: f.FillOffset(), Bytes: f.FillLength(), Pattern: f.Pattern(), Deadline: deadline})

	case schema.Command_Which_signal:
		f, err := s.fences.find(in.Signal().Fence(), "fence")
		if err != nil {
			return err
		}
		value := in.Signal().Value()
		b.promises = append(b.promises, promised{f, value, "commands.signal.value"})
		b.commands = append(b.commands, &client.Signal{Fence: f.line, Value: value})

	case schema.Command_Which_wait:
		f, err := s.fences.find(in.Wait().WaitFence(), "waitFence")
		if err != nil {
			return err
		}
		b.commands = append(b.commands, newWait(f.line, in.Wait().WaitValue(), in.Wait().OrderOnly()))

	case schema.Command_Which_replay:
		replay, err := s.readReplay(in.Replay())
		if err != nil {
			return err
		}
		replay.Deadline = deadline
		b.commands = append(b.commands, replay)

	default:
		return gpuerr.New(gpuerr.Invalid, "which: command %d is unknown", in.Which())
	}

	return nil
}

// newWait is a wait for a point, or only for its order.
func newWait(f *client.Fence, value uint64, orderOnly bool) client.Command {
	if orderOnly {
		return &client.WaitOrder{Fence: f, Value: value}
	}
	return &client.Wait{Fence: f, Value: value}
}

func newCopy(dst *buffer, dstOff uint64, src *buffer, srcOff, bytes uint64, field string) (*client.Copy, error) {
	if bytes == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "%s: 0", field)
	}
	if err := dst.checkRange(dstOff, bytes, "dstOffset", field); err != nil {
		return nil, err
	}
	if err := src.checkRange(srcOff, bytes, "srcOffset", field); err != nil {
		return nil, err
	}
	return &client.Copy{Dst: dst.mem, DstOff: dstOff, Src: src.mem, SrcOff: srcOff, Bytes: bytes}, nil
}

func checkFill(b *buffer, off, length uint64) error {
	if off%4 != 0 || length%4 != 0 || length == 0 {
		return gpuerr.New(gpuerr.Invalid, "fillLength: %d bytes at %d are not a range of whole 32-bit words", length, off)
	}
	return b.checkRange(off, length, "fillOffset", "fillLength")
}

func (s *session) readLaunch(ctx context.Context, in schema.Command_launch) (*client.Launch, error) {
	code, err := s.programArgument(ctx, in.Program(), "program")
	if err != nil {
		return nil, err
	}

	list, err := in.Bindings()
	if err != nil {
		return nil, badArgument("bindings", err)
	}

	bindings, err := s.readBindings(list)
	if err != nil {
		return nil, err
	}

	inline, err := in.InlineArgs()
	if err != nil {
		return nil, badArgument("inlineArgs", err)
	}

	l := &client.Launch{
		Program:     code,
		Grid:        client.Dim3{X: in.GridX(), Y: in.GridY(), Z: in.GridZ()},
		Block:       client.Dim3{X: uint32(in.BlockX()), Y: uint32(in.BlockY()), Z: uint32(in.BlockZ())},
		SharedBytes: in.SharedBytes(),
		Bindings:    bindings,
		Inline:      inline,
	}

	none := l.Block == (client.Dim3{}) && l.Grid != (client.Dim3{})
	if info := code.Info(); none || !info.BlockFree && l.Block == (client.Dim3{X: 1, Y: 1, Z: 1}) {
		l.Block = info.Block // a client that names no block sends 1×1×1
	}

	return l, s.checkLaunch(l, "bindings")
}

func (s *session) readBindings(list schema.Binding_List) ([]client.Binding, error) {
	if uint64(list.Len()) > uint64(s.description.MaxBindings) {
		return nil, gpuerr.New(gpuerr.LaunchLimit, "bindings: %d; at most %d", list.Len(), s.description.MaxBindings)
	}

	bindings := make([]client.Binding, list.Len())
	for i := range bindings {
		in := list.At(i)
		b, err := s.buffers.find(in.Buffer(), "bindings.buffer")
		if err != nil {
			return nil, err
		}
		if err := b.checkRange(in.Offset(), in.Length(), "bindings.offset", "bindings.length"); err != nil {
			return nil, err
		}
		if in.Length() == 0 && in.Offset() == b.mem.Size() {
			return nil, gpuerr.New(gpuerr.Invalid, "bindings.offset: %d is the end of the buffer", in.Offset())
		}
		bindings[i] = client.Binding{Buffer: b.mem, Off: in.Offset(), Len: in.Length()}
	}

	return bindings, nil
}

// checkLaunch refuses a launch that the device would refuse: with an error of this
// call instead of a later outcome. bindingsField is the name of the argument with
// the buffers.
func (s *session) checkLaunch(l *client.Launch, bindingsField string) error {
	info, d := l.Program.Info(), &s.description
	if len(l.Bindings) != len(info.Bindings) {
		return gpuerr.New(gpuerr.Invalid, "%s: %d buffers, but %s has %d bindings", bindingsField, len(l.Bindings), info.Name, len(info.Bindings))
	}
	if uint32(len(l.Inline)) != info.InlineBytes {
		return gpuerr.New(gpuerr.Invalid, "inlineArgs: %d bytes, but %s takes %d", len(l.Inline), info.Name, info.InlineBytes)
	}
	if total := uint64(l.SharedBytes) + uint64(info.SharedBytes); total > uint64(d.MaxSharedBytes) {
		return gpuerr.New(gpuerr.LaunchLimit, "sharedBytes: %d, with the %d of %s itself; at most %d in all (P-GPU-5003)", l.SharedBytes, info.SharedBytes, info.Name, d.MaxSharedBytes)
	}

	if each := info.DynamicElementBytes; each == 0 && l.SharedBytes != 0 {
		return gpuerr.New(gpuerr.Invalid, "sharedBytes: %d, but %s takes no dynamic shared memory", l.SharedBytes, info.Name)
	} else if each != 0 && l.SharedBytes%each != 0 {
		return gpuerr.New(gpuerr.Invalid, "sharedBytes: %d are not whole elements of %d bytes", l.SharedBytes, each)
	}

	if l.Grid == (client.Dim3{}) && l.Block == (client.Dim3{}) {
		return nil
	}
	if err := checkDim("grid", l.Grid, d.MaxGridDim); err != nil {
		return err
	}
	if err := checkDim("block", l.Block, d.MaxBlockDim); err != nil {
		return err
	}

	threads := uint64(l.Block.X) * uint64(l.Block.Y) * uint64(l.Block.Z)
	if threads > uint64(d.MaxThreadsPerBlock) {
		return gpuerr.New(gpuerr.LaunchLimit, "block: %d threads; at most %d (P-GPU-5003)", threads, d.MaxThreadsPerBlock)
	}
	if !info.BlockFree && l.Block != info.Block {
		return gpuerr.New(gpuerr.LaunchLimit, "block: %d×%d×%d, but %s is made for %d×%d×%d (P-GPU-5003)", l.Block.X, l.Block.Y, l.Block.Z, info.Name, info.Block.X, info.Block.Y, info.Block.Z)
	}

	return nil
}

func checkDim(field string, v client.Dim3, limit uint32) error {
	if v.X == 0 || v.Y == 0 || v.Z == 0 {
		return gpuerr.New(gpuerr.Invalid, "%s: %d×%d×%d has a zero", field, v.X, v.Y, v.Z)
	}
	if most := max(v.X, v.Y, v.Z); most > limit {
		return gpuerr.New(gpuerr.LaunchLimit, "%s: %d in one dimension; at most %d (P-GPU-5003)", field, most, limit)
	}
	return nil
}

// submit puts a batch on the default queue.
func (s *session) submit(ctx context.Context, build func(*batch) error) (first uint64, err error) {
	s.submitMu.Lock()
	defer s.submitMu.Unlock()
	q, err := s.defaultQueueLocked(ctx)
	if err != nil {
		return 0, err
	}
	b := &batch{}
	if err := build(b); err != nil {
		return 0, err
	}
	return b.submit(q)
}
