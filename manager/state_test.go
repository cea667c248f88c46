package manager

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestStateBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStateBoard()
		var asker reported
		ctx := context.Background()

		r, err := b.next(ctx, &asker, 0, false, time.Hour)
		require.NoError(t, err)
		require.Equal(t, control.NextStateReply{State: uint32(starting), Changed: true}, r, "the first answer comes at once")

		r, err = b.next(ctx, &asker, 0, false, time.Minute)
		require.NoError(t, err)
		require.False(t, r.Changed, "what was told is not told again")

		b.update(func(s *snapshot) { s.state, s.epoch = ready, 1 })
		r, _ = b.next(ctx, &asker, 0, false, time.Minute)
		require.Equal(t, uint32(ready), r.State)
		require.EqualValues(t, 1, r.Epoch)

		r, _ = b.next(ctx, &asker, 1, false, time.Minute)
		require.False(t, r.Changed)

		go func() {
			time.Sleep(time.Minute)
			b.update(func(s *snapshot) { s.state, s.cause = recovering, "killed" })
		}()
		began := time.Now()
		r, _ = b.next(ctx, &asker, 1, false, time.Hour)
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, control.NextStateReply{Epoch: 1, State: uint32(recovering), Changed: true, Recovery: uint32(outcome.Respawn), Cause: "killed"}, r)

		var other reported
		r, _ = b.next(ctx, &other, 1, false, time.Hour)
		require.True(t, r.Changed, "another socket has not been told")

		// A whole life passes between two requests: the reply is the current state.
		b.update(func(s *snapshot) { s.state, s.epoch, s.cause = ready, 2, "" })
		b.update(func(s *snapshot) { s.state, s.cause = recovering, "again" })
		r, _ = b.next(ctx, &asker, 1, false, time.Hour)
		require.Equal(t, control.NextStateReply{Epoch: 2, State: uint32(recovering), Changed: true, Recovery: uint32(outcome.Respawn), Cause: "again"}, r)
		b.update(func(s *snapshot) { s.state, s.epoch, s.cause = ready, 3, "" })
		r, _ = b.next(ctx, &asker, 2, false, time.Hour)
		require.EqualValues(t, 3, r.Epoch)

		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err = b.next(gone, &asker, 3, false, time.Hour)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestClipped(t *testing.T) {
	require.Equal(t, "short", clipped("short"))
	long := clipped(strings.Repeat("é", 200))
	require.LessOrEqual(t, len(long), control.MaxStringBytes)
	require.True(t, strings.HasSuffix(long, "é…"))
	require.NotContains(t, long, "\ufffd")
}

// Levels of recovery are news to a client that asks for them, and to no other.
func TestStepsAreNewsToWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStateBoard()
		l := &driverLink{}
		b.update(func(s *snapshot) { s.state, s.epoch, s.link = ready, 1, l })
		ctx := context.Background()
		var plain, asker reported
		_, err := b.next(ctx, &plain, 0, false, time.Hour)
		require.NoError(t, err)
		_, err = b.next(ctx, &asker, 0, true, time.Hour)
		require.NoError(t, err)
		at := escalation{Step: uint32(outcome.QueueReset), Last: uint32(outcome.QueueReset), Incidents: 1}
		time.AfterFunc(time.Second, func() {
			b.escalate(&driverLink{}, escalation{Step: 3}) // a report of another driver is ignored
			b.escalate(l, at)
		})
		began := time.Now()
		r, err := b.next(ctx, &asker, 1, true, time.Hour)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, control.NextStateReply{Epoch: 1, State: uint32(ready), Changed: true, Recovery: at.Step, LastRecovery: at.Last, Incidents: 1}, r)
		r, _ = b.next(ctx, &asker, 1, true, time.Minute)
		require.False(t, r.Changed, "it was told")
		r, _ = b.next(ctx, &plain, 1, false, time.Minute)
		require.False(t, r.Changed, "it did not ask for steps")
		b.update(func(s *snapshot) { s.state, s.link = recovering, nil })
		r, _ = b.next(ctx, &asker, 1, true, time.Minute)
		require.EqualValues(t, outcome.Respawn, r.Recovery)
		b.update(func(s *snapshot) { s.state = wedged })
		r, _ = b.next(ctx, &asker, 1, true, time.Minute)
		require.EqualValues(t, outcome.WedgedStep, r.Recovery)
	})
}

