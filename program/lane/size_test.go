package lane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// TestLargePrograms: programs near the limits compile in time in proportion.
func TestLargePrograms(t *testing.T) {
	for name, body := range map[string]func(b *spirvtest.Builder, u, x spirv.ID, lane spirv.ID){
		"a long block": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			for range 9000 {
				b.Store(x, b.Op(spirv.OpIAdd, u, b.Op(spirv.OpIMul, u, b.Load(u, x), lane), b.U32(3)))
			}
		},
		"many selections": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			for k := range 3000 {
				c := b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, x), b.U32(uint32(k)))
				b.If(c, func() bool { b.Store(x, b.Op(spirv.OpIAdd, u, b.Load(u, x), lane)); return true }, nil)
			}
		},
		"many loops": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			i := b.Local(u)
			for range 1500 {
				b.Store(i, b.U32(0))
				b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), lane) },
					func(spirv.ID, spirv.ID) bool { b.Store(x, b.Op(spirv.OpIAdd, u, b.Load(u, x), lane)); return true },
					func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			}
		},
		"many variables in a loop": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			i := b.Local(u)
			var vars []spirv.ID
			for range 800 {
				vars = append(vars, b.Local(u))
			}
			b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), lane) },
				func(spirv.ID, spirv.ID) bool {
					for k := range vars {
						b.Store(vars[k], b.Op(spirv.OpIAdd, u, b.Load(u, vars[(k+1)%len(vars)]), lane))
					}
					return true
				},
				func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			b.Store(x, b.Load(u, vars[5]))
		},
		"deep nesting": func(b *spirvtest.Builder, u, x, lane spirv.ID) {
			var nest func(depth int)
			nest = func(depth int) {
				if depth == 60 {
					b.Store(x, b.Op(spirv.OpIAdd, u, b.Load(u, x), lane))
					return
				}
				i := b.Local(u)
				b.Store(i, b.U32(0))
				b.Loop(func() spirv.ID { return b.Op(spirv.OpULessThan, b.Bool(), b.Load(u, i), b.Load(u, x)) },
					func(spirv.ID, spirv.ID) bool { nest(depth + 1); return true },
					func() { b.Store(i, b.Op(spirv.OpIAdd, u, b.Load(u, i), b.U32(1))) })
			}
			for range 20 {
				nest(0)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := spirvtest.New()
			u := b.Uint(32)
			out := b.Buffer(0, u, 4)
			index := b.Input(u, spirv.BuiltInLocalInvocationIndex)
			main := b.Func(b.Void())
			x := b.Local(u)
			lane := b.Load(u, index)
			body(b, u, x, lane)
			b.Store(b.Access(spirv.StorageClassStorageBuffer, u, out, b.U32(0), lane), b.Load(u, x))
			b.Return()
			b.End()
			b.Compute(main, "main", 16, 1, 1)
			p := describe(t, b.Bytes())
			start := time.Now()
			k, err := Compile(p, Options{})
			require.NoError(t, err)
			took := time.Since(start)
			t.Logf("%d bytes: %v, a worker has %d bytes", len(b.Bytes()), took, k.MemoryBytes())
			require.Less(t, took, 5*time.Second)
		})
	}
}
