package llama

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/model"
)

// Sequences and pages are handed out as long as there are some, and errors count in
// positions.
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

// Under any order of requests every page has one owner, and the table agrees with
// the sequences.
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
	more := func(int32) bool { return true }
	for want, n := range map[string]int{"n: 0": 0, "position: 3 to 64": 62, "position: 3 to 9223372036854775807": math.MaxInt - 2} {
		err := m.Greedy(ctx, q, 1, 3, n, more)
		require.ErrorIs(t, err, gpuerr.Invalid, want)
		require.ErrorContains(t, err, want)
	}

	require.ErrorContains(t, m.Greedy(ctx, q, 1, 4, 1, more), "position: 4 goes on from 3")
	require.ErrorContains(t, m.Embed(ctx, q, nil, make([]float32, 64)), "tokens: ")
	require.ErrorContains(t, m.Embed(ctx, q, []int32{1}, make([]float32, 63)), "out: ")
	require.ErrorContains(t, m.Embed(ctx, r, make([]int32, 40), make([]float32, 64)), "position: ")
	require.Equal(t, 3, q.Written())
	require.NoError(t, m.Step(ctx, []Row{{q, 3, 1, true}, {r, 0, 1, true}}))
}
