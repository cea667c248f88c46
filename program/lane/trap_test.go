package lane

import (
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/proctest"
	"capgpu/outcome"
	"capgpu/program"
)

// one runs a shader on some workgroups of 64 lanes with two buffers: a is inout, b
// is read.
func one(t *testing.T, body string, groups uint32, a, b []byte, o Options) Result {
	p := describe(t, glsl(t, `layout(local_size_x=64) in;
layout(std430,binding=0) buffer A{uint a[];};
layout(std430,binding=1) readonly buffer B{uint b[];};
layout(push_constant) uniform P{uint n; uint m[3];};
shared uint s[8];
void main(){ uint i=gl_GlobalInvocationID.x;
`+body+"\n}"))
	k, err := Compile(p, o)
	require.NoError(t, err)
	l := &Launch{Grid: program.Dim3{X: groups, Y: 1, Z: 1}, Bindings: [][]byte{a, b}, Inline: words(5, 1, 2, 3)}
	return k.NewWorker().Run(l, 0, uint64(groups), nil)
}

func TestTraps(t *testing.T) {
	const none = outcome.NoBinding
	up := make([]uint32, 128)
	for i := range up {
		up[i] = uint32(i)
	}

	for name, c := range map[string]struct {
		body string
		want outcome.Trap
	}{
		"load":                {"a[i]=b[i*2];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1, Workgroup: 1, Offset: 512}},
		"load, gathered":      {"a[i]=b[b[i]*2];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1, Workgroup: 1, Offset: 512}},
		"load, far":           {"a[i]=b[i==70?0xFFFFFFFFu:0u];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1, Workgroup: 1, Lane: 6, Offset: 4 * 0xFFFFFFFF}},
		"load, all":           {"a[i]=b[200];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1, Offset: 800}},
		"load, some":          {"if(i>7) a[i]=b[200+n];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1, Lane: 8, Offset: 820}},
		"store, wraps around": {"a[i-3u]=1;", outcome.Trap{Kind: outcome.OutOfBounds, Offset: 4 * (1<<32 - 3)}},
		"store, scattered":    {"a[b[i]^127u^b[(i+1)&127u]/127u*999u]=1;", outcome.Trap{Kind: outcome.OutOfBounds, Workgroup: 1, Lane: 62, Offset: 4 * (126 ^ 127 ^ 999)}},
		"shared":              {"s[i/8]=i;", outcome.Trap{Kind: outcome.OutOfBounds, Binding: none, Workgroup: 1, Offset: 32}},
		"inline":              {"a[i]=m[i/64*3];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: none, Workgroup: 1, Offset: 16}},
		"local":               {"uint x[4]; x[b[i]/25]=1; a[i]=x[0];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: none, Workgroup: 1, Lane: 36, Offset: 16}},
		"local, inside":       {"struct { float f; uint y[3]; } x[2]; x[n-5].y[b[i]/16]=1; a[i]=x[0].y[0];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: none, Lane: 48, Offset: 16}},
		"component":           {"a[i]=(uvec3(1,2,3)+i)[b[i]/16];", outcome.Trap{Kind: outcome.OutOfBounds, Binding: none, Lane: 48, Offset: 12}},
		"division":            {"a[i]=7/(b[i]^67);", outcome.Trap{Kind: outcome.DivideByZero, Binding: none, Workgroup: 1, Lane: 3}},
		"division, uniform":   {"if(i==9) a[i]=7%(n-5);", outcome.Trap{Kind: outcome.DivideByZero, Binding: none, Lane: 9}},
		"atomic":              {"atomicAdd(a[i*2],1u);", outcome.Trap{Kind: outcome.OutOfBounds, Workgroup: 1, Offset: 512}},
		"barrier":             {"if(b[i]>5) barrier(); a[i]=1;", outcome.Trap{Kind: outcome.DivergentBarrier, Binding: none, Lane: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, check := range []bool{false, true} {
				r := one(t, c.body, 2, words(up...), words(up...), Options{Check: check})
				require.Equal(t, Result{Trap: c.want}, r, "check %v", check)
			}
		})
	}
}

func TestMisaligned(t *testing.T) {
	a := make([]byte, 1024)
	r := one(t, "a[i]=b[i];", 1, a, make([]byte, 1024)[2:], Options{})
	require.Equal(t, outcome.Trap{Kind: outcome.Misaligned, Binding: 1}, r.Trap)
}

// TestReturnedLanes: a barrier does not wait for lanes that have returned.
func TestReturnedLanes(t *testing.T) {
	a := make([]byte, 256)
	r := one(t, "if(i>=40) return; s[i/8]=i; barrier(); a[i]=s[i/8];", 1, a, nil, Options{})
	require.Equal(t, Result{}, r)
	require.Equal(t, uint32(39), asWords(a)[32])
	require.Zero(t, asWords(a)[40])
}

func TestSharedStartsAsCD(t *testing.T) {
	a := make([]byte, 512)
	require.Equal(t, Result{}, one(t, "a[i]=s[i%8]; s[i%8]=1;", 2, a, nil, Options{}))
	for _, v := range asWords(a) {
		require.Equal(t, uint32(0xCDCDCDCD), v)
	}
}

func TestStop(t *testing.T) {
	for name, body := range map[string]string{
		"uniform":   "for(;;) s[0]=1;",
		"divergent": "while(true) { if(b[i&7]==i) s[0]=1; }",
		"slow":      "float x=float(i); while(true) { for(int k=0;k<100;k++) x=pow(x,1.01)+sin(x)*exp(x); s[0]=uint(x); }",
	} {
		p := describe(t, glsl(t, "layout(local_size_x=1024) in;\nlayout(std430,binding=1) readonly buffer B{uint b[];};\nshared uint s[8];\nvoid main(){ uint i=gl_GlobalInvocationID.x;\n"+body+"\n}"))
		k, err := Compile(p, Options{})
		require.NoError(t, err)
		var stop atomic.Uint32
		const before = 10 * time.Millisecond
		time.AfterFunc(before, func() { stop.Store(1) })
		w := k.NewWorker()
		l := &Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{nil, make([]byte, 32)}}
		var r Result
		took := proctest.CPU(func() { r = w.Run(l, 0, 1, &stop) })
		require.Equal(t, Result{Stopped: true}, r, name)
		t.Logf("%s: stopped after %v", name, took)
		require.Less(t, took, before+time.Second, name)
		// The worker still works.
		require.Equal(t, Result{Stopped: true}, w.Run(l, 0, 1, &stop), name)
	}
}

// TestMemoryGone: if memory ends under a program, Run panics, and the worker still
// works.
func TestMemoryGone(t *testing.T) {
	p := describe(t, glsl(t, "layout(local_size_x=64) in;\nlayout(std430,binding=0) buffer A{uint a[];};\nvoid main(){ uint i=gl_GlobalInvocationID.x;\nif((i&1)==0) a[i]+=1u; else a[i]+=2u; }"))
	k, err := Compile(p, Options{})
	require.NoError(t, err)
	fd, err := unix.MemfdCreate("gone", 0)
	require.NoError(t, err)
	defer unix.Close(fd)

	require.NoError(t, unix.Ftruncate(fd, 8192))
	mem, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { _ = unix.Munmap(mem) }()

	require.NoError(t, unix.Ftruncate(fd, 4096))
	w := k.NewWorker()
	l := &Launch{Grid: program.Dim3{X: 32, Y: 1, Z: 1}, Bindings: [][]byte{mem}}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))

	require.Panics(t, func() { w.Run(l, 0, 32, nil) })
	require.Equal(t, uint32(16), w.Workgroup())
	good := make([]byte, 4*64)
	require.Equal(t, Result{}, w.Run(&Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{good}}, 0, 1, nil))
	require.Equal(t, []uint32{1, 2, 1, 2}, asWords(good)[:4])
}

func TestRunAllocatesNothing(t *testing.T) {
	p := describe(t, glsl(t, "layout(local_size_x=64) in;\nlayout(std430,binding=0) buffer A{uint a[];};\nvoid main(){ uint i=gl_GlobalInvocationID.x;\nfor(uint k=0;k<i;k++) { switch(k%5) { case 0: a[i]+=1u; break; case 3: atomicAdd(a[0],2u); continue; } a[i]^=k; } }"))
	k, err := Compile(p, Options{})
	require.NoError(t, err)
	w := k.NewWorker()
	l := &Launch{Grid: program.Dim3{X: 2, Y: 1, Z: 1}, Bindings: [][]byte{make([]byte, 512)}}
	require.Zero(t, testing.AllocsPerRun(5, func() { w.Run(l, 0, 2, nil) }))
}

func TestSpecialisation(t *testing.T) {
	p := describe(t, glsl(t, `layout(local_size_x_id=0,local_size_y_id=1) in;
layout(constant_id=3) const uint N=1;
layout(constant_id=4) const bool B=false;
layout(std430,binding=0) buffer A{uint a[];};
shared uint s[N];
const uint M = N*3u+(B?1u:0u);
void main(){ uint i=gl_LocalInvocationIndex; s[i%N]=i; barrier(); if (i==0u) { a[0]=gl_WorkGroupSize.x; a[1]=gl_WorkGroupSize.y; a[2]=s.length(); a[3]=M; a[4]=s[N-1u]; } }`))

	a := make([]byte, 20)
	run := func(o Options) Result {
		k, err := Compile(p, o)
		require.NoError(t, err)
		return k.NewWorker().Run(&Launch{Grid: program.Dim3{X: 1, Y: 1, Z: 1}, Bindings: [][]byte{a}}, 0, 1, nil)
	}

	require.Equal(t, Result{}, run(Options{Block: program.Dim3{X: 5, Y: 3, Z: 1}, SharedBytes: 32}))
	require.Equal(t, []uint32{5, 3, 8, 24, 7}, asWords(a))
	for _, o := range []Options{
		{Block: program.Dim3{X: 5, Y: 3, Z: 2}}, {Block: program.Dim3{X: 1025, Y: 1, Z: 1}}, {SharedBytes: 33}, {SharedBytes: 1 << 20},
		{SubgroupSize: 7}, {Block: program.Dim3{X: 1 << 31, Y: 2, Z: 1}},
	} {
		_, err := Compile(p, o)
		var r *program.Refusal
		require.ErrorAs(t, err, &r)
		require.Equal(t, "P-GPU-5003", r.Code)
	}
}

// TestTooMuch: a program that would need more memory than a worker may have is
// refused.
func TestTooMuch(t *testing.T) {
	p := describe(t, glsl(t, "layout(local_size_x=1024) in;\nlayout(std430,binding=0) buffer A{uint a[];};\nvoid main(){ uint i=gl_LocalInvocationIndex; uint x[5000]; x[a[0]]=i; a[i]=x[a[1]]; }"))
	_, err := Compile(p, Options{})
	var r *program.Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, "E-GPU-4012", r.Code)
}

// A launch that waits where it would be stopped goes on from there as if nothing had been.
func TestWait(t *testing.T) {
	p := describe(t, glsl(t, "layout(local_size_x=64) in;\nlayout(std430,binding=0) buffer A{uint a[];};\nvoid main(){ uint i=gl_GlobalInvocationID.x; uint x=i; for(uint k=0;k<500+i%7;k++) x=x*1664525u+k; a[i]=x; }"))
	k, err := Compile(p, Options{})
	require.NoError(t, err)
	w := k.NewWorker()
	run := func(stop *atomic.Uint32, wait func() bool) (Result, []byte) {
		out := make([]byte, 4*256)
		l := &Launch{Grid: program.Dim3{X: 4, Y: 1, Z: 1}, Bindings: [][]byte{out}, Wait: wait}
		return w.Run(l, 0, 4, stop), out
	}
	_, want := run(nil, nil)
	var stop atomic.Uint32
	stop.Store(1)
	waits := 0
	r, got := run(&stop, func() bool { waits++; return true })
	require.Equal(t, Result{}, r)
	require.Equal(t, want, got)
	require.Greater(t, waits, 1000)
	left := waits / 2
	r, _ = run(&stop, func() bool { left--; return left > 0 })
	require.Equal(t, Result{Stopped: true}, r)
	_, got = run(nil, nil)
	require.Equal(t, want, got, "the worker is as good as new")
}
