package lane

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/library"
)

// A kernel with a loop, with contention for a word, or with transcendental
// functions is not steady, for any size.
func TestSteady(t *testing.T) {
	const head = `
layout(local_size_x_id=0,local_size_y_id=1,local_size_z_id=2) in;
layout(std430,binding=0) buffer A{uint a[];};
layout(std430,binding=1) buffer B{float b[];};
shared uint s[64];
`

	for body, want := range map[string]bool{
		`void main(){ a[gl_GlobalInvocationID.x] += 3; }`:                                                                  true,
		`void main(){ uint i=gl_GlobalInvocationID.x; if (i < a.length()) { if (a[i]>7) a[i]=1; else b[i]=sqrt(b[i]); } }`: true,
		`void main(){ s[gl_LocalInvocationIndex%64]=a[0]; barrier(); a[gl_GlobalInvocationID.x]=s[0]; }`:                   true,
		`void main(){ for (uint i=gl_GlobalInvocationID.x; i<a.length(); i+=gl_NumWorkGroups.x*64) a[i]=1; }`:              false,
		`void main(){ uint i=a[0]; do { i=a[i]; } while (i!=0); }`:                                                         false,
		`void main(){ atomicAdd(a[0], 1); }`:                                                                               false,
		`void main(){ uint i=gl_GlobalInvocationID.x; b[i]=sin(b[i]); }`:                                                   false,
		`void main(){ uint i=gl_GlobalInvocationID.x; b[i]=exp(b[i]); }`:                                                   false,
		`void main(){ uint i=gl_GlobalInvocationID.x; b[i]=pow(b[i], 0.3); }`:                                              false,
		`void main(){ uint i=gl_GlobalInvocationID.x; b[i]=mod(b[i], 0.3); }`:                                              false,
	} {
		p := describe(t, glsl(t, head+body))
		for _, n := range []uint32{1, 64, 1000} {
			k, err := Compile(p, Options{Block: program.Dim3{X: n, Y: 1, Z: 1}})
			require.NoError(t, err)
			cost, ok := k.Steady()
			require.Equal(t, want, ok, "%d lanes: %s", n, body)
			require.Greater(t, cost.Nanos(3, uint64(n)), cost.Nanos(2, uint64(n)))
		}
		k, err := Compile(p, Options{Block: program.Dim3{X: 64, Y: 1, Z: 1}, Check: true})
		require.NoError(t, err)
		_, ok := k.Steady()
		require.False(t, ok, "checked")
	}

	for _, name := range []string{"spin", "vecadd_f32", "topk_f32", "histogram_u32"} {
		bundle, _ := library.Bundle(name)
		k, err := Compile(admit(t, bundle), Options{})
		require.NoError(t, err)
		_, ok := k.Steady()
		require.False(t, ok, name)
	}
}

// A kernel of few but slow instructions is not estimated as short.
func TestCost(t *testing.T) {
	const head = `
layout(local_size_x_id=0,local_size_y_id=1,local_size_z_id=2) in;
layout(std430,binding=0) buffer A{uint a[];};
layout(std430,binding=1) buffer B{float b[];};
`

	var cases strings.Builder
	for k := range 200 {
		fmt.Fprintf(&cases, "case %d: p=i*%d; q=i+%d; break; ", 3*k, k+3, k)
	}

	for name, c := range map[string]struct {
		body  string
		least uint64 // half of what a group of 256 lanes takes on a server of 2023
	}{
		"large array":         {`void main(){ uint x[4000]; x[a[0]]=1; a[0]=x[a[1]]; }`, 60_000},
		"large array of long": {`void main(){ double x[2000]; x[a[0]]=1; a[0]=uint(x[a[1]]); }`, 60_000},
		"parted lanes":        {`void main(){ uint i=gl_GlobalInvocationID.x, p=0, q=0; switch (a[i]) { ` + cases.String() + `} a[i]=p+q; }`, 15_000},
		"Go, number by number": {`void main(){ uint i=gl_GlobalInvocationID.x; float p=b[i], q; ` +
			strings.Repeat("p=modf(p,q)+q*1.3; ", 20) + `b[i]=p; }`, 25_000},
	} {
		k, err := Compile(describe(t, glsl(t, head+c.body)), Options{Block: program.Dim3{X: 256, Y: 1, Z: 1}})
		require.NoError(t, err)
		cost, ok := k.Steady()
		require.True(t, ok, name)
		require.Greater(t, cost.Nanos(1, 256), c.least, name)
		require.Greater(t, cost.Nanos(10, 256), 10*c.least, name)
	}

	require.EqualValues(t, math.MaxInt64, Cost{lane: math.MaxUint64}.Nanos(1, 1024))
	require.EqualValues(t, math.MaxInt64, Cost{lane: 1 << 50}.Nanos(1<<48, 1024))
	require.EqualValues(t, math.MaxInt64, Cost{group: 1 << 50}.Nanos(1<<48, 1))
}
