package host

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

var update = flag.Bool("update", false, "write selftest.spv anew")

// TestModule: the module of the self-test is this one.
//
//	for lane of 8 lanes:
//	    sum = shared[lane]                      // 0
//	    for i = 0; i < rounds; i++ { sum = sum·1664525 + i + lane }
//	    shared[lane] = 0xFFFFFFFF
//	    out[8·workgroup + lane] = sum
func TestModule(t *testing.T) {
	b := spirvtest.New()
	u := b.Uint(32)
	out := b.Buffer(0, u, 4)
	push := b.Push([]uint32{0}, u)
	shared := b.Shared(b.Array(u, b.U32(selfTestLanes), 0))
	group, index := b.Input(b.Vec(u, 3), spirv.BuiltInWorkgroupId), b.Input(u, spirv.BuiltInLocalInvocationIndex)

	main := b.Func(b.Void())
	sum, i := b.Local(u), b.Local(u)
	lane := b.Load(u, index)
	rounds := b.Load(u, b.Access(spirv.StorageClassPushConstant, u, push, b.U32(0)))
	left := b.Access(spirv.StorageClassWorkgroup, u, shared, lane)
	b.Store(sum, b.Load(u, left))
	b.Store(i, b.U32(0))
	b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), rounds) },
		func(spirv.ID, spirv.ID) bool {
			next := b.Op(spirv.OpIMul, u, b.Load(u, sum), b.U32(selfTestFactor))
			b.Store(sum, b.Op(spirv.OpIAdd, u, b.Op(spirv.OpIAdd, u, next, b.Load(u, i)), lane))
			return true
		},
		func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
	b.Store(left, b.U32(1<<32-1))
	x := b.Load(u, b.Access(spirv.StorageClassInput, u, group, b.U32(0)))
	at := b.Op(spirv.OpIAdd, u, b.Op(spirv.OpIMul, u, x, b.U32(selfTestLanes)), lane)
	b.Store(b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), at), b.Load(u, sum))
	b.Return()
	b.End()
	b.Compute(main, "main", selfTestLanes, 1, 1)

	if *update {
		require.NoError(t, os.WriteFile("selftest.spv", b.Bytes(), 0o644))
	}
	require.True(t, bytes.Equal(selfTestModule, b.Bytes()), "make it anew with -update")
}
