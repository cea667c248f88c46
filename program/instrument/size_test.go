package instrument_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/program/instrument"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// TestLargePrograms: modules near the limits of the profile take time in proportion.
func TestLargePrograms(t *testing.T) {
	for name, body := range map[string]func(b *spirvtest.Builder, u, x, lane spirv.ID){
		"many loops": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			i := b.Local(u)
			for range 3000 {
				b.Store(i, b.U32(0))
				b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), lane) },
					func(spirv.ID, spirv.ID) bool { b.Store(x, b.Op(spirv.OpIAdd, u, b.Load(u, x), lane)); return true },
					func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			}
		},
		"loops in each other": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			var locals []spirv.ID
			for range 91 {
				locals = append(locals, b.Local(u))
			}
			var nest func(depth int)
			nest = func(depth int) {
				i := locals[depth]
				b.Store(i, b.U32(0))
				b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), lane) },
					func(spirv.ID, spirv.ID) bool {
						b.Store(x, lane)
						if depth > 0 {
							nest(depth - 1)
						}
						return true
					},
					func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			}
			for range 30 {
				nest(90)
			}
		},
		"members of shared memory": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			members := make([]spirv.ID, 4000)
			for k := range members {
				members[k] = u
			}
			s := b.Shared(b.Array(b.Struct(members...), b.U32(2), 0))
			for k := range uint32(4000) {
				p := b.Access(spirv.StorageClassWorkgroup, u, s, b.Op(spirv.OpBitwiseAnd, u, lane, b.U32(1)), b.U32(k))
				b.Store(x, b.Load(u, p))
			}
		},
		"large values": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			t := b.Array(u, b.U32(1000), 4)
			buffer := b.BufferOf(1, b.Block([]uint32{0}, b.RuntimeArray(t, 4000)))
			for range 400 {
				b.Load(t, b.Access(spirv.StorageClassStorageBuffer, t, buffer, b.U32(0), lane))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := spirvtest.New()
			u := b.Uint(32)
			b.Buffer(0, u, 4)
			in := b.Input(u, spirv.BuiltInLocalInvocationIndex)
			main := b.Func(b.Void())
			lane := b.Load(u, in)
			body(b, u, b.Local(u), lane)
			b.Return()
			b.End()
			b.Compute(main, "main", 64, 1, 1)

			var p *verify.Program
			var i *instrument.Program
			var err error
			verifying := proctest.CPU(func() { p, err = verify.Admit(b.Bytes(), verify.DefaultLimits()) })
			require.NoError(t, err)
			took := proctest.CPU(func() { i, err = instrument.Instrument(p) })
			require.NoError(t, err)
			t.Logf("%d KiB, admitted in %v, instrumented in %v, then %d KiB", len(p.Module.Words)/256, verifying, took, len(i.Module)/1024)
			require.Less(t, took, time.Second)
		})
	}
}
