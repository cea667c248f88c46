package attack

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/ring"
)

// memoryTaken does to the memory that it shares with the driver everything that a
// descriptor allows, while the device works on it.
func memoryTaken(ctx context.Context, a *attacker) error {
	r, err := a.openRings(ctx)
	if err != nil {
		return err
	}
	defer r.end()

	for i := range uint64(8) {
		e, bindings := r.launch(i)
		if err := r.tame.Push(&e, bindings, nil); err != nil {
			return err
		}
	}

	if err := r.tame.Flush(); err != nil {
		return err
	}

	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	for _, fd := range []int{r.buffer.FD, r.FD} {
		a.answered(unix.Ftruncate(fd, 0))
		a.answered(unix.Ftruncate(fd, 1<<30))
		a.answered(unix.Fallocate(fd, punch, 0, 64<<10))
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
		a.answered(err)
		a.answered(unix.Fallocate(fd, unix.FALLOC_FL_COLLAPSE_RANGE, 0, 4096))
	}

	// The ring's header is gone with its pages: the driver ends the rest of the
	// queue, and its messages cannot be received here.
	return nil
}

// handles names objects that are not its own, in every message that names one.
func handles(ctx context.Context, a *attacker) error {
	r, err := a.openRings(ctx)
	if err != nil {
		return err
	}
	defer r.end()

	stale, err := r.Buffer(ctx, 4096)
	if err != nil {
		return err
	}

	_ = unix.Close(stale.FD)
	_, err = r.Call(ctx, control.TypeDestroyBuffer, control.HandleBody{Handle: stale.Handle}.AppendTo(nil), nil)
	a.answered(err)
	known := []uint64{stale.Handle, r.buffer.Handle, r.Handle, r.add}
	forged := func() uint64 {
		h := known[a.random.IntN(len(known))]
		switch a.random.IntN(6) {
		case 0:
			return stale.Handle
		case 1:
			return a.random.Uint64()
		case 2:
			return h ^ 1<<(a.random.IntN(64)) // one bit: another place, or another generation
		case 3:
			return h + 1<<32*uint64(1+a.random.IntN(4)) // a generation to come
		case 4:
			return h&0xffffffff | uint64(a.random.Uint32())<<32
		}
		return uint64(a.random.IntN(64)) | 1<<32 // somebody's first, perhaps
	}

	for range 200 {
		h := forged()
		if h == r.buffer.Handle || h == r.Handle || h == r.add {
			continue // that is sound
		}

		handle := control.HandleBody{Handle: h}.AppendTo(nil)
		messages := []struct {
			t    control.MsgType
			body []byte
		}{
			{control.TypeDestroyBuffer, handle}, {control.TypeDestroyFence, handle}, {control.TypeFenceState, handle},
			{control.TypeCloseProgram, handle}, {control.TypeCancelQueue, handle}, {control.TypeCloseQueue, handle}, {control.TypeCloseList, handle},
			{control.TypeFenceWait, control.FenceWaitRequest{Handle: h, Value: 1, TimeoutNanos: 1}.AppendTo(nil)},
			{control.TypeFenceSignal, control.FenceSignalRequest{Handle: h, Value: 1}.AppendTo(nil)},
			{control.TypeLoadProgram, control.LoadProgramRequest{Buffer: h, Bytes: 64}.AppendTo(nil)},
			{control.TypeRecordList, control.RecordListRequest{Buffer: h, Entries: 1}.AppendTo(nil)},
		}

		m := messages[a.random.IntN(len(messages))]
		_, err := r.Call(ctx, m.t, m.body, nil)
		a.answered(err)
		e, bindings := r.launch(1)
		switch a.random.IntN(5) {
		case 0:
			e.Object = h
		case 1:
			bindings[a.random.IntN(3)].Buffer = h
		case 2:
			e, bindings = ring.FillEntry(1, h, 0, 4096, 1, 0), nil
		case 3:
			e, bindings = ring.SignalEntry(1, h, 1), nil
		case 4:
			e, bindings = ring.ReplayEntry(1, h, 0), nil
		}

		if err := r.tame.Push(&e, bindings, nil); err != nil {
			return err
		}
		if err := r.tame.Flush(); err != nil {
			return err
		}

		var done [1]ring.Completion
		if _, err := r.tame.Wait(ctx, done[:]); err != nil {
			return err
		}

		a.ended(done[0].Code, done[0].Outcome)
	}

	return nil
}

// flooders ask in parallel: as many as one socket is served at once.
const flooders = 32

// flood requests capabilities until it has the maximum, and keeps requesting.
func flood(ctx context.Context, a *attacker) error {
	s, err := a.openRaw(ctx)
	if err != nil {
		return err
	}
	defer s.Close()

	var mu sync.Mutex
	var asking sync.WaitGroup
	ended := make(chan error, flooders)
	for i := range flooders {
		asking.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				t, body := control.TypeCreateFence, control.CreateFenceRequest{}.AppendTo(nil)
				switch {
				case n%64 == 1:
					t, body = control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096}.AppendTo(nil)
				case n%64 == 2:
					t, body = control.TypeOpenProgram, control.OpenProgramRequest{Name: "vecadd_f32"}.AppendTo(nil)
				case n%256 == 3:
					t, body = control.TypeCreateQueue, control.CreateQueueRequest{Entries: 2, ArgBytes: 64}.AppendTo(nil)
				}

				m, err := s.Call(ctx, t, body, nil)
				if err == nil {
					m.CloseFDs()
				}

				mu.Lock()
				a.answered(err)
				mu.Unlock()
				select {
				case <-s.Done():
					ended <- s.Err()
					return
				default:
				}
			}
		})
	}

	asking.Wait()
	select {
	case err := <-ended:
		return err
	default:
		return nil
	}
}
