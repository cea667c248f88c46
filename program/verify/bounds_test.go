package verify_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
	"capgpu/program/verify"
)

// hostile are large modules of one shape each, made to be as expensive as possible
// for their size. n is about their number of words.
var hostile = map[string]func(b *builder, n int){
	"types": func(b *builder, n int) {
		u := b.Uint(32)
		for range n / 3 {
			b.Struct(u)
		}
		empty(b)
	},
	"pointers": func(b *builder, n int) {
		u := b.Uint(32)
		for range n / 7 {
			b.Declare(spirv.OpTypePointer, b.ID(), spirv.StorageClassFunction, b.Struct(u))
		}
		empty(b)
	},
	"wide struct": func(b *builder, n int) {
		u := b.Uint(32)
		for range n / 20000 {
			members := make([]id, 20000)
			for i := range members {
				members[i] = u
			}
			u = b.Struct(members...)
		}
		b.BufferOf(0, b.Block([]uint32{0}, u))
		empty(b)
	},
	"constants": func(b *builder, n int) {
		u := b.Uint(32)
		for i := range n / 4 {
			b.Declare(spirv.OpConstant, u, b.ID(), i)
		}
		empty(b)
	},
	"constant operations": func(b *builder, n int) {
		t := b.Vec(b.Uint(32), 4)
		x := b.Null(t)
		for range n / 6 {
			x = b.SpecOp(t, spirv.OpIAdd, x, x)
		}
		empty(b)
	},
	"annotations": func(b *builder, n int) {
		v := b.Shared(b.Uint(32))
		for range n / 4 {
			b.Decorate(v, spirv.DecorationUserSemantic, "")
		}
		empty(b)
	},
	"functions": func(b *builder, n int) {
		for range n / 9 {
			b.Func(b.Void())
			b.Return()
			b.End()
		}
		empty(b)
	},
	"chain of calls": func(b *builder, n int) {
		var f id
		for i := range n / 13 {
			g := b.Func(b.Void())
			if i > 0 {
				b.Call(b.Void(), f)
			}
			b.Return()
			b.End()
			f = g
		}
		kernel(b, func() { b.Call(b.Void(), f) })
	},
	"tree of calls": func(b *builder, n int) {
		var f id
		for i := range n / 25 {
			g := b.Func(b.Void())
			for range min(i, 4) {
				b.Call(b.Void(), f)
			}
			b.Return()
			b.End()
			f = g
		}
		kernel(b, func() { b.Call(b.Void(), f) })
	},
	"blocks": func(b *builder, n int) {
		kernel(b, func() {
			for range n / 4 {
				next := b.ID()
				b.Branch(next)
				b.Begin(next)
			}
		})
	},
	"selections": func(b *builder, n int) {
		c := b.BoolConst(true)
		kernel(b, func() {
			for range n / 13 {
				b.If(c, func() bool { return true }, nil)
			}
		})
	},
	"nested selections": func(b *builder, n int) {
		c := b.BoolConst(true)
		kernel(b, func() {
			var nest func(n int)
			nest = func(n int) {
				if n > 0 {
					b.If(c, func() bool { nest(n - 1); return true }, nil)
				}
			}
			for range n / 13 / 120 {
				nest(120)
			}
		})
	},
	"loops": func(b *builder, n int) {
		c := b.BoolConst(true)
		kernel(b, func() {
			for range n / 27 {
				b.Loop(func() id { return c }, func(id, id) bool { return true }, func() {})
			}
		})
	},
	"switch": func(b *builder, n int) {
		blocks(b, n/6+2, func(i int, l []id) {
			merge := l[len(l)-1]
			switch {
			case i == 0:
				args := []any{b.U32(1), merge}
				for j := 1; j < min(len(l)-1, 30000); j++ {
					args = append(args, j, l[j])
				}
				b.SelectionMerge(merge)
				b.Do(spirv.OpSwitch, args...)
			case l[i] == merge:
				b.Return()
			default:
				b.Branch(l[i+1]) // each case falls through
			}
		})
	},
	"arithmetic": func(b *builder, n int) {
		u, one := b.Uint(32), b.U32(1)
		kernel(b, func() {
			for range n / 5 {
				b.Op(spirv.OpIAdd, u, one, one)
			}
		})
	},
	"shared memory": func(b *builder, n int) {
		u := b.Uint(32)
		s := b.Shared(b.Array(u, b.U32(64), 0))
		kernel(b, func() {
			for range n / 18 {
				p := b.Access(spirv.StorageClassWorkgroup, u, s, b.Op(spirv.OpIAdd, u, b.U32(1), b.U32(2)))
				b.Store(p, b.Load(u, p))
			}
		})
	},
	"endless loops in each other": func(b *builder, n int) {
		u := b.Uint(32)
		gid := b.Input(b.Vec(u, 3), spirv.BuiltInLocalInvocationId)
		kernel(b, func() {
			x := b.Op(spirv.OpCompositeExtract, u, b.Load(b.Vec(u, 3), gid), 0)
			c := b.Op(spirv.OpULessThan, b.Bool(), x, b.U32(3))
			var nest func(depth int)
			nest = func(depth int) {
				if depth == 0 {
					for range n / 4 {
						next := b.ID()
						b.Branch(next)
						b.Begin(next)
					}
					return
				}

				head, inner, cont, merge := b.ID(), b.ID(), b.ID(), b.ID()
				b.Branch(head)
				b.Begin(head)
				b.LoopMerge(merge, cont)
				b.Branch(inner)
				b.Begin(inner)
				nest(depth - 1)
				b.Branch(cont)
				b.Begin(cont)
				b.Branch(head)
				b.Begin(merge)
			}

			b.If(c, func() bool { nest(110); return true }, nil)
		})
	},
	"variables that wait for each other": func(b *builder, n int) {
		u := b.Uint(32)
		shared := b.Shared(u)
		kernel(b, func() {
			vars := make([]id, 1000)
			for i := range vars {
				vars[i] = b.Local(u)
			}
			for i := n / 8; i > 0; i-- {
				b.Store(vars[i%1000], b.Load(u, vars[(i+999)%1000]))
			}
			b.Store(vars[0], b.Op(spirv.OpAtomicLoad, u, shared, b.U32(2), b.U32(0)))
		})
	},
}

