package crashtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// gateWorker is a client over Cap'n Proto.
type gateWorker struct {
	*tally
	socket string
	rng    *rand.Rand
	scarce bool // see worker
}

// firstGates are those that wait when the manager has started: one of them may be to die
// after some sessions.
const firstGates = 5

// run works until ctx ends, through as many gates as there are.
func (w *gateWorker) run(ctx context.Context) {
	for gates := 0; ctx.Err() == nil; gates++ {
		sessions := 3
		if gates < firstGates {
			sessions = 12
		}
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: w.socket, Net: "unix"})
		if err != nil {
			if !absent(err) {
				w.fault("dial the gate: %v", err)
			}
			pause(ctx, 2*time.Millisecond)
			continue
		}
		transport := rpcguard.NewClientTransport(c)
		conn := rpc.NewConn(transport, nil)
		w.connected(ctx, conn, sessions)
		_ = conn.Close()
	}
}

func (w *gateWorker) connected(ctx context.Context, conn *rpc.Conn, sessions int) {
	m := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	defer m.Release()
	for range sessions {
		if ctx.Err() != nil {
			return
		}
		call, cancel := context.WithTimeout(context.Background(), callBound)
		opened, err := w.session(ctx, call, m)
		if err != nil {
			if call.Err() != nil {
				w.fault("gate: no answer in time: %v", err)
			} else if coded := rpcguard.FromException(err); w.scarce && (gpuerr.CodeOf(coded) == gpuerr.IO || gpuerr.CodeOf(coded) == gpuerr.Quota) {
				w.scarcity.Add(1)
			} else if !ended(coded) && !goneAway(conn) {
				w.fault("gate: %v", err)
			}
			if opened {
				w.lost.Add(1)
			}
		}
		cancel()
		if goneAway(conn) {
			return
		}
		if err != nil {
			pause(ctx, 2*time.Millisecond)
		}
	}
}

// goneAway says whether the gate is.
func goneAway(conn *rpc.Conn) bool {
	select {
	case <-conn.Done():
		return true
	case <-time.After(20 * time.Millisecond):
		return false
	}
}

// answer is the result of a call.
func answer[F interface{ Struct() (R, error) }, R any](f F, release capnp.ReleaseFunc, use func(R) error) error {
	defer release()
	r, err := f.Struct()
	if err != nil {
		return err
	}
	return use(r)
}

// session opens one, works some rounds, and lets it go.
func (w *gateWorker) session(ctx, call context.Context, m schema.GpuDeviceManager) (opened bool, err error) {
	var s schema.GpuSession
	f, release := m.OpenDevice(call, nil)
	if err := answer(f, release, func(r schema.GpuDeviceManager_openDevice_Results) error { s = r.Session().AddRef(); return nil }); err != nil {
		return false, err
	}
	defer s.Release()
	w.sessions.Add(1)
	var buffers [2]schema.GpuBuffer
	var ids [2]uint32
	for i := range buffers {
		f, release := s.CreateBuffer(call, func(p schema.GpuMemorySession_createBuffer_Params) error { p.SetBytes(4 * elements); return nil })
		if err := answer(f, release, func(r schema.GpuMemorySession_createBuffer_Results) error {
			buffers[i] = r.Buffer().AddRef()
			return nil
		}); err != nil {
			return true, err
		}
		defer buffers[i].Release()
		id, release := buffers[i].Id(call, nil)
		if err := answer(id, release, func(r schema.GpuBuffer_id_Results) error { ids[i] = r.Id(); return nil }); err != nil {
			return true, err
		}
	}
	var q schema.GpuQueue
	made, release := s.CreateQueue(call, nil)
	if err := answer(made, release, func(r schema.GpuSession_createQueue_Results) error { q = r.Queue().AddRef(); return nil }); err != nil {
		return true, err
	}
	defer q.Release()
	for range 1 + w.rng.IntN(6) {
		if ctx.Err() != nil {
			return true, nil
		}
		if err := w.round(call, q, buffers, ids); err != nil {
			return true, err
		}
	}
	return true, nil
}

func (w *gateWorker) round(ctx context.Context, q schema.GpuQueue, buffers [2]schema.GpuBuffer, ids [2]uint32) error {
	pattern := w.rng.Uint32() | 1
	blank, want := make([]byte, 4*elements), make([]byte, 4*elements)
	for i := 0; i < len(want); i += 4 {
		binary.LittleEndian.PutUint32(blank[i:], sentinel)
		binary.LittleEndian.PutUint32(want[i:], pattern)
	}
	for _, b := range buffers {
		f, release := b.Write(ctx, func(p schema.GpuBuffer_write_Params) error { return p.SetData(blank) })
		if err := answer(f, release, func(schema.GpuBuffer_write_Results) error { return nil }); err != nil {
			return err
		}
	}
	f, release := q.Submit(ctx, func(p schema.GpuQueue_submit_Params) error {
		list, err := p.NewCommands(2)
		if err != nil {
			return err
		}
		list.At(0).SetFill()
		fill := list.At(0).Fill()
		fill.SetBuffer(ids[0])
		fill.SetFillLength(4 * elements)
		fill.SetPattern(pattern)
		list.At(1).SetCopy()
		c := list.At(1).Copy()
		c.SetDst(ids[1])
		c.SetSrc(ids[0])
		c.SetLength(4 * elements)
		return nil
	})
	if err := answer(f, release, func(schema.GpuQueue_submit_Results) error { return nil }); err != nil {
		return err
	}
	var allOK = true
	for left := 2; left > 0; {
		got := 0
		f, release := q.Completions(ctx, func(p schema.GpuQueue_completions_Params) error {
			p.SetMax(8)
			p.SetTimeoutNanos(uint64(callBound))
			return nil
		})
		err := answer(f, release, func(r schema.GpuQueue_completions_Results) error {
			list, err := r.Completions()
			if err != nil {
				return err
			}
			got = list.Len()
			for i := range got {
				o, err := list.At(i).Outcome()
				if err != nil {
					return err
				}
				if o.Kind() == schema.OutcomeKind_ok {
					w.ok.Add(1)
				} else {
					w.notOK.Add(1)
					allOK = false
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if got == 0 {
			return fmt.Errorf("no completion came in time")
		}
		left -= got
	}
	if !allOK {
		return nil
	}
	for i, b := range buffers {
		var data []byte
		f, release := b.Read(ctx, func(p schema.GpuBuffer_read_Params) error { p.SetLength(4 * elements); return nil })
		err := answer(f, release, func(r schema.GpuBuffer_read_Results) error {
			d, err := r.Data()
			data = bytes.Clone(d)
			return err
		})
		if err != nil {
			return err
		}
		if !bytes.Equal(data, want) && !w.mayBeGone(ctx, b, data, want) {
			w.fault("FALSE OK over Cap'n Proto: buffer %d does not hold what was told to be done", i)
		}
	}
	w.rounds.Add(1)
	return nil
}

// mayBeGone says whether zeros are those of a session that has ended.
func (w *gateWorker) mayBeGone(ctx context.Context, b schema.GpuBuffer, data, want []byte) bool {
	for i := 0; i < len(data); i += 4 {
		if v := binary.LittleEndian.Uint32(data[i:]); v != 0 && v != binary.LittleEndian.Uint32(want[i:]) {
			return false
		}
	}
	for ctx.Err() == nil {
		f, release := b.Size(ctx, nil)
		if answer(f, release, func(schema.GpuBuffer_size_Results) error { return nil }) != nil {
			return true
		}
		pause(ctx, 5*time.Millisecond)
	}
	return false
}
