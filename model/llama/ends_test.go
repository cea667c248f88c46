package llama

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/modeltest"
	"capgpu/outcome"
)

// going is a model that has begun a text, and the way to continue it.
type going struct {
	*Model
	q     *Sequence
	token int32
	at    int
}

func begin(t *testing.T, m *Model) *going {
	t.Helper()
	g := &going{Model: m, q: newSequence(t, m, m.Info().Context), token: 1}
	for range 5 {
		require.NoError(t, g.next(testContext(t)))
	}
	return g
}

func (g *going) next(ctx context.Context) error {
	if err := g.Step(ctx, []Row{{g.q, g.at, g.token, true}}); err != nil {
		return err
	}
	g.token = modeltest.Argmax(g.Logits(0))
	g.at++
	return nil
}

// greedy continues for n tokens, and calls at before each.
func (g *going) greedy(ctx context.Context, n int, at func(i int)) error {
	i := 0
	return g.Greedy(ctx, g.q, g.token, g.at, n, func(int32) bool {
		at(i)
		i++
		return true
	})
}

// gone checks everything that is true of a model after a failed pass.
func gone(t *testing.T, m *Model, err error, code gpuerr.Code) {
	t.Helper()
	require.Error(t, err)
	if code != gpuerr.None {
		require.ErrorIs(t, err, code)
	}

	require.Equal(t, err, m.Err())
	q := &Sequence{m: m}
	ctx := testContext(t)
	for _, again := range []error{
		m.Step(ctx, []Row{{q, 0, 0, true}}),
		m.Greedy(ctx, q, 0, 0, 1, func(int32) bool { return true }),
		m.Embed(ctx, q, []int32{1}, make([]float32, m.Info().Config.Dim)),
	} {
		require.ErrorIs(t, again, err)
		require.ErrorContains(t, again, "of no use any more")
	}

	require.Nil(t, m.Logits(0))
	require.NoError(t, m.Close(ctx))
	require.Equal(t, err, m.Err())
}

// faulty is a service on a device that does something to a list on request.
func faulty(t *testing.T, kind mock.FaultKind, config func(*gpu.Config)) (_ *sessiontest.Service, now func()) {
	t.Helper()
	var mu sync.Mutex
	armed := false
	o := sessiontest.Options{Config: config, Mock: mock.Options{Script: mock.Script{Faults: []mock.Fault{{
		Kind: kind, Op: "list", Times: 1, Match: func(*backend.Job) bool {
			mu.Lock()
			defer mu.Unlock()
			return armed
		},
	}}}}}
	return sessiontest.Start(t, o), func() {
		mu.Lock()
		defer mu.Unlock()
		armed = true
	}
}

func TestDeviceIsLost(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		svc, lose := faulty(t, mock.FaultDeviceGone, nil)
		g := begin(t, load(t, svc.Open(t), seeded(1, shape(), true, model.F32), Options{}))
		var err error
		if ahead {
			err = g.greedy(testContext(t), 70, func(i int) {
				if i == 20 {
					lose()
				}
			})
		} else {
			lose()
			err = g.next(testContext(t))
		}
		gone(t, g.Model, err, gpuerr.DeviceLost)
	}
}

func TestDriverDies(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	g := begin(t, load(t, svc.Open(t), seeded(1, shape(), true, model.F32), Options{}))
	err := g.greedy(testContext(t), 70, func(i int) {
		if i == 20 {
			svc.Kill()
		}
	})
	gone(t, g.Model, err, gpuerr.Disconnected)
}

func TestSessionIsRevoked(t *testing.T) {
	parent := open(t, mock.Options{})
	child := restrict(t, parent, client.Policy{})
	g := begin(t, load(t, child, seeded(1, shape(), true, model.F32), Options{}))
	err := g.greedy(testContext(t), 70, func(i int) {
		if i == 20 {
			require.NoError(t, parent.Close(testContext(t)))
		}
	})
	gone(t, g.Model, err, gpuerr.Revoked)
}