// A driver that was replaced in the middle of its reports leaves no level behind, and the
// incidents of the epoch count on with its successor.
func TestStepsOfASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, old, next := newStateBoard(), &driverLink{}, &driverLink{}
		b.update(func(s *snapshot) { s.state, s.epoch, s.link, s.generation = ready, 1, old, 1 })
		b.escalate(old, escalation{Step: uint32(outcome.QueueReset), Last: uint32(outcome.QueueReset), Incidents: 3})
		var asker reported
		_, err := b.next(t.Context(), &asker, 0, true, time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 2, b.succeed(next).generation)
		b.escalate(old, escalation{Incidents: 3}) // too late
		want := control.NextStateReply{Epoch: 1, State: uint32(ready), Changed: true, LastRecovery: uint32(outcome.QueueReset), Incidents: 3}
		r, err := b.next(t.Context(), &asker, 1, true, time.Minute)
		require.NoError(t, err)
		require.Equal(t, want, r)
		b.escalate(next, escalation{Last: uint32(outcome.Cancelling), Incidents: 1})
		r, err = b.next(t.Context(), &asker, 1, true, time.Minute)
		require.NoError(t, err)
		want.LastRecovery, want.Incidents = uint32(outcome.Cancelling), 4
		require.Equal(t, want, r)
	})
}

// A driver that reports too often is refused, and wakes clients no more often for it.
func TestStepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		l := &driverLink{escalate: func(*driverLink, escalation) { told++ }, escalating: make(chan struct{}, 1)}
		body := escalation{Step: 1}.AppendTo(nil)
		first := make(chan error, 1)
		go func() { first <- l.takeRecovery(t.Context(), body) }()
		synctest.Wait()
		for range 100 {
			require.ErrorIs(t, l.takeRecovery(t.Context(), body), gpuerr.Busy)
		}
		require.NoError(t, <-first)
		require.Equal(t, 1, told)
		require.Error(t, l.takeRecovery(t.Context(), escalation{Step: uint32(outcome.Respawn)}.AppendTo(nil)), "that is the manager's to say")
	})
}

// An operator's suspension of a device without a driver applies to the next one, whenever it
// comes: a driver becomes ready only in the state wanted at that moment.
func TestSuspensionOfAnAbsentDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &testLog{}
		d := &device{name: "mock0", board: newStateBoard(), log: slog.New(slog.DiscardHandler), say: func(string, ...any) {}, cfg: &Config{PingTimeout: time.Second, StopTimeout: time.Second}}
		d.logs.device, d.logs.host = log, log
		var said []control.MsgType
		var meanwhile func()
		l := &driverLink{caller: askedPeer(func(t control.MsgType) {
			said = append(said, t)
			if f := meanwhile; f != nil {
				meanwhile = nil
				f()
			}
		})}
		becomes := func() {
			require.NoError(t, d.becomeReady(t.Context(), l, func(s *snapshot) { s.state, s.link = ready, l }))
		}
		require.True(t, d.orderAbsent(true))
		require.True(t, d.orderAbsent(true))
		require.True(t, d.orderAbsent(false))
		becomes()
		require.Empty(t, said)
		require.False(t, d.orderAbsent(true), "it has a driver, which has to be asked")

		lose := func() { d.board.update(func(s *snapshot) { s.state, s.link = recovering, nil }) }
		lose()
		require.True(t, d.orderAbsent(true))
		meanwhile = func() { require.True(t, d.orderAbsent(false)) }
		becomes()
		require.Equal(t, []control.MsgType{control.TypeFreeze, control.TypeThaw}, said)
		s, _ := d.board.get()
		require.False(t, s.suspended)

		lose()
		said = nil
		require.True(t, d.orderAbsent(true))
		becomes()
		require.Equal(t, []control.MsgType{control.TypeFreeze}, said)
		var asker reported
		r, err := d.board.next(t.Context(), &asker, 0, true, time.Hour)
		require.NoError(t, err)
		require.True(t, r.Suspended)
		time.AfterFunc(time.Second, func() { d.board.suspend(false) })
		r, err = d.board.next(t.Context(), &asker, r.Epoch, true, time.Hour)
		require.NoError(t, err)
		require.True(t, r.Changed)
		require.False(t, r.Suspended)

		d.board.update(func(s *snapshot) { s.state, s.link = wedged, nil })
		require.False(t, d.orderAbsent(true), "there will be no driver")
	})
}

