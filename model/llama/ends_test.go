package llama

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
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

// going is a model that has begun a text, and the way to go on with it.
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

// greedy goes on for n tokens, and calls at before each.
func (g *going) greedy(ctx context.Context, n int, at func(i int)) error {
	i := 0
	return g.Greedy(ctx, g.q, g.token, g.at, n, func(int32) bool {
		at(i)
		i++
		return true
	})
}

// gone is what is true of a model after a pass that failed.
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

// faulty is a service whose device does something to a list once it is told to.
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

// What a pass made is gone with its session, and no reader is told that zeros are it: also
// tokens whose passes had ended before are, or are not handed out.
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

// A trap of the model's own, as nothing but a bug or a stranger's writing makes: it is
// told how the pass ended.
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

// A pass that the device gives up is no pass, and nothing is known of what it wrote.
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
	delete(after, "inFlight") // what it had in flight when it failed is settled later
	require.Equal(t, before, after)
}

// A context that ends stops what is on its way, and nothing else: what was handed out is
// written, and the text goes on from there.
func TestStopsWithItsContext(t *testing.T) {
	f := seeded(1, shape(), true, model.F32)
	want := alone(t, load(t, open(t, mock.Options{}), f, Options{}), []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})

	// A device that takes forever with a list once it is told to.
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

	// Ahead, too.
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

// Weights that make no number end a text, not the session.
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

func TestRowsAreRefused(t *testing.T) {
	f := seeded(1, shape(), true, model.F32)
	s := open(t, mock.Options{})
	m, other := load(t, s, f, Options{Batch: 4}), load(t, s, f, Options{})
	q, r := newSequence(t, m, 40), newSequence(t, m, 8)
	ctx := testContext(t)
	require.NoError(t, m.Step(ctx, []Row{{q, 0, 1, false}, {q, 1, 1, false}, {q, 2, 1, false}}))
	closed := newSequence(t, m, 1)
	closed.Close()
	closed.Close()
	for want, rows := range map[string][]Row{
		"rows: 0":                            nil,
		"rows: 5":                            make([]Row, 5),
		"row 0: sequence: there is none":     {{nil, 0, 1, true}},
		"row 1: sequence: there is none":     {{q, 3, 1, true}, {newSequence(t, other, 8), 0, 1, true}},
		"row 0: token: 131 is not":           {{q, 3, 131, true}},
		"row 0: token: -1 is not":            {{q, 3, -1, true}},
		"row 0: position: -1 to -1":          {{q, -1, 1, true}},
		"row 0: position: 4 goes on from 3":  {{q, 4, 1, true}},
		"row 1: position: 3 does not follow": {{q, 3, 1, true}, {q, 3, 1, true}},
		"row 1: position: 5 does not follow": {{q, 3, 1, true}, {q, 5, 1, true}},
		"row 2: position: 64 to 64 are not":  {{q, 3, 1, true}, {r, 0, 1, true}, {q, 64, 1, true}},
	} {
		err := m.Step(ctx, rows)
		require.ErrorIs(t, err, gpuerr.Invalid, want)
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, m.Step(ctx, []Row{{closed, 0, 1, true}}), gpuerr.Closed)
	require.ErrorIs(t, closed.Reserve(1), gpuerr.Closed)
	require.ErrorIs(t, q.Reserve(81), gpuerr.Invalid)
	require.ErrorIs(t, q.Reserve(-1), gpuerr.Invalid)
	say := func(int32) bool { return true }
	for want, n := range map[string]int{"n: 0": 0, "position: 3 to 64": 62, "position: 3 to 9223372036854775807": math.MaxInt - 2} {
		err := m.Greedy(ctx, q, 1, 3, n, say)
		require.ErrorIs(t, err, gpuerr.Invalid, want)
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, m.Greedy(ctx, q, 1, 4, 1, say), "position: 4 goes on from 3")
	require.ErrorContains(t, m.Embed(ctx, q, nil, make([]float32, 64)), "tokens: ")
	require.ErrorContains(t, m.Embed(ctx, q, []int32{1}, make([]float32, 63)), "out: ")
	require.ErrorContains(t, m.Embed(ctx, r, make([]int32, 40), make([]float32, 64)), "position: ")
	require.Equal(t, 3, q.Written())
	require.NoError(t, m.Step(ctx, []Row{{q, 3, 1, true}, {r, 0, 1, true}}))
}

