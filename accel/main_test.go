package accel_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/accel"
	"capgpu/driver/session/sessiontest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// open opens a GPU on a service of its own, which checks at the end that nothing is left of it.
func open(t testing.TB, o accel.Options) *accel.GPU {
	t.Helper()
	svc := sessiontest.Start(t, sessiontest.Options{})
	g, err := accel.Open(testContext(t), svc.Dial(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

func kernel(t testing.TB, g *accel.GPU, name string) *accel.Kernel {
	t.Helper()
	k, err := g.Kernel(testContext(t), name)
	require.NoError(t, err)
	return k
}

func alloc[T any, S accel.Space](t testing.TB, g *accel.GPU, n int) *accel.Buffer[T, S] {
	t.Helper()
	b, err := accel.Alloc[T, S](testContext(t), g, n)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Free(context.Background()) }) // after the GPU: it unmaps
	return b
}

func stream(t testing.TB, g *accel.GPU) *accel.Stream[accel.Device] {
	t.Helper()
	s, err := accel.NewStream[accel.Device](testContext(t), g)
	require.NoError(t, err)
	return s
}

func slice[T any, S accel.HostSide](t testing.TB, b *accel.Buffer[T, S]) []T {
	t.Helper()
	values, err := accel.Slice(b)
	require.NoError(t, err)
	return values
}
