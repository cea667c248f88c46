package session

import (
	"context"
	"math"
	"time"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// stateReady is the device state of docs/wire.md that a session sees: a driver
// serves sessions only while its device is ready.
const stateReady = 1

func (s *session) describe(_ context.Context, m *control.Message) (*control.Message, error) {
	if s.core.Err() != nil {
		return nil, s.ended() // a client asks this to learn whether its session has ended
	}

	d := s.core.Describe()
	out := control.Description{
		Device: control.DeviceInfo{
			Index:       d.Device.Index,
			State:       stateReady,
			Epoch:       d.Device.Epoch,
			MemoryBytes: d.MemoryBytes,
			VendorID:    d.Device.VendorID,
			DeviceID:    d.Device.DeviceID,
			Facet:       uint32(d.Facet),
			Name:        d.Device.Name,
			Backend:     d.Backend,
			PCIAddress:  d.Device.PCIAddress,
		},
		HangBoundNanos:     nanos(d.HangBound),
		RevokeBoundNanos:   nanos(d.RevokeBound),
		MaxDeadlineNanos:   nanos(d.MaxDeadline),
		MaxBufferBytes:     d.MaxBufferBytes,
		MaxThreadsPerBlock: d.Limits.MaxThreadsPerBlock,
		MaxBlockDim:        d.Limits.MaxBlockDim,
		MaxGridDim:         d.Limits.MaxGridDim,
		MaxSharedBytes:     d.Limits.MaxSharedBytes,
		MaxBindings:        d.Limits.MaxBindings,
		MaxInlineBytes:     d.Limits.MaxInlineBytes,
		MaxQueueEntries:    d.MaxQueueEntries,
		SubgroupSize:       d.Limits.SubgroupSize,
		Facet:              uint32(d.Facet),
		Poisoned:           d.Poisoned,
		Checked:            d.Checked,
		GlobalMemAlignment: max(d.Limits.BindingAlign, d.Limits.OffsetAlign),
		MaxBindingBytes:    d.Limits.MaxBindingBytes,
		LocalBytes:         d.LocalBytes,
		ComputeUnits:       d.Limits.ComputeUnits,
		Deterministic:      d.Deterministic,
		Programs:           d.Programs,
	}

	// A message has a bounded length, so a list of hundreds of names is cut to fit.
	// OpenProgram accepts the names that were cut, too.
	for len(out.AppendTo(nil)) > control.MaxMessageBytes-control.HeaderBytes {
		out.Programs = out.Programs[:len(out.Programs)-1]
	}

	return control.NewReply(m, out.AppendTo(nil)), nil
}

func (s *session) budget(_ context.Context, m *control.Message) (*control.Message, error) {
	var out control.BudgetReply
	for _, e := range s.core.Budget() {
		out.Entries = append(out.Entries, control.BudgetEntry{Class: uint32(e.Class), Used: e.Reserved + e.Used, Limit: e.Limit, Peak: e.Peak})
	}
	return control.NewReply(m, out.AppendTo(nil)), nil
}

func (s *session) createBuffer(ctx context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseCreateBufferRequest(m.Body)
	if err != nil {
		return nil, err
	}
	b, err := s.core.CreateBuffer(ctx, req.Bytes, gpu.Usage(req.Usage))
	if err != nil {
		return nil, err
	}
	fd, err := s.core.BufferFD(b.Handle)
	if err != nil {
		s.core.DestroyBuffer(b.Handle)
		return nil, err
	}

	reply := control.NewReply(m, control.CreateBufferReply{Handle: uint64(b.Handle), MemOff: b.MemOff, MemLen: b.MemLen}.AppendTo(nil))
	if fd >= 0 {
		reply.FDs = []int{fd}
	}
	return reply, nil
}

func (s *session) destroyBuffer(_ context.Context, m *control.Message) (*control.Message, error) {
	return s.onHandle(m, s.core.DestroyBuffer)
}

func (s *session) createFence(_ context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseCreateFenceRequest(m.Body)
	if err != nil {
		return nil, err
	}
	h, err := s.core.CreateFence(req.Initial)
	if err != nil {
		return nil, err
	}
	return control.NewReply(m, control.HandleBody{Handle: uint64(h)}.AppendTo(nil)), nil
}

func (s *session) destroyFence(_ context.Context, m *control.Message) (*control.Message, error) {
	return s.onHandle(m, s.core.DestroyFence)
}

func (s *session) fenceState(_ context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseHandleBody(m.Body)
	if err != nil {
		return nil, err
	}
	st, err := s.core.FenceState(gpu.Handle(req.Handle))
	if err != nil {
		return nil, err
	}
	return fenceReply(m, st), nil
}

func (s *session) fenceWait(ctx context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseFenceWaitRequest(m.Body)
	if err != nil {
		return nil, err
	}

	if req.TimeoutNanos > 0 {
		defer s.waits.Add(-1)
		if s.waits.Add(1) > maxFenceWaits {
			return nil, gpuerr.New(gpuerr.Busy, "%d FenceWait requests of this socket wait already", maxFenceWaits)
		}
	}

	ctx, cancel := context.WithTimeout(ctx, time.Duration(min(req.TimeoutNanos, math.MaxInt64)))
	defer cancel()
	st, err := s.core.WaitFence(ctx, gpu.Handle(req.Handle), req.Value)
	if err != nil {
		return nil, err
	}

	return fenceReply(m, st), nil
}

func fenceReply(m *control.Message, st gpu.FenceState) *control.Message {
	return control.NewReply(m, control.FenceState{Reached: st.Reached, Promised: st.Promised, Outcome: st.Outcome}.AppendTo(nil))
}

func (s *session) fenceSignal(_ context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseFenceSignalRequest(m.Body)
	if err == nil {
		err = s.core.SignalFence(gpu.Handle(req.Handle), req.Value)
	}
	return done(m, err)
}

func (s *session) openProgram(_ context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseOpenProgramRequest(m.Body)
	if err != nil {
		return nil, err
	}
	h, info, err := s.core.OpenProgram(req.Name)
	if err != nil {
		return nil, err
	}
	return s.programReply(m, h, info)
}

// loadProgram loads a bundle from the range of the session's memory that the
// request names.
func (s *session) loadProgram(ctx context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseLoadProgramRequest(m.Body)
	if err != nil {
		return nil, err
	}
	h, info, err := s.core.LoadProgram(ctx, gpu.Handle(req.Buffer), req.Off, req.Bytes)
	if err != nil {
		return nil, err
	}
	return s.programReply(m, h, info)
}

func (s *session) programReply(m *control.Message, h gpu.Handle, info *backend.ProgramInfo) (*control.Message, error) {
	body := control.ProgramReply{Handle: uint64(h), Info: programInfo(info)}.AppendTo(nil)
	if err := control.CheckBody(m.Type, true, body); err != nil {
		s.core.CloseProgram(h)
		return nil, gpuerr.New(gpuerr.Program, "what there is to say of the program does not fit a message: %s", gpuerr.From(err).Msg)
	}
	return control.NewReply(m, body), nil
}

func programInfo(info *backend.ProgramInfo) control.ProgramInfo {
	out := control.ProgramInfo{
		Name:                info.Name,
		Digest:              info.Digest,
		InlineBytes:         info.InlineBytes,
		SharedBytes:         info.SharedBytes,
		DynamicElementBytes: info.DynamicElementBytes,
		StackBytes:          info.StackBytes,
		Block:               [3]uint32{info.Block.X, info.Block.Y, info.Block.Z},
		BlockFree:           info.BlockFree,
		OrderDependent:      info.OrderDependent,
		ToleranceAbs:        info.Tolerance.Abs,
		ToleranceRel:        info.Tolerance.Rel,
	}

	for _, b := range info.Bindings {
		out.Bindings = append(out.Bindings, control.BindingInfo{Name: b.Name, Access: uint32(b.Access), Type: string(b.Type)})
	}

	for _, f := range info.Inline {
		out.Inline = append(out.Inline, control.FieldInfo{Name: f.Name, Type: string(f.Type), Off: f.Off})
	}

	for _, f := range info.Features {
		out.Features = append(out.Features, string(f))
	}

	for _, w := range info.Warnings[:min(len(info.Warnings), control.MaxWarnings)] {
		out.Warnings = append(out.Warnings, control.Cut(w.String(), control.MaxStringBytes))
	}

	return out
}

func (s *session) closeProgram(_ context.Context, m *control.Message) (*control.Message, error) {
	return s.onHandle(m, s.core.CloseProgram)
}

func (s *session) createQueue(_ context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseCreateQueueRequest(m.Body)
	if err != nil {
		return nil, err
	}
	q, err := s.core.CreateQueue(req.Entries, req.ArgBytes)
	if err != nil {
		return nil, err
	}
	memory, sq, cq, err := s.core.QueueFDs(q.Handle)
	if err != nil {
		s.core.CloseQueue(q.Handle)
		return nil, err
	}
	return control.NewReply(m, control.CreateQueueReply{Handle: uint64(q.Handle), Entries: q.Entries, ArgBytes: q.ArgBytes}.AppendTo(nil), memory, sq, cq), nil
}

func (s *session) cancelQueue(_ context.Context, m *control.Message) (*control.Message, error) {
	return s.onHandle(m, s.core.CancelQueue)
}

func (s *session) closeQueue(_ context.Context, m *control.Message) (*control.Message, error) {
	return s.onHandle(m, s.core.CloseQueue)
}

// recordList records from the range of the session's memory that the request names.
func (s *session) recordList(_ context.Context, m *control.Message) (*control.Message, error) {
	req, err := control.ParseRecordListRequest(m.Body)
	if err != nil {
		return nil, err
	}
	h, err := s.core.RecordList(gpu.Handle(req.Buffer), req.Off, req.Entries, req.ArgBytes)
	if err != nil {
		return nil, err
	}
	return control.NewReply(m, control.HandleBody{Handle: uint64(h)}.AppendTo(nil)), nil
}

func (s *session) closeList(_ context.Context, m *control.Message) (*control.Message, error) {
	return s.onHandle(m, s.core.CloseList)
}

// onHandle serves a request that does one thing to one object.
func (s *session) onHandle(m *control.Message, do func(gpu.Handle) error) (*control.Message, error) {
	req, err := control.ParseHandleBody(m.Body)
	if err == nil {
		err = do(gpu.Handle(req.Handle))
	}
	return done(m, err)
}

func done(m *control.Message, err error) (*control.Message, error) {
	if err != nil {
		return nil, err
	}
	return control.NewReply(m, nil), nil
}

func nanos(d time.Duration) uint64 { return uint64(max(0, d)) }

// limitsOf reads the limits that a peer asks for. A resource without a limit here
// is still bounded by the parent's limits.
func limitsOf(list []control.Limit) ledger.Limits {
	l := ledger.NoLimits()
	for _, e := range list {
		if e.Class < uint32(ledger.NumClasses) {
			l[e.Class] = e.Amount
		}
	}
	return l
}