// Sequences and pages are handed out as far as there are some, and told in positions.
func TestRoom(t *testing.T) {
	m := load(t, open(t, mock.Options{}), seeded(1, shape(), true, model.F32), Options{Sequences: 2, Positions: 100, PagePositions: 16})
	require.Equal(t, 7, m.Info().Pages)
	a, b := newSequence(t, m, 17), newSequence(t, m, 0)
	_, err := m.NewSequence()
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, "sequences", gpuerr.From(err).Resource)
	require.Equal(t, 32, a.Reserved())
	require.NoError(t, a.Reserve(3))
	require.Equal(t, 32, a.Reserved())
	require.NoError(t, a.Reserve(80))
	require.Equal(t, 5, m.PagesUsed())
	err = b.Reserve(33)
	require.ErrorIs(t, err, gpuerr.Quota)
	e := gpuerr.From(err)
	require.Equal(t, [3]any{"positions", uint64(33), uint64(32)}, [3]any{e.Resource, e.Asked, e.Available})
	require.Zero(t, b.Reserved())
	require.NoError(t, b.Reserve(32))
	a.Close()
	require.Zero(t, a.Reserved())
	require.Equal(t, 2, m.PagesUsed())
	require.NoError(t, b.Reserve(80))
	c, err := m.NewSequence()
	require.NoError(t, err)
	require.ErrorIs(t, c.Reserve(80), gpuerr.Quota)
}

// Whatever is asked for in whatever order: every page has one owner, and what sequences
// have is what the table says.
func TestPagesHaveOneOwner(t *testing.T) {
	m := load(t, open(t, mock.Options{}), seeded(1, shape(), true, model.F32), Options{Sequences: 5, Positions: 150, PagePositions: 8})
	r := rand.New(rand.NewPCG(4, 4))
	var all []*Sequence
	for range rounds(5000) {
		switch r.IntN(3) {
		case 0:
			if q, err := m.NewSequence(); err == nil {
				all = append(all, q)
			} else {
				require.Len(t, all, 5)
			}
		case 1:
			if len(all) > 0 {
				q, n, free := all[r.IntN(len(all))], r.IntN(81), m.Info().Pages-m.PagesUsed()
				before := q.Reserved()
				if err := q.Reserve(n); err == nil {
					require.GreaterOrEqual(t, q.Reserved(), n)
				} else {
					require.Greater(t, pagesFor(n, 8)-before/8, free)
					require.Equal(t, before, q.Reserved())
				}
			}
		default:
			if len(all) > 0 {
				i := r.IntN(len(all))
				all[i].Close()
				all = slices.Delete(all, i, i+1)
			}
		}
		requireOneOwner(t, m, all)
	}
}

func requireOneOwner(t *testing.T, m *Model, all []*Sequence) {
	t.Helper()
	used := m.PagesUsed()
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	owner := map[uint32]*Sequence{}
	for _, q := range all {
		for i, p := range q.pages {
			require.Nil(t, owner[p])
			owner[p] = q
			require.Less(t, int(p), m.pool.all)
			require.Equal(t, p, m.pool.table[int(q.id)*m.pool.rowPages+i])
		}
	}
	for _, p := range m.pool.pages {
		require.Nil(t, owner[p])
	}
	require.Len(t, owner, used)
}

// Sequences come and go in other goroutines while passes run.
func TestSequencesFromOtherGoroutines(t *testing.T) {
	f := seeded(1, shape(), true, model.F32)
	m := load(t, open(t, mock.Options{}), f, Options{Sequences: 8, PagePositions: 8})
	tokens := randomTokens(rand.New(rand.NewPCG(2, 2)), 20, f.Config.Vocab)
	want := alone(t, m, tokens)
	var others sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				q, err := m.NewSequence()
				if err != nil || q.Reserve(60) != nil {
					t.Error(err)
					return
				}
				_ = m.PagesUsed() + int(m.DeviceTime())
				q.Close()
			}
		})
	}
	for range 10 {
		q := newSequence(t, m, len(tokens))
		for i, id := range tokens {
			require.NoError(t, m.Step(testContext(t), []Row{{q, i, id, true}}))
			require.Equal(t, want[i], bits(m.Logits(0)))
		}
		others.Go(q.Close)
	}
	close(stop)
	others.Wait()
}
