package vulkan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program"
)

// planned is the plan of a device that was never opened.
func planned(t *testing.T, entries ...host.Entry) []step {
	t.Helper()
	d := newDevice()
	d.MaxBindingBytes, d.OffsetAlign = 128<<20, 16
	d.copier, d.filler = &pipeline{bindings: 2}, &pipeline{bindings: 1}
	d.spare = &memory{block: block{bytes: spareBytes}}
	steps, err := d.plan(entries, 10)
	require.NoError(t, err)
	return steps
}

func entry(op wire.Op, spans ...bound) host.Entry {
	e := host.Entry{Entry: &wire.Entry{Op: op, Grid: program.Dim3{X: 1, Y: 1, Z: 1}}}
	if op == wire.OpLaunch {
		e.Pipeline = &pipeline{bindings: len(spans), pushBytes: 4}
	}
	for _, s := range spans {
		e.Spans = append(e.Spans, wire.Span{Off: s.off, Length: s.length})
		if e.Memory = append(e.Memory, nil); s.mem != nil {
			e.Memory[len(e.Memory)-1] = s.mem
		}
		e.Access = append(e.Access, s.access)
	}
	return e
}

func part(m *memory, off, length uint64, access ...program.Access) bound {
	b := bound{mem: m, off: off, length: length, access: program.ReadWrite}
	if len(access) > 0 {
		b.access = access[0]
	}
	return b
}

func barriers(steps []step) (all []bool) {
	for i := range steps {
		all = append(all, steps[i].barrier)
	}
	return all
}

// No entry begins behind a launch before that has ended, whatever memory they have: it may
// end early. Copies and fills wait where memory says so.
func TestBarriers(t *testing.T) {
	m, o := &memory{block: block{bytes: 64}}, &memory{block: block{bytes: 64}}
	const launch, cp, fill = wire.OpLaunch, wire.OpCopy, wire.OpFill
	for name, c := range map[string]struct {
		entries []host.Entry
		want    []bool
	}{
		"launches that share nothing": {[]host.Entry{entry(launch, part(m, 0, 8)), entry(launch, part(o, 0, 8))}, []bool{false, true}},
		"launches that only read":     {[]host.Entry{entry(launch, part(m, 0, 8, program.Read)), entry(launch, part(m, 0, 8, program.Read))}, []bool{false, true}},
		"a copy behind a launch":      {[]host.Entry{entry(launch), entry(cp, part(m, 0, 8), part(o, 0, 8))}, []bool{false, true}},
		"a launch behind a fill":      {[]host.Entry{entry(fill, part(m, 0, 8)), entry(launch, part(m, 16, 8)), entry(fill, part(o, 0, 8))}, []bool{false, false, true}},
		"what a fill wrote is read":   {[]host.Entry{entry(fill, part(m, 0, 8)), entry(launch, part(m, 0, 4, program.Read))}, []bool{false, true}},
		"fills that touch":            {[]host.Entry{entry(fill, part(m, 0, 8)), entry(fill, part(m, 8, 8)), entry(fill, part(o, 0, 8))}, []bool{false, false, false}},
		"fills that overlap":          {[]host.Entry{entry(fill, part(m, 0, 8)), entry(fill, part(o, 0, 8)), entry(fill, part(m, 4, 8))}, []bool{false, false, true}},
		"read, then written":          {[]host.Entry{entry(cp, part(m, 0, 8), part(o, 0, 8)), entry(fill, part(o, 4, 4))}, []bool{false, true}},
		"read twice":                  {[]host.Entry{entry(cp, part(m, 0, 8), part(o, 0, 8)), entry(cp, part(m, 8, 8), part(o, 0, 8))}, []bool{false, false}},
		"a barrier counts once":       {[]host.Entry{entry(fill, part(m, 0, 8)), entry(fill, part(m, 0, 8)), entry(fill, part(o, 0, 8)), entry(fill, part(m, 0, 8))}, []bool{false, true, false, true}},
		"by way of spare memory":      {[]host.Entry{entry(cp, part(m, 1, 8), part(m, 0, 8)), entry(cp, part(o, 0, 8), part(o, 4, 8))}, []bool{false, true, true, true}},
		"without bytes":               {[]host.Entry{entry(fill, part(m, 0, 0)), entry(launch, bound{}), entry(cp, part(m, 4, 4), part(m, 4, 4))}, []bool{false}},
	} {
		require.Equal(t, c.want, barriers(planned(t, c.entries...)), name)
	}
}