// TestBounds: Admit keeps its stated memory bound, and time in proportion, for
// modules designed to break it: a quarter of the largest bundle, or with
// VERIFY_BOUNDS set the whole.
func TestBounds(t *testing.T) {
	words := program.MaxBundleBytes/16 - 3000
	if os.Getenv("VERIFY_BOUNDS") != "" {
		words = program.MaxBundleBytes/4 - 3000
	}

	for name, build := range hostile {
		b := spirvtest.New()
		build(b, words)
		module := b.Bytes()
		require.LessOrEqual(t, len(module), program.MaxBundleBytes, name)
		require.Greater(t, len(module), words*2, name)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		took := proctest.CPU(func() { _, err = verify.Admit(module, verify.DefaultLimits()) })
		runtime.ReadMemStats(&after)
		used := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes, %.1f times as much allocated, %v: %v", name, len(module), float64(used)/float64(len(module)), took, err)
		require.LessOrEqual(t, used, uint64(96*len(module)+256<<10), name)
		require.Less(t, took, 5*time.Second, name)
	}
}

// TestManifestBounds: the same for bundles that are all manifest.
func TestManifestBounds(t *testing.T) {
	b := spirvtest.New()
	empty(b)
	module := b.Bytes()
	for field, item := range map[string]string{"bindings": "{}", "inline": "{}", "constants": "{}", "tags": `""`, "features": `""`, "block": "1"} {
		text := fmt.Sprintf(`{"%s":[%s%s]}`, field, strings.Repeat(item+",", 65000/(len(item)+1)), item)
		bundle := append([]byte("CGPB"), make([]byte, 12)...)
		binary.LittleEndian.PutUint32(bundle[4:], 1)
		binary.LittleEndian.PutUint32(bundle[8:], uint32(len(module)))
		binary.LittleEndian.PutUint32(bundle[12:], uint32(len(text)))
		bundle = append(append(bundle, module...), text...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := verify.Admit(bundle, verify.DefaultLimits())
		runtime.ReadMemStats(&after)
		require.Error(t, err)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(96*len(bundle)+256<<10), field)
	}
}
