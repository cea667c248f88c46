package enginetest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/shm"
	"capgpu/program"
)

// Scripted are engines in this process, which a test plays: they do no work.
type Scripted struct {
	// Runs answers a run of an engine, the n-th from 0, of a group; nil: as Honest does. Its
	// datagrams are sent as they are. entries are those of the run.
	Runs func(n int, group uint32, o *wire.Order, entries []wire.Entry) [][]byte
	// KillError is what Kill returns.
	KillError error

	mu    sync.Mutex
	count int
	kills []uint32 // groups of those that were killed
}

// Honest is the answer to a run that went well.
func Honest(o *wire.Order, entries []wire.Entry) [][]byte {
	return [][]byte{wire.AppendAnswer(nil, &wire.Answer{Kind: o.Kind, Seq: o.Seq, Result: &wire.Result{Begun: uint32(len(entries)), DeviceTime: 1000}})}
}

// Kills are the groups of engines that were killed until now, in order.
func (s *Scripted) Kills() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]uint32(nil), s.kills...)
}

type scriptedEngine struct {
	of    *Scripted
	n     int
	group uint32
	link  int
	other int
	done  chan struct{}
	once  sync.Once
}

// Open implements ddf.Engines.
func (s *Scripted) Open(_ context.Context, group uint32) (ddf.Engine, error) {
	link, other, err := shm.Socketpair()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &scriptedEngine{of: s, n: s.count, group: group, link: link, other: other, done: make(chan struct{})}
	s.count++
	go e.runPlay()
	return e, nil
}

func (e *scriptedEngine) Link() int             { return e.link }
func (e *scriptedEngine) Done() <-chan struct{} { return e.done }

// Kill implements ddf.Engine.
func (e *scriptedEngine) Kill(context.Context) error {
	e.once.Do(func() {
		_ = unix.Shutdown(e.link, unix.SHUT_RDWR) // the play ends
		<-e.done
		_ = unix.Close(e.link)
		e.of.mu.Lock()
		e.of.kills = append(e.of.kills, e.group)
		e.of.mu.Unlock()
	})
	return e.of.KillError
}

// Device is what scripted engines say of theirs.
func Device() *wire.Device {
	return &wire.Device{
		Name: "scripted", OffsetAlign: 16, SubgroupSize: 32, MaxThreadsPerBlock: program.MaxBlockThreads,
		MaxBlock:       program.Dim3{X: program.MaxBlockThreads, Y: program.MaxBlockThreads, Z: 64},
		MaxGrid:        program.Dim3{X: program.MaxGrid, Y: program.MaxGrid, Z: program.MaxGrid},
		MaxSharedBytes: program.MaxSharedBytes, MaxBindings: 33, MaxPushBytes: wire.MaxPush, MaxBindingBytes: 1 << 27,
	}
}

// runPlay answers orders until the link is shut.
func (e *scriptedEngine) runPlay() {
	defer close(e.done)
	defer unix.Close(e.other)
	in := wire.NewReceiver(wire.MaxOrderBytes)
	lists := map[uint32][]wire.Entry{}
	for {
		b, fd, err := in.Receive(e.other, 0)
		if err != nil {
			return
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		o, err := wire.ParseOrder(b)
		if err != nil {
			return // the core sees that the engine is gone
		}

		var out [][]byte
		switch entries := o.Entries; {
		case o.Kind == wire.Stop:
		case o.Kind.Runs():
			if o.Kind == wire.Run {
				entries = lists[o.ID]
			}
			if out = Honest(o, entries); e.of.Runs != nil {
				out = e.of.Runs(e.n, e.group, o, entries)
			}
		default:
			if o.Kind == wire.Record {
				lists[o.ID] = o.Entries
			}
			a := &wire.Answer{Kind: o.Kind, Seq: o.Seq}
			if o.Kind == wire.Hello {
				a.Device = Device()
			}
			out = [][]byte{wire.AppendAnswer(nil, a)}
		}
		for _, b := range out {
			if unix.Sendmsg(e.other, b, nil, nil, unix.MSG_NOSIGNAL) != nil {
				return
			}
		}
	}
}

// Over requires that every engine was killed.
func (s *Scripted) Over(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.kills, s.count)
}
