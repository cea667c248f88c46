package client

import (
	"context"
	"math"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// List is commands that the driver has checked once and runs as one: a Replay of it
// costs one entry of a queue, and ends with one completion. It is what a program does
// that submits the same hundred launches again and again.
//
// It keeps nothing alive: once a buffer or a program that is in it is closed, its
// replays are refused as stale.
type List struct {
	s        *Session
	handle   uint64
	commands int
}

// MaxListCommands is how many commands a list has at most.
const MaxListCommands = 1024

// maxListArgBytes bounds the arguments of all launches of a list.
const maxListArgBytes = 64 << 10

// RecordList makes a list of launches, copies and fills, in the order in which they
// run. They have no deadlines of their own, as a Replay has one. An error of one
// of them is told with its number.
func (s *Session) RecordList(ctx context.Context, commands ...Command) (*List, error) {
	if len(commands) == 0 || len(commands) > MaxListCommands {
		return nil, gpuerr.New(gpuerr.Invalid, "commands: a list has 1 to %d, not %d", MaxListCommands, len(commands))
	}
	var r recording
	for i, c := range commands {
		if err := r.add(s, c); err != nil {
			e := *gpuerr.From(err)
			e.Msg = gpuerr.New(e.Code, "command %d: %s", i, e.Msg).Msg
			return nil, &e
		}
	}
	bytes := append(r.entries, r.args...)
	b, err := s.CreateBuffer(ctx, uint64(len(bytes)), Upload)
	if err != nil {
		return nil, err
	}
	// Also when ctx has ended: what is left of it then goes with the session.
	defer b.Close(context.WithoutCancel(ctx))
	if _, err := b.WriteAt(bytes, 0); err != nil {
		return nil, err
	}
	req := control.RecordListRequest{Buffer: b.handle, Entries: uint32(len(commands)), ArgBytes: uint32(len(r.args))}
	m, err := s.create(ctx, control.TypeRecordList, control.TypeCloseList, req.AppendTo(nil))
	if err != nil {
		return nil, err
	}
	reply, err := control.ParseHandleBody(m.Body)
	if err != nil {
		return nil, err
	}
	l := &List{s: s, handle: reply.Handle, commands: len(commands)}
	if err := s.adopt(l); err != nil {
		return nil, err
	}
	return l, nil
}

// recording is a list as the driver reads it: entries, and the area of their arguments.
type recording struct{ entries, args []byte }

func (r *recording) add(s *Session, c Command) error {
	var deadline time.Duration
	var e ring.Entry
	switch c := c.(type) {
	case *Launch:
		deadline = c.Deadline
		var err error
		if e, err = r.launch(s, c); err != nil {
			return err
		}
	case *Copy:
		deadline = c.Deadline
		if c.Dst == nil || c.Dst.s != s || c.Src == nil || c.Src.s != s {
			return errForeignToList("Dst or Src")
		}
		e = ring.CopyEntry(0, c.Dst.handle, c.DstOff, c.Src.handle, c.SrcOff, c.Bytes, 0)
	case *Fill:
		deadline = c.Deadline
		if c.Buffer == nil || c.Buffer.s != s {
			return errForeignToList("Buffer")
		}
		e = ring.FillEntry(0, c.Buffer.handle, c.Off, c.Bytes, c.Pattern, 0)
	default:
		return gpuerr.New(gpuerr.Invalid, "a list has launches, copies and fills, not %T", c)
	}
	if deadline != 0 {
		return gpuerr.New(gpuerr.Invalid, "Deadline: a command of a list has none; its Replay has")
	}
	var b [ring.EntryBytes]byte
	e.Encode(&b)
	r.entries = append(r.entries, b[:]...)
	return nil
}

func (r *recording) launch(s *Session, l *Launch) (ring.Entry, error) {
	if l.Program == nil || l.Program.s != s {
		return ring.Entry{}, errForeignToList("Program")
	}
	argBytes := len(l.Bindings)*ring.BindingBytes + len(l.Inline)
	padded := (argBytes + ring.ArgAlign - 1) &^ (ring.ArgAlign - 1)
	if len(l.Bindings) > math.MaxUint16 || len(l.Inline) > math.MaxUint16 || len(r.args)+padded > maxListArgBytes {
		return ring.Entry{}, gpuerr.New(gpuerr.LaunchLimit, "the list has more than %d bytes of bindings and inline arguments", maxListArgBytes)
	}
	if max(l.Block.X, l.Block.Y, l.Block.Z) > math.MaxUint16 {
		return ring.Entry{}, gpuerr.New(gpuerr.LaunchLimit, "Block: %v exceeds %d in one dimension", l.Block, math.MaxUint16)
	}
	bindings := make([]ring.Binding, len(l.Bindings))
	for i, b := range l.Bindings {
		if b.Buffer == nil || b.Buffer.s != s {
			return ring.Entry{}, errForeignToList("Bindings")
		}
		if b.Len == 0 {
			if b.Off >= b.Buffer.size {
				return ring.Entry{}, gpuerr.New(gpuerr.Invalid, "Bindings: offset %d of binding %d is not in its buffer of %d bytes", b.Off, i, b.Buffer.size)
			}
			b.Len = b.Buffer.size - b.Off
		}
		bindings[i] = ring.Binding{Buffer: b.Buffer.handle, Off: b.Off, Len: b.Len}
	}
	e := ring.LaunchEntry(0, l.Program.handle, ring.Dim3(l.Grid), ring.Dim3(l.Block), l.SharedBytes, 0)
	e.SetArgs(uint32(len(r.args)), len(bindings), len(l.Inline))
	r.args = ring.AppendArgs(r.args, bindings, l.Inline)
	r.args = append(r.args, make([]byte, padded-argBytes)...)
	return e, nil
}

func errForeignToList(field string) error {
	return gpuerr.New(gpuerr.Invalid, "%s: missing, or of another session than the list", field)
}

// Handle is the list's number in the session.
func (l *List) Handle() uint64 { return l.handle }

// Replay is a command that runs the list, changed by the patches.
func (l *List) Replay(patches ...Patch) *Replay { return &Replay{List: l, Patches: patches} }

// Close ends the list. Replays that were begun end as revoked, and those behind them are
// refused as stale.
func (l *List) Close(ctx context.Context) error {
	if !l.s.disown(l) {
		return nil
	}
	return l.s.destroy(ctx, control.TypeCloseList, l.handle)
}

func (l *List) release() {}

// Replay runs a list, as one command: it ends ok only if every command of the list did,
// and the first that did not is the last that ran. The list itself stays as recorded.
type Replay struct {
	List     *List
	Patches  []Patch
	Deadline time.Duration // of all of it; 0: the policy's; rounded up to microseconds
}

// Patch changes one command of a list for one replay: inline bytes of a launch, or
// which part of its buffer a binding is.
type Patch struct {
	Command int // of the list, from 0
	// Inline, if not empty, takes the place of as many inline bytes of a launch, from
	// offset At on.
	Inline []byte
	// At is otherwise the number of a binding. A Copy has 0, Dst, and 1, Src; a Fill
	// has 0, Buffer.
	At int
	// Off and Len are the part of the binding's buffer. Len 0 is as recorded, and for a
	// copy nothing else will do.
	Off, Len uint64
}

// +checklocks:q.submit
func (r *Replay) push(q *Queue) (uint64, error) { return q.replayLocked(r) }

// PushReplay stages a replay; see PushLaunch.
func (q *Queue) PushReplay(r *Replay) (uint64, error) {
	q.submit.Lock()
	defer q.submit.Unlock()
	return q.replayLocked(r)
}

// +checklocks:q.submit
func (q *Queue) replayLocked(r *Replay) (uint64, error) {
	if r.List == nil || r.List.s != q.s {
		return 0, errForeign("List")
	}
	if err := q.s.unpoisoned(); err != nil {
		return 0, err
	}
	micros, err := deadlineMicros(r.Deadline)
	if err != nil {
		return 0, err
	}
	q.patches = q.patches[:0]
	for i := range r.Patches {
		p := &r.Patches[i]
		if p.Command < 0 || p.Command >= r.List.commands || p.At < 0 || p.At > math.MaxInt32 {
			return 0, gpuerr.New(gpuerr.Invalid, "Patches: patch %d is of command %d at %d; the list has %d commands", i, p.Command, p.At, r.List.commands)
		}
		if len(p.Inline) == 0 {
			q.patches = append(q.patches, ring.BindingPatch(uint16(p.Command), uint32(p.At), p.Off, p.Len))
			continue
		}
		for off := 0; off < len(p.Inline) && len(q.patches) <= ring.MaxPatches; off += ring.MaxPatchInline {
			piece := p.Inline[off:min(off+ring.MaxPatchInline, len(p.Inline))]
			q.patches = append(q.patches, ring.InlinePatch(uint16(p.Command), uint32(p.At+off), piece))
		}
	}
	if err := q.err(); err != nil {
		return 0, err
	}
	q.entry = ring.ReplayEntry(q.next, r.List.handle, micros)
	if err := q.ring.PushReplay(&q.entry, q.patches); err != nil {
		return 0, q.failure(err)
	}
	ticket := q.next
	q.next++
	return ticket, nil
}
