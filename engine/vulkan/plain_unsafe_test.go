package vulkan

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/program"
	"capgpu/program/instrument"
	"capgpu/program/library"
	"capgpu/program/verify"
)

// The figures of this package: runs beside a plain Vulkan program that submits the same
// kernels over the same memory, with the same barriers, and knows nothing of early ends.
//
//	go test ./vulkan -run '^$' -bench . -benchtime 2000x

// pair has one recorded list, and a plain program with the same launches.
type pair struct {
	d        *Device
	entries  []host.Entry
	list     host.List
	commands uintptr // of the plain program
	fence    vk.Handle
}

func newPair(b *testing.B, launches int, same bool) *pair {
	d := opened(b)
	bundle, _ := library.Bundle("vecadd_f32")
	v, err := verify.Admit(bundle, verify.DefaultLimits())
	require.NoError(b, err)
	i, err := instrument.Instrument(v)
	require.NoError(b, err)
	parsed, err := program.Parse(bundle)
	require.NoError(b, err)

	pipe, err := d.compile(&wire.Pipeline{Module: i.Module, Entry: "main", Bindings: i.Binding, PushBytes: i.EntryOff + 4})
	require.NoError(b, err)
	b.Cleanup(func() { _ = pipe.Free() })
	plain, err := d.compile(&wire.Pipeline{Module: parsed.SPIRV, Entry: "main", Bindings: i.Binding, PushBytes: 4})
	require.NoError(b, err)
	b.Cleanup(func() { _ = plain.Free() })

	const bytes = 4 * 256
	mem, err := d.alloc(3 * bytes)
	require.NoError(b, err)
	b.Cleanup(func() { _ = mem.Free() })
	p := &pair{d: d}
	e := host.Entry{Pipeline: pipe, Entry: &wire.Entry{Op: wire.OpLaunch, Grid: program.Dim3{X: 1, Y: 1, Z: 1}}}
	for k := range uint64(3) {
		e.Spans = append(e.Spans, wire.Span{Off: k * bytes, Length: bytes})
		e.Memory = append(e.Memory, mem)
		e.Access = append(e.Access, v.Info.Bindings[k].Access)
	}
	for range launches {
		p.entries = append(p.entries, e)
	}
	p.list, err = d.Record(p.entries)
	require.NoError(b, err)
	b.Cleanup(func() { _ = p.list.Free() })

	steps, err := d.plan(p.entries, 1)
	require.NoError(b, err)
	set, err := d.takeSet(4)
	require.NoError(b, err)
	sets := make([]vk.Handle, len(steps))
	for i := range steps {
		if sets[i] = set; !same { // of the same memory
			steps[i].pipe = plain
		}
	}
	d.writeSets(steps[:1], sets[:1])
	p.commands, err = d.newCommands()
	require.NoError(b, err)
	require.NoError(b, d.begin(p.commands))
	d.encode(p.commands, steps, sets)
	d.barrier(p.commands, vk.StageComputeShader, vk.AccessShaderWrite, vk.StageHost, vk.AccessHostRead)
	require.NoError(b, d.Do("vkEndCommandBuffer", p.commands))
	fci := vk.FenceCreateInfo{Head: vk.Head{SType: vk.TypeFenceCreateInfo}}
	p.fence, err = d.kept("Fence", unsafe.Pointer(&fci))
	require.NoError(b, err)
	require.NoError(b, d.Find("vkGetFenceStatus"))
	return p
}

// run is one run of the list, to its result.
func (p *pair) run(b *testing.B) {
	if err := p.d.Submit(p.list); err != nil {
		b.Fatal(err)
	}
	if r, err := p.d.Wait(); err != nil || int(r.Begun) != len(p.entries) || r.Early {
		b.Fatal(r, err)
	}
}

// once records a list, runs it and frees it.
func (p *pair) once(b *testing.B) {
	l, err := p.d.Record(p.entries)
	if err != nil {
		b.Fatal(err)
	}
	kept := p.list
	p.list = l
	p.run(b)
	p.list = kept
	if err := l.Free(); err != nil {
		b.Fatal(err)
	}
}