// A pass's results are lost with its session, and no reader sees zeros instead.
// Tokens of passes that ended before that are either right or not handed out.
func TestSessionEndsBeforeItsResultsAreRead(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	f := seeded(8, shape(), false, model.F32)
	for _, greedy := range []bool{false, true} {
		s := svc.Open(t)
		child := restrict(t, s, client.Policy{})
		m := load(t, child, f, Options{})
		end := func() {
			require.NoError(t, s.Close(testContext(t)))
			require.NoError(t, svc.Device.Reclaimed(testContext(t)))
		}

		if !greedy {
			g := begin(t, m)
			before, err := m.CopyLogits(nil, 0)
			require.NoError(t, err)
			require.Equal(t, bits(before), bits(m.Logits(0)))
			end()
			got, err := m.CopyLogits(nil, 0)
			require.ErrorIs(t, err, gpuerr.Revoked)
			require.Empty(t, got)
			require.Equal(t, make([]uint32, len(before)), bits(m.Logits(0)), "scrubbed")
			require.ErrorIs(t, g.next(testContext(t)), gpuerr.Revoked)
			continue
		}

		const n = 80
		var want, got []int32
		other := load(t, svc.Open(t), f, Options{})
		require.NoError(t, other.Greedy(testContext(t), newSequence(t, other, n), 1, 0, n, func(id int32) bool { want = append(want, id); return true }))
		err := m.Greedy(testContext(t), newSequence(t, m, n), 1, 0, n, func(id int32) bool {
			if got = append(got, id); len(got) == 10 {
				end()
			}
			return true
		})
		require.Error(t, err)
		require.Less(t, len(got), n)
		require.Equal(t, want[:len(got)], got)
	}
}

func TestSessionIsClosed(t *testing.T) {
	s := open(t, mock.Options{})
	g := begin(t, load(t, s, seeded(1, shape(), true, model.F32), Options{}))
	require.NoError(t, s.Close(testContext(t)))
	gone(t, g.Model, g.next(testContext(t)), gpuerr.Closed)
}

// Another's trap in the same session poisons it.
func TestSessionIsPoisoned(t *testing.T) {
	s := open(t, mock.Options{})
	g := begin(t, load(t, s, seeded(1, shape(), true, model.F32), Options{}))
	trap, err := s.OpenProgram(testContext(t), "trap")
	require.NoError(t, err)
	b, err := s.CreateBuffer(testContext(t), 64, client.Storage)
	require.NoError(t, err)
	other, err := s.CreateQueue(testContext(t), client.QueueOptions{})
	require.NoError(t, err)
	var failed *client.OutcomeError
	require.ErrorAs(t, other.Run(testContext(t), &client.Launch{Program: trap, Bindings: []client.Binding{{Buffer: b}}}), &failed)
	gone(t, g.Model, g.next(testContext(t)), gpuerr.Poisoned)
}

// The model's own trap, which only a bug or a stranger's writes can cause, is
// reported as the end of the pass.
func TestPassTraps(t *testing.T) {
	g := begin(t, load(t, open(t, mock.Options{}), seeded(1, shape(), true, model.F32), Options{}))
	g.pool.mu.Lock()
	g.pool.table[int(g.q.id)*g.pool.rowPages] = noPage
	g.pool.mu.Unlock()
	err := g.greedy(testContext(t), 70, func(int) {})
	var how *client.OutcomeError
	require.ErrorAs(t, err, &how)
	require.Equal(t, outcome.TrapCause, how.Outcome.Cause)
	require.Equal(t, outcome.OutOfBounds, how.Outcome.Trap.Kind)
	gone(t, g.Model, err, gpuerr.Poisoned)
}

