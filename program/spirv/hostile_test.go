package spirv_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/program"
	"capgpu/program/spirv"
	"capgpu/program/spirv/spirvtest"
)

// survives parses bytes, and uses the result in every possible way.
func survives(t testing.TB, data []byte) {
	m, err := spirv.Parse(data)
	if err != nil {
		var refusal *program.Refusal
		require.True(t, errors.As(err, &refusal), "%v is no refusal", err)
		require.LessOrEqual(t, uint64(refusal.Off), uint64(len(data)))
		require.Nil(t, m)
		return
	}

	require.NoError(t, m.Disassemble(io.Discard, func(in *spirv.Inst) string {
		m.Decoration(in.Result, spirv.DecorationBinding)
		m.MemberDecoration(in.Result, int(in.Arg(0)), spirv.DecorationOffset)
		return m.Name(in.Result) + m.MemberName(in.Result, int(in.Arg(1))) + m.Source(in.Line)
	}))

	for _, f := range m.Functions {
		c := spirv.NewCFG(f)
		for i, b := range f.Blocks {
			distinct := map[spirv.ID]bool{}
			for _, label := range b.Targets {
				distinct[label] = true
			}
			require.Len(t, c.Succs[i], len(distinct), "every label of a parsed function is one of its blocks")
		}
		for _, b := range f.Blocks {
			if b.Term.Op == spirv.OpSwitch {
				require.Len(t, b.Targets, len(b.Cases)+1)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, data := range modules(f) {
		f.Add(data)
		f.Add(spirvtest.Swap(data))
	}
	for _, test := range refusals {
		if data := test.module(); len(data) < 4096 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { survives(t, data) })
}

func TestMutantsDoNoHarm(t *testing.T) {
	for name, data := range modules(t) {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(len(data))))
			for range 200 {
				survives(t, spirvtest.Mutate(rng, data))
			}
			for end := 0; end < len(data); end += 12 {
				survives(t, data[:end])
			}
		})
	}
}

// hostile are modules of the maximal size (or half of that, if making them takes
// longer than reading them), each of a shape that is most expensive somewhere.
func hostile() map[string][]byte {
	const room = program.MaxBundleBytes/8 - 200
	repeat := func(f func(b *spirvtest.Builder, i int), each int) []byte {
		b := spirvtest.New()
		b.Void() // id 1
		for i := range room / each {
			f(b, i)
		}
		return b.Bytes()
	}

	raw := func(words ...uint32) []byte { // no builder: it is slow
		data := smallest().Bytes()
		out := make([]byte, 0, program.MaxBundleBytes)
		out = append(out, data[:len(data)-8]...)
		for len(out)+4*len(words) <= program.MaxBundleBytes {
			for _, w := range words {
				out = binary.LittleEndian.AppendUint32(out, w)
			}
		}
		return out
	}

	head := func(op spirv.Opcode, n uint32) uint32 { return n<<16 | uint32(op) }
	list := map[string][]byte{
		"nops":       raw(head(spirv.OpNop, 1)),
		"labels":     raw(head(spirv.OpLabel, 2), 1),
		"one-word":   raw(head(spirv.OpLabel, 1)),
		"returns":    raw(head(spirv.OpReturn, 1)),
		"branches":   raw(head(spirv.OpBranch, 2), 1),
		"lines":      raw(head(spirv.OpNoLine, 1)),
		"functions":  raw(head(spirv.OpFunction, 5), 1, 1, 0, 1),
		"mergers":    raw(head(spirv.OpSelectionMerge, 3), 1, 0),
		"names":      repeat(func(b *spirvtest.Builder, i int) { b.Name(1, "") }, 3),
		"same-names": repeat(func(b *spirvtest.Builder, i int) { b.Name(b.ID(), "v") }, 3),
		"decorated": repeat(func(b *spirvtest.Builder, i int) {
			b.Decorate(1, spirv.DecorationBlock)
		}, 3),
		"members": repeat(func(b *spirvtest.Builder, i int) {
			b.MemberDecorate(1, i%60000, spirv.DecorationRestrict+spirv.Decoration(i/60000))
		}, 4),
		"pointers to pointers": repeat(func(b *spirvtest.Builder, i int) {
			b.Declare(spirv.OpTypePointer, b.ID(), spirv.StorageClassFunction, max(1, i))
		}, 4),
	}

	b := spirvtest.New() // a name that many operands repeat
	long := b.Name(b.Void(), fmt.Sprintf("%0200000d", 1))
	members := make([]spirv.ID, 60000)
	for i := range members {
		members[i] = long
	}

	for range 3 {
		b.Struct(members...)
	}

	list["long name"] = b.Bytes()
	b = spirvtest.New() // blocks, each a loop to itself
	b.FuncHead(b.Void())
	for range room / 8 {
		l := b.ID()
		b.Begin(l)
		b.LoopMerge(l, l)
		b.Branch(l)
	}

	b.End()
	list["loops"] = b.Bytes()
	for _, data := range list { // the tables by id are as large as possible
		binary.LittleEndian.PutUint32(data[12:], uint32(len(data)+1024))
	}

	return list
}

// Time and memory stay in proportion for every module.
func TestHostileModulesAreCheap(t *testing.T) {
	for name, data := range hostile() {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, len(data), program.MaxBundleBytes)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			var m *spirv.Module
			var err error
			took := proctest.CPU(func() { m, err = spirv.Parse(data) })
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			require.LessOrEqual(t, allocated, 64*uint64(len(data))+64<<10)
			require.Less(t, took, 2*time.Second)
			t.Logf("%d bytes: %v, %.1f bytes allocated for each, %v", len(data), took, float64(allocated)/float64(len(data)), err)
			if m != nil {
				var n counter
				took = proctest.CPU(func() { err = m.Disassemble(&n, nil) })
				require.NoError(t, err)
				require.Less(t, took, 4*time.Second)
				require.Less(t, int(n), 64*len(data))
			}
		})
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func TestCompiledModulesParseInProportion(t *testing.T) {
	for name, data := range modules(t) {
		allocated := testing.AllocsPerRun(10, func() {
			if _, err := spirv.Parse(data); err != nil {
				t.Fatal(err)
			}
		})
		require.Less(t, allocated, 40.0, name)
	}
}