// Long copies and fills are cut into steps with bindings that the device has.
func TestPieces(t *testing.T) {
	m, o := &memory{block: block{bytes: 1 << 30}}, &memory{block: block{bytes: 1 << 30}}
	for _, op := range []wire.Op{wire.OpCopy, wire.OpFill} {
		const length = 300<<20 + 4
		spans := []bound{part(m, 36, length)}
		if op == wire.OpCopy {
			spans = []bound{part(m, 37, length), part(o, 1, length)}
		}
		sums := make([]uint64, len(spans))
		for _, s := range planned(t, entry(op, spans...)) {
			require.False(t, s.barrier)
			require.Equal(t, uint32(10), uint32(s.push[12])) // its entry
			for k, b := range s.bind {
				require.Equal(t, spans[k].off+sums[k], b.off)
				require.Zero(t, b.begin%16)
				require.LessOrEqual(t, b.begin, b.off)
				require.LessOrEqual(t, b.size, uint64(128<<20))
				require.LessOrEqual(t, b.off+b.length, b.begin+b.size)
				require.Zero(t, (b.begin+b.size)%4)
				sums[k] += b.length
			}
		}
		for _, sum := range sums {
			require.EqualValues(t, length, sum)
		}
	}
}

// Nothing is recorded that is outside of memory, or that a device does not do.
func TestWrongEntries(t *testing.T) {
	m := &memory{block: block{bytes: 4096}}
	big := &memory{block: block{bytes: 1 << 30}}
	for name, e := range map[string]host.Entry{
		"a kind of entry":       entry(9, part(m, 0, 4)),
		"behind the end":        entry(wire.OpLaunch, part(m, 4096-16, 32)),
		"far behind the end":    entry(wire.OpFill, part(m, 1<<63, 1<<63)),
		"no memory":             entry(wire.OpFill, part(nil, 0, 8)),
		"no span":               entry(wire.OpCopy, part(m, 0, 8)),
		"other lengths":         entry(wire.OpCopy, part(m, 0, 8), part(m, 8, 4)),
		"an odd fill":           entry(wire.OpFill, part(m, 2, 8)),
		"a binding out of line": entry(wire.OpLaunch, part(m, 8, 8)),
		"too long a binding":    entry(wire.OpLaunch, part(big, 0, 1<<30)),
	} {
		d := newDevice()
		d.MaxBindingBytes, d.OffsetAlign = 128<<20, 16
		_, err := d.plan([]host.Entry{e}, 1)
		require.ErrorIs(t, err, gpuerr.Internal, name)
	}
}

func TestSlots(t *testing.T) {
	s := newSlots(1, 11)
	var firsts []uint32
	for range 5 {
		first, err := s.take(2)
		require.NoError(t, err)
		firsts = append(firsts, first)
	}
	require.Equal(t, []uint32{1, 3, 5, 7, 9}, firsts)
	_, err := s.take(1)
	require.ErrorIs(t, err, gpuerr.Quota)

	s.put(3, 2)
	s.put(7, 2)
	_, err = s.take(3)
	require.ErrorIs(t, err, gpuerr.Quota)
	s.put(5, 2)
	first, err := s.take(6)
	require.NoError(t, err)
	require.EqualValues(t, 3, first)
	s.put(9, 2)
	s.put(1, 2)
	s.put(3, 6)
	require.Equal(t, newSlots(1, 11), s)
	first, err = s.take(0)
	require.NoError(t, err)
	s.put(first, 0)
	require.Equal(t, newSlots(1, 11), s)
}

func TestRefusals(t *testing.T) {
	good := facts{
		Device: wire.Device{Name: "card", PCIAddress: "0000:01:00.0"}, api: vk12, extensions: map[string]bool{externalHost: true},
		hostAlign: 4096, queues: 1, stampBits: 64, period: 1, robust: true, timeline: true, storage8: true,
	}
	require.Empty(t, good.refusal())
	for missing, spoil := range map[string]func(f *facts){
		"Vulkan 1.1":                  func(f *facts) { f.api = 1<<22 | 1<<12 },
		"robustBufferAccess":          func(f *facts) { f.robust = false },
		"VK_EXT_external_memory_host": func(f *facts) { f.extensions = nil },
		"pieces of 65536 bytes":       func(f *facts) { f.hostAlign = 65536 },
		"timeline semaphores":         func(f *facts) { f.timeline = false },
		"8-bit storage":               func(f *facts) { f.storage8 = false },
		"queue for compute":           func(f *facts) { f.family = -1 },
		"time stamps":                 func(f *facts) { f.stampBits = 0 },
	} {
		f := good
		spoil(&f)
		require.Contains(t, f.refusal(), missing)
		_, err := choose([]facts{f}, "")
		require.ErrorContains(t, err, missing)
		i, err := choose([]facts{f, good}, "")
		require.NoError(t, err)
		require.Equal(t, 1, i)
	}

	other := good
	other.PCIAddress = "0000:0A:00.0"
	i, err := choose([]facts{good, other}, "0000:0a:00.0")
	require.NoError(t, err)
	require.Equal(t, 1, i)
	_, err = choose([]facts{good}, "0000:02:00.0")
	require.ErrorContains(t, err, "0000:02:00.0")
	_, err = choose(nil, "")
	require.Error(t, err)
}