// An operator's request that waits for a driver learns at once of that driver's end. A
// request that needs no driver is then served, and none waits for a driver that will not
// come.
func TestOrderHearsOfTheDriversEnd(t *testing.T) {
	for name, to := range map[string]deviceState{"recovering": recovering, "wedged": wedged} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &device{name: "mock0", board: newStateBoard(), log: slog.New(slog.DiscardHandler), say: func(string, ...any) {}}
				d.logs.device, d.logs.host = &testLog{}, &testLog{}
				d.requests.operator, d.supervision.done = make(chan *ask), make(chan struct{})
				d.board.update(func(s *snapshot) { s.state, s.epoch, s.link = ready, 1, &driverLink{} })
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				said := map[control.MsgType]chan error{control.TypeSuspend: make(chan error, 1), control.TypeUpgrade: make(chan error, 1)}
				for what, c := range said {
					go func() {
						_, err := d.order(ctx, what, false)
						c <- err
					}()
				}
				synctest.Wait()
				began := time.Now()
				d.board.update(func(s *snapshot) { s.state, s.link, s.cause = to, nil, "killed" })
				suspended, upgraded := <-said[control.TypeSuspend], <-said[control.TypeUpgrade]
				require.Zero(t, time.Since(began))
				s, _ := d.board.get()
				if to == wedged {
					require.ErrorIs(t, suspended, gpuerr.DeviceLost)
					require.ErrorIs(t, upgraded, gpuerr.DeviceLost)
				} else {
					require.NoError(t, suspended)
					require.ErrorIs(t, upgraded, gpuerr.Busy)
					require.ErrorContains(t, upgraded, "recovering")
				}
				require.Equal(t, to == recovering, s.suspended)
			})
		})
	}
}

// A function that the host takes away while its driver becomes ready is never shown as ready
// again: its removal is final.
func TestNotReadyWhenRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &removable{removed: make(chan struct{})}
		d := &device{name: "mock0", function: f, board: newStateBoard(), log: slog.New(slog.DiscardHandler), say: func(string, ...any) {},
			cfg: &Config{PingTimeout: time.Second, StopTimeout: time.Second, ReadyTimeout: time.Second}, tenants: func() []*Tenant { return nil }}
		d.logs.device, d.logs.host = &testLog{}, &testLog{}
		require.True(t, d.orderAbsent(true))
		l := &driverLink{checked: true, failure: newEpochFailure(), ready: make(chan control.ReadyRequest, 1), child: &child{}, caller: askedPeer(func(control.MsgType) {
			close(f.removed) // while it is asked to freeze
			d.showRemoved(d.removal())
		})}
		l.ready <- control.ReadyRequest{}
		require.ErrorAs(t, d.awaitReady(t.Context(), l), new(*removal))
		s, _ := d.board.get()
		require.Equal(t, wedged, s.state)
	})
}

// removable is a function with nothing but a removal.
type removable struct {
	Function
	removed chan struct{}
}

func (r *removable) Removed() <-chan struct{} { return r.removed }
func (r *removable) Cause() error             { return nil }

// askedPeer is a driver that agrees to all requests.
type askedPeer func(control.MsgType)

func (p askedPeer) Call(_ context.Context, t control.MsgType, _ []byte, _ []int) (*control.Message, error) {
	p(t)
	return &control.Message{Type: t, Reply: true}, nil
}
func (askedPeer) Done() <-chan struct{} { return nil }
func (askedPeer) Err() error            { return nil }
func (askedPeer) Close() error          { return nil }
