package gate

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/schema"
)

func replayCommand(l schema.GpuCommandList, patches ...client.Patch) func(schema.Command) error {
	return func(c schema.Command) error {
		c.SetReplay()
		if err := c.Replay().SetList(l.AddRef()); err != nil {
			return err
		}

		list, err := c.Replay().NewPatches(int32(len(patches)))
		if err != nil {
			return err
		}

		for i, p := range patches {
			list.At(i).SetCommand(uint32(p.Command))
			list.At(i).SetAt(uint32(p.At))
			list.At(i).SetOffset(p.Off)
			list.At(i).SetLength(p.Len)
			if err := list.At(i).SetInline(p.Inline); err != nil {
				return err
			}
		}

		return nil
	}
}

func recording(fill ...func(schema.Command) error) func(schema.GpuSession_recordList_Params) error {
	return func(p schema.GpuSession_recordList_Params) error { return commands(fill...)(p.NewCommands) }
}

func batchOf(fill ...func(schema.Command) error) func(schema.GpuQueue_submit_Params) error {
	return func(p schema.GpuQueue_submit_Params) error { return commands(fill...)(p.NewCommands) }
}

// A list is recorded, run, patched for a run, and becomes stale when an object that
// it uses is gone.
func TestCommandList(t *testing.T) {
	r := newRig(t, sessiontest.Options{})
	s := r.open()
	a, aID := r.buffer(s, 4096)
	b, bID := r.buffer(s, 4096)
	pf, release := s.OpenProgram(r.ctx, func(p schema.GpuProgramSession_openProgram_Params) error { return p.SetName("fill_u32") })
	fill := await(r, pf, release).Program()
	qf, release := s.CreateQueue(r.ctx, nil)
	q := await(r, qf, release).Queue()
	seven, nine := binary.LittleEndian.AppendUint32(nil, 7), binary.LittleEndian.AppendUint32(nil, 9)
	lf, release := s.RecordList(r.ctx, recording(
		launchCommand(fill, 16, 64, seven, aID),
		copyCommand(uint64(bID), 0, uint64(aID), 0, 64),
	))

	l := await(r, lf, release).List()
	run := func(c func(schema.Command) error) schema.Completion {
		sf, release := q.Submit(r.ctx, batchOf(c))
		await(r, sf, release)
		cf, release := q.Completions(r.ctx, func(p schema.GpuQueue_completions_Params) error {
			p.SetMax(1)
			p.SetTimeoutNanos(uint64(10 * time.Second))
			return nil
		})
		list, err := await(r, cf, release).Completions()
		require.NoError(t, err)
		require.Equal(t, 1, list.Len())
		return list.At(0)
	}

	kind := func(c schema.Completion) schema.OutcomeKind {
		out, err := c.Outcome()
		require.NoError(t, err)
		return out.Kind()
	}

	require.Equal(t, schema.OutcomeKind_ok, kind(run(replayCommand(l))))
	inA, inB := r.mapped(a), r.mapped(b)
	require.Equal(t, bytes.Repeat(seven, 1024), inA)
	require.Equal(t, bytes.Repeat(seven, 16), inB[:64])
	require.Equal(t, schema.OutcomeKind_ok, kind(run(replayCommand(l, client.Patch{Inline: nine}, client.Patch{Command: 1, Off: 128}))))
	require.Equal(t, bytes.Repeat(nine, 16), inB[128:192])
	require.Equal(t, schema.OutcomeKind_failed, kind(run(replayCommand(l, client.Patch{At: 1, Len: 4}))), "the driver refuses it")

	// An error that the gate can detect is an error of the call.
	submit := func(c func(schema.Command) error) func(schema.GpuQueue_submit_Params) error { return batchOf(c) }
	f, release2 := q.Submit(r.ctx, submit(replayCommand(l, client.Patch{Command: 2})))
	refused(r, gpuerr.Invalid, f, release2)
	f, release2 = q.Submit(r.ctx, submit(replayCommand(schema.GpuCommandList{})))
	refused(r, gpuerr.Invalid, f, release2)
	other := r.open()
	of, release := other.CreateQueue(r.ctx, nil)
	oq := await(r, of, release).Queue()
	f, release2 = oq.Submit(r.ctx, submit(replayCommand(l)))
	refused(r, gpuerr.Invalid, f, release2)
	fence, fenceID := r.fence(s)
	_ = fence
	for _, bad := range []func(schema.Command) error{
		signalCommand(fenceID, 1), waitCommand(fenceID, 1), replayCommand(l),
		fillCommand(aID, 4096, 4, 1), fillCommand(99, 0, 4, 1),
		func(c schema.Command) error { c.SetDeadlineNanos(5); return fillCommand(aID, 0, 4, 1)(c) },
	} {
		f, release := s.RecordList(r.ctx, recording(fillCommand(aID, 0, 4, 1), bad))
		defer release()
		_, err := f.Struct()
		require.ErrorContains(t, err, "1")
	}

	none, release3 := s.RecordList(r.ctx, recording())
	refused(r, gpuerr.Invalid, none, release3)

	df, release := a.Close(r.ctx, nil)
	await(r, df, release)
	require.Equal(t, schema.OutcomeKind_failed, kind(run(replayCommand(l))), "it is stale")
	cf, release := l.Close(r.ctx, nil)
	await(r, cf, release)
	cf, release = l.Close(r.ctx, nil)
	await(r, cf, release)
	f, release2 = q.Submit(r.ctx, submit(replayCommand(l)))
	refused(r, gpuerr.Closed, f, release2)
}
