package opencl_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/opencl"
)

func TestMain(m *testing.M) {
	opencl.Main()
	os.Exit(m.Run())
}

func open(t *testing.T) *opencl.Process {
	t.Helper()
	p, err := opencl.Open()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(p.Close)
	return p
}

const double = `__kernel void main_(__global uint *a, __constant uint *by) { a[get_global_id(0)] *= by[0]; }`

func job(source string) *opencl.Job {
	return &opencl.Job{
		Source: source, Grid: [3]uint32{2, 1, 1}, Block: [3]uint32{1, 1, 1},
		Inline: []byte{2, 0, 0, 0}, Bindings: [][]byte{{1, 0, 0, 0, 3, 0, 0, 0}},
	}
}

// requireWorks runs a kernel, in a new child if the last one is gone.
func requireWorks(t *testing.T, p *opencl.Process) {
	t.Helper()
	out, err := p.Run(job(double))
	require.NoError(t, err)
	require.Equal(t, [][]byte{{2, 0, 0, 0, 6, 0, 0, 0}}, out)
}

func TestRun(t *testing.T) {
	p := open(t)
	require.NotEmpty(t, p.Device())
	requireWorks(t, p)
	requireWorks(t, p)
}

func TestBuildLog(t *testing.T) {
	p := open(t)
	_, err := p.Run(job("__kernel void main_(__global uint *a, __constant uint *b) { nothing(); }"))
	require.ErrorContains(t, err, "nothing")
	requireWorks(t, p)
}

func TestEndless(t *testing.T) {
	p := open(t)
	j := job("__kernel void main_(__global volatile uint *a, __constant uint *b) { while (a[0] != 7u) a[0] = 1u; }")
	j.Timeout = 2 * time.Second
	_, err := p.Run(j)
	require.ErrorIs(t, err, opencl.ErrTimeout)
	requireWorks(t, p)
}

func TestCrash(t *testing.T) {
	p := open(t)
	_, err := p.Run(job("__kernel void main_(__global volatile uint *a, __constant uint *b) { *(__global volatile uint *)16 = 1u; }"))
	require.ErrorIs(t, err, opencl.ErrCrashed)
	requireWorks(t, p)
}
