package llama

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu/backend/mock"
	"capgpu/model"
	modelload "capgpu/model/load"
	"capgpu/model/modeltest"
)

// engines are the two ways in which the mock device runs programs.
var engines = map[string]mock.Options{"native": {}, "lane": {LaneOnly: true}}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// open is a session of a service of its own.
func open(t testing.TB, o mock.Options) *client.Session {
	t.Helper()
	return sessiontest.Start(t, sessiontest.Options{Mock: o}).Open(t)
}

// load loads a model, which is closed with the test.
func load(t testing.TB, s *client.Session, f *model.File, o Options) *Model {
	t.Helper()
	m, err := Load(testContext(t), s, f, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close(context.Background())) })
	return m
}

func newSequence(t testing.TB, m *Model, positions int) *Sequence {
	t.Helper()
	q, err := m.NewSequence()
	require.NoError(t, err)
	require.NoError(t, q.Reserve(positions))
	return q
}

// stories is the real model, from one of its files.
func stories(t testing.TB, file string) *model.File {
	t.Helper()
	f, err := modelload.Open(filepath.Join(modeltest.Stories(t), file))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

const (
	storiesBin  = "stories260K.bin"
	storiesGGUF = "stories260Ktok512.gguf"
)

// rounds is smaller where each round is slow.
func rounds(n int) int {
	if raceEnabled {
		return n / 5
	}
	return n
}
