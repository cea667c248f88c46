package lane

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
)

// checked runs a shader of 64 lanes with a buffer of 128 words on some workgroups.
func checked(t *testing.T, groups uint32, body string) (Result, []Finding) {
	p := describe(t, glsl(t, `#extension GL_KHR_shader_subgroup_basic : require
layout(local_size_x=64) in;
layout(std430,binding=0) buffer A{uint a[];};
shared uint s[64];
void main(){ uint i=gl_LocalInvocationIndex;
`+body+"\n}"))
	k, err := Compile(p, Options{Check: true})
	require.NoError(t, err)
	w := k.NewWorker()
	r := w.Run(&Launch{Grid: program.Dim3{X: groups, Y: 1, Z: 1}, Bindings: [][]byte{make([]byte, 4*128)}}, 0, uint64(groups), nil)
	return r, w.Findings()
}

func TestCheckerFinds(t *testing.T) {
	const line = "a.comp:8"
	for _, c := range []struct {
		name, body string
		groups     uint32
		kind       outcome.TrapKind
		want       Finding
	}{
		{"read after write", "s[i]=i; barrier(); s[i]=2*i;\na[i]=s[63-i];", 1, outcome.DataRace,
			Finding{Message: "lane 0 of workgroup 0 reads shared s at offset 252, which lane 63 wrote with no barrier between", OtherLane: 63, Binding: noBinding, Offset: 252}},
		{"write after read", "s[i]=i; barrier(); uint x=s[(i+1)&63];\ns[i]=x;", 1, outcome.DataRace,
			Finding{Message: "lane 0 of workgroup 0 writes shared s at offset 0, which lane 63 read with no barrier between", OtherLane: 63, Binding: noBinding}},
		{"two writes", "\na[i/2]=i;", 1, outcome.DataRace,
			Finding{Message: "lane 1 of workgroup 0 writes binding 0 at offset 0, which lane 0 wrote with no barrier between", Lane: 1}},
		{"across workgroups", "\na[i]=gl_WorkGroupID.x;", 2, outcome.DataRace,
			Finding{Message: "lane 0 of workgroup 1 writes binding 0 at offset 0, which lane 0 of workgroup 0 wrote with no barrier between", Workgroup: 1}},
		{"atomic and plain", "s[i]=0; barrier(); atomicAdd(s[0],1u);\na[i]=s[0];", 1, outcome.DataRace,
			Finding{Message: "lane 0 of workgroup 0 reads shared s at offset 0, which lane 63 changed atomically with no barrier between", OtherLane: 63, Binding: noBinding}},
		{"uninitialised", "if(i<10) s[i]=1; barrier();\na[i]=s[i];", 1, outcome.Uninitialized,
			Finding{Message: "lane 10 of workgroup 0 reads shared s at offset 40, which nobody has written", Lane: 10, Binding: noBinding, Offset: 40}},
		{"returned before a barrier", "if(i>=60) return;\nbarrier();", 1, outcome.DivergentBarrier,
			Finding{Message: "lane 0 of workgroup 0 is at a barrier that lane 60, which has returned, did not come to", OtherLane: 60, Binding: noBinding}},
		{"divergent barrier", "if(i>=60)\nbarrier();\na[i]=1u;", 1, outcome.DivergentBarrier,
			Finding{Message: "lane 60 of workgroup 0 is at a barrier that other lanes did not come to", Lane: 60, Binding: noBinding}},
		{"out of bounds", "\na[i*4]=1u;", 1, outcome.OutOfBounds,
			Finding{Message: "lane 32 of workgroup 0 uses memory beyond its end: offset 512 of binding 0", Lane: 32, Offset: 512}},
		{"division", "\na[i]=7u/i;", 1, outcome.DivideByZero,
			Finding{Message: "lane 0 of workgroup 0 divides by zero", Binding: noBinding}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, found := checked(t, c.groups, c.body)
			for i := range found {
				require.NotZero(t, found[i].Off)
				found[i].Off = 0
			}
			want := c.want
			want.Kind, want.Source = c.kind, line
			require.Contains(t, found, want)
			require.Equal(t, found[0].Kind, r.Trap.Kind)
		})
	}
}

func TestCheckerLetsPass(t *testing.T) {
	for name, body := range map[string]string{
		"barriers":            "s[i]=i; barrier(); uint x=s[63-i]; barrier(); s[63-i]=x; barrier(); a[i]=s[i];",
		"atomics":             "if(i==0) s[0]=0; barrier(); atomicAdd(s[0],i); atomicMax(a[0],i); barrier(); a[i+1]=s[0];",
		"equal values":        "s[0]=5; barrier(); a[i]=s[0];",
		"own words":           "for(int k=0;k<3;k++){ s[i]=k; a[i]+=s[i]; }",
		"subgroup barrier":    "s[i]=i; subgroupBarrier(); a[i]=s[i^1];",
		"handed over by flag": "a[64+i]=1; memoryBarrier(); barrier(); if(i==0 && atomicAdd(a[0],1u)==1u) a[1]=a[64];",
	} {
		groups := uint32(1)
		if name == "handed over by flag" {
			groups = 2
		}
		r, found := checked(t, groups, body)
		require.Empty(t, found, name)
		require.Equal(t, Result{}, r, name)
	}
}
