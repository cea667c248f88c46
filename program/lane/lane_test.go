package lane

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
)

func floats(v ...float32) []byte {
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
	}
	return b
}

func words(v ...uint32) []byte {
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], x)
	}
	return b
}

func asFloats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

func asWords(b []byte) []uint32 {
	v := make([]uint32, len(b)/4)
	for i := range v {
		v[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return v
}

func TestVecadd(t *testing.T) {
	p := describe(t, glsl(t, `
layout(local_size_x_id=0,local_size_y_id=1,local_size_z_id=2) in;
layout(std430,binding=0) readonly buffer A{float a[];};
layout(std430,binding=1) readonly buffer B{float b[];};
layout(std430,binding=2) writeonly buffer C{float c[];};
float f(float x, inout float y){ if (x>1.0) {y=2.0; return x*2.0;} return x+y; }
void main(){ uint n=gl_GlobalInvocationID.x; float z=0.;
for(uint i=n;i<c.length();i+=gl_NumWorkGroups.x*gl_WorkGroupSize.x) { if (a[i]==b[i]) continue; c[i]=a[i]+b[i]+f(a[i],z);} }`))
	for _, block := range []uint32{1, 7, 64, 256, 1024} {
		k, err := Compile(p, Options{Block: program.Dim3{X: block, Y: 1, Z: 1}})
		require.NoError(t, err)
		const n = 1000
		a, b, want := make([]float32, n), make([]float32, n), make([]float32, n)
		stride := int(block) * 3
		z := make([]float32, stride)
		for i := range n {
			a[i], b[i] = float32(i%7)/3, float32(i%5)/3
			if a[i] == b[i] {
				continue
			}
			s := &z[i%stride]
			f := a[i] + *s
			if a[i] > 1 {
				*s, f = 2, a[i]*2
			}
			want[i] = a[i] + b[i] + f
		}

		c := make([]byte, 4*n)
		l := &Launch{Grid: program.Dim3{X: 3, Y: 1, Z: 1}, Bindings: [][]byte{floats(a...), floats(b...), c}}
		r := k.NewWorker().Run(l, 0, 3, nil)
		require.Equal(t, Result{}, r)
		require.Equal(t, want, asFloats(c), "block %d", block)
	}
}

func TestTrapOutOfBounds(t *testing.T) {
	p := describe(t, glsl(t, `
layout(local_size_x=64) in;
layout(std430,binding=1) buffer A{uint a[];};
void main(){ a[gl_GlobalInvocationID.x] = 1; }`))
	k, err := Compile(p, Options{})
	require.NoError(t, err)
	r := k.NewWorker().Run(&Launch{Grid: program.Dim3{X: 2, Y: 1, Z: 1}, Bindings: [][]byte{nil, make([]byte, 400)}}, 0, 2, nil)
	require.Equal(t, outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1, Workgroup: 1, Lane: 36, Offset: 400}, r.Trap)
}