// A pass that the device abandons counts as not run, and nothing is known of its
// writes.
func TestPassFails(t *testing.T) {
	svc, fail := faulty(t, mock.FaultErrorCompletion, nil)
	s := svc.Open(t)
	before := used(t, s)
	g := begin(t, load(t, s, seeded(1, shape(), true, model.F32), Options{}))
	fail()
	err := g.next(testContext(t))
	var how *client.OutcomeError
	require.ErrorAs(t, err, &how)
	require.Equal(t, outcome.Failed, how.Outcome.Kind)
	gone(t, g.Model, err, gpuerr.None)
	after := used(t, s)
	delete(after, "inFlight") // its in-flight amount at the failure is settled later
	require.Equal(t, before, after)
}

// A context that ends stops only the passes that are in flight: tokens that were
// handed out are written, and the text continues from there.
func TestStopsWithItsContext(t *testing.T) {
	f := seeded(1, shape(), true, model.F32)
	want := alone(t, load(t, open(t, mock.Options{}), f, Options{}), []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})

	// The device, on request, takes forever with a list.
	release := make(chan struct{})
	var once sync.Once
	var mu sync.Mutex
	slow := false
	s := open(t, mock.Options{Script: mock.Script{Faults: []mock.Fault{{
		Kind: mock.FaultSlow, Op: "list", Duration: mock.Duration(1 << 40), Match: func(*backend.Job) bool {
			mu.Lock()
			defer mu.Unlock()
			if slow {
				once.Do(func() { close(release) })
			}
			return slow
		},
	}}}})

	set := func(to bool) {
		mu.Lock()
		defer mu.Unlock()
		slow = to
	}

	m := load(t, s, f, Options{})
	q := newSequence(t, m, 40)
	for i := range 6 {
		require.NoError(t, m.Step(testContext(t), []Row{{q, i, int32(i + 1), true}}))
	}

	set(true)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		<-release
		cancel()
	}()

	require.ErrorIs(t, m.Step(ctx, []Row{{q, 4, 5, false}, {q, 5, 6, false}, {q, 6, 7, true}}), context.Canceled)
	require.NoError(t, m.Err())
	require.Nil(t, m.Logits(0))
	require.Equal(t, 4, q.Written(), "what it was to write is as good as not there")
	require.ErrorIs(t, m.Step(ctx, nil), context.Canceled)
	set(false)
	for i := 4; i < 12; i++ {
		require.NoError(t, m.Step(testContext(t), []Row{{q, i, int32(i + 1), true}}))
		require.Equal(t, want[i], bits(m.Logits(0)))
	}

	// Greedy, too.
	whole := newSequence(t, m, 80)
	var tokens []int32
	require.NoError(t, m.Greedy(testContext(t), whole, 1, 0, 80, func(id int32) bool { tokens = append(tokens, id); return true }))
	q.Close()
	q = newSequence(t, m, 80)
	ctx, cancel = context.WithCancel(testContext(t))
	var got []int32
	require.ErrorIs(t, m.Greedy(ctx, q, 1, 0, 80, func(id int32) bool {
		if got = append(got, id); len(got) == 15 {
			cancel()
		}
		return true
	}), context.Canceled)

	cancel()
	require.Equal(t, len(got), q.Written())
	require.Less(t, len(got), 80)
	require.NoError(t, m.Greedy(testContext(t), q, got[len(got)-1], len(got), 80-len(got), func(id int32) bool { got = append(got, id); return true }))
	require.Equal(t, tokens, got)
}

// Weights that produce NaN end a text, not the session.
func TestNoNumber(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) { noNumber(t, engine) })
	}
}

func noNumber(t *testing.T, engine mock.Options) {
	f := seeded(1, shape(), true, model.F32)
	for i := range f.Config.Dim {
		binary.LittleEndian.PutUint32(f.Weights.Norm.Data[4*i:], math.Float32bits(float32(math.NaN())))
	}
	m := load(t, open(t, engine), f, Options{})
	q := newSequence(t, m, 40)
	for range 2 {
		err := m.Greedy(testContext(t), q, 1, 0, 40, func(int32) bool { return true })
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, "no number")
		require.NoError(t, m.Err())
	}
	require.NoError(t, m.Step(testContext(t), []Row{{q, 0, 1, true}}))
	require.True(t, m.Logits(0)[0] != m.Logits(0)[0])
}