// plain submits the plain program's commands and waits for its fence; with spin it looks at
// it for as long as Wait does.
func (p *pair) plain(b *testing.B, spin bool) {
	d := p.d
	si := vk.SubmitInfo{Head: vk.Head{SType: vk.TypeSubmitInfo}, Commands: 1, Command: unsafe.Pointer(&p.commands)}
	if code := int32(d.calls.submit.Call(d.queue, 1, uintptr(unsafe.Pointer(&si)), uintptr(p.fence))); code != 0 {
		b.Fatal(code)
	}
	status, _ := d.Proc("vkGetFenceStatus")
	for began := time.Now(); spin && time.Since(began) < spinTime; {
		if int32(status.Call(d.Dev, uintptr(p.fence))) == vk.Success {
			break
		}
	}
	const forever = vk.WholeSize
	if err := d.Do("vkWaitForFences", d.Dev, 1, uintptr(unsafe.Pointer(&p.fence)), 1, forever); err != nil {
		b.Fatal(err)
	}
	if err := d.Do("vkResetFences", d.Dev, 1, uintptr(unsafe.Pointer(&p.fence))); err != nil {
		b.Fatal(err)
	}
}

// beside runs two functions in turns, and reports the medians of their times for one launch,
// and of the ratios of neighbouring ones.
func beside(b *testing.B, launches int, ours, theirs func()) {
	var mine, plain, ratios []float64
	for range 20 {
		ours()
		theirs()
	}
	for b.Loop() {
		t := time.Now()
		ours()
		mid := time.Now()
		theirs()
		x, y := mid.Sub(t), time.Since(mid)
		mine, plain, ratios = append(mine, float64(x)), append(plain, float64(y)), append(ratios, float64(x)/float64(y))
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(mine)/float64(launches)/1e3, "µs/launch")
	b.ReportMetric(median(plain)/float64(launches)/1e3, "µs/plain")
	b.ReportMetric(median(ratios), "ratio")
}

func BenchmarkLaunch(b *testing.B) {
	p := newPair(b, 1, false)
	b.Run("recorded", func(b *testing.B) { beside(b, 1, func() { p.run(b) }, func() { p.plain(b, true) }) })
	b.Run("recorded/waiting", func(b *testing.B) { beside(b, 1, func() { p.run(b) }, func() { p.plain(b, false) }) })
	b.Run("once", func(b *testing.B) { beside(b, 1, func() { p.once(b) }, func() { p.plain(b, true) }) })
}

func BenchmarkList(b *testing.B) {
	const launches = 256
	for name, same := range map[string]bool{"bare modules": false, "same modules": true} {
		p := newPair(b, launches, same)
		b.Run("recorded/"+name, func(b *testing.B) { beside(b, launches, func() { p.run(b) }, func() { p.plain(b, true) }) })
	}
}

// BenchmarkRecord is the time to record a list and to free it, for a launch.
func BenchmarkRecord(b *testing.B) {
	for _, launches := range []int{1, 256} {
		p := newPair(b, launches, false)
		b.Run(fmt.Sprint(launches), func(b *testing.B) {
			for b.Loop() {
				l, err := p.d.Record(p.entries)
				if err == nil {
					err = l.Free()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*launches), "µs/launch")
		})
	}
}

// BenchmarkAhead is the time of a run of one launch, with as many submitted as may be.
func BenchmarkAhead(b *testing.B) {
	p := newPair(b, 1, false)
	under := 0
	take := func() {
		if r, err := p.d.Wait(); err != nil || r.Begun != 1 {
			b.Fatal(r, err)
		}
		under--
	}
	for b.Loop() {
		if err := p.d.Submit(p.list); err != nil {
			b.Fatal(err)
		}
		if under++; under == wire.MaxAhead {
			take()
		}
	}
	for under > 0 {
		take()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/run")
}
