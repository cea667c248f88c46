package llama

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpu/backend/mock"
	"capgpu/model"
)

// Two models in two sessions of one device, each within an exact budget of its own.
// Each generates what it generates alone, also after the other has died in the
// middle.
func TestTwoModelsShareADevice(t *testing.T) {
	s := open(t, mock.Options{})
	o := Options{Sequences: 1}
	const tokens = 75
	generate := func(m *Model, q *Sequence, at func(i int)) (text []int32, err error) {
		err = m.Greedy(context.Background(), q, 1, 0, tokens, func(id int32) bool {
			at(len(text))
			text = append(text, id)
			return true
		})
		return text, err
	}

	var files []*model.File
	var want [][]int32
	for i, typ := range []model.Type{model.F32, model.Q8_0} {
		f := seeded(uint64(20+i), shape(), true, typ)
		m := load(t, s, f, o)
		text, err := generate(m, newSequence(t, m, tokens), func(int) {})
		require.NoError(t, err)
		require.NoError(t, m.Close(testContext(t)))
		files, want = append(files, f), append(want, text)
	}

	require.NotEqual(t, want[0], want[1])

	var models []*Model
	var sessions []*client.Session
	for _, f := range files {
		size, err := Plan(f, o)
		require.NoError(t, err)
		child := restrict(t, s, client.Policy{Limits: map[string]uint64{"deviceMemory": size.DeviceBytes()}})
		sessions, models = append(sessions, child), append(models, load(t, child, f, o))
		_, err = child.CreateBuffer(testContext(t), size.LoadBytes+1, client.Storage)
		require.Error(t, err, "there is no more")
	}

	for round := range 6 {
		var both sync.WaitGroup
		var text [2][]int32
		var errs [2]error
		for i, m := range models {
			q := newSequence(t, m, tokens)
			both.Go(func() {
				defer q.Close()
				text[i], errs[i] = generate(m, q, func(k int) {
					if i == 1 && round == 5 && k == 20 {
						_ = sessions[1].Close(context.Background())
					}
				})
			})
		}

		both.Wait()
		require.NoError(t, errs[0])
		require.Equal(t, want[0], text[0])
		if round < 5 {
			require.NoError(t, errs[1])
			require.Equal(t, want[1], text[1])
		} else {
			require.Error(t, errs[1])
			require.Equal(t, want[1][:len(text[1])], text[1], "what was handed out is true")
		}
	}
}
