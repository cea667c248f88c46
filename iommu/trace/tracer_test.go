package trace

import (
	"bufio"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/iommu"
)

// loaded is a Tracer that is attached to nothing: the kernel runs its programs on
// arguments of the test. It skips where eBPF cannot be used at all.
func loaded(t *testing.T, ringBytes int) *Tracer {
	t.Helper()
	tr, err := load(Options{RingBytes: ringBytes})
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("SKIPPED, not root: %v", err)
		}
		require.NoError(t, err)
	}
	t.Cleanup(func() { require.NoError(t, tr.Close()) })
	return tr
}

// fire runs a program as its tracepoint would.
func fire(t *testing.T, p *ebpf.Program, args ...uint64) {
	t.Helper()
	var ctx [12]uint64 // the most that a raw tracepoint has
	copy(ctx[:], args)
	_, err := p.Run(&ebpf.RunOptions{Context: ctx})
	require.NoError(t, err)
}

func drain(t *testing.T, tr *Tracer) (events []Event) {
	t.Helper()
	require.NoError(t, tr.Read(time.Unix(1, 0), func(e Event) { events = append(events, e) }))
	return events
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

func TestEvents(t *testing.T) {
	tr := loaded(t, os.Getpagesize())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := monotonic()
	fire(t, tr.progs[0], 0x100000, 0xabc000, 0x3000)
	fire(t, tr.progs[1], 0x200000, 0x2000, 0x1000)
	after := monotonic()
	events := drain(t, tr)
	require.Len(t, events, 2)
	for i := range events {
		require.True(t, events[i].Time >= before && events[i].Time <= after, "the clock is CLOCK_MONOTONIC")
		events[i].Time = 0
	}
	who := Event{TGID: uint32(os.Getpid()), TID: uint32(unix.Gettid())}
	m, u := who, who
	m.Kind, m.IOVA, m.Bytes = Map, 0x100000, 0x3000
	u.Kind, u.IOVA, u.Bytes, u.Unmapped = Unmap, 0x200000, 0x2000, 0x1000
	require.Equal(t, []Event{m, u}, events)
	require.Empty(t, drain(t, tr))
}

func TestOnlyWatched(t *testing.T) {
	tr := loaded(t, os.Getpagesize())
	require.NoError(t, tr.Unwatch(os.Getpid()))
	require.NoError(t, tr.Unwatch(os.Getpid()))
	fire(t, tr.progs[0], 1, 2, 3)
	require.Empty(t, drain(t, tr))
	require.NoError(t, tr.Watch(os.Getpid()))
	fire(t, tr.progs[0], 1, 2, 3)
	require.Len(t, drain(t, tr), 1)
	c, err := tr.Counts()
	require.NoError(t, err)
	require.Zero(t, c)
}

// TestOnlyVFIO: with a text that is on the stack of a program that the bpf system
// call runs, and with one that is not.
func TestOnlyVFIO(t *testing.T) {
	at := symbol(t, "__sys_bpf")
	tr := loaded(t, os.Getpagesize())
	require.NoError(t, tr.setText([2]uint64{at, at + maxFunctionBytes}))
	fire(t, tr.progs[0], 1, 2, 3)
	fire(t, tr.progs[1], 1, 2, 3)
	require.Len(t, drain(t, tr), 2)
	require.NoError(t, tr.setText([2]uint64{at - 16, at}))
	fire(t, tr.progs[0], 1, 2, 3)
	fire(t, tr.progs[1], 1, 2, 3)
	require.Empty(t, drain(t, tr))
	c, err := tr.Counts()
	require.NoError(t, err)
	require.Equal(t, Counts{Foreign: 2}, c)
}

func symbol(t *testing.T, name string) uint64 {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); fields[2] == name {
			at, err := strconv.ParseUint(fields[0], 16, 64)
			require.NoError(t, err)
			if at != 0 {
				return at
			}
		}
	}
	t.Skipf("SKIPPED, the kernel hides its symbols")
	return 0
}

// TestOverflow: what there is no room for is counted, and nothing waits for a reader.
func TestOverflow(t *testing.T) {
	tr := loaded(t, os.Getpagesize())
	room := os.Getpagesize() / (eventBytes + 8) // with the ring's header
	const more = 100
	for i := range room + more {
		fire(t, tr.progs[0], uint64(i), 0, 1)
	}
	events := drain(t, tr)
	c, err := tr.Counts()
	require.NoError(t, err)
	require.EqualValues(t, room+more, uint64(len(events))+c.Lost)
	require.GreaterOrEqual(t, c.Lost, uint64(more))
	for i, e := range events {
		require.Equal(t, iommu.IOVA(i), e.IOVA, "those before are whole")
	}
	fire(t, tr.progs[0], 7, 0, 1)
	require.Len(t, drain(t, tr), 1)
}

// TestWakeups: a reader sleeps until its deadline while there are few events, and is
// woken when the ring is half full.
func TestWakeups(t *testing.T) {
	tr := loaded(t, os.Getpagesize())
	half := os.Getpagesize()/2/(eventBytes+8) + 2
	var events []Event
	done := make(chan error)
	woken := make(chan struct{}, 1)
	go func() {
		done <- tr.Read(time.Now().Add(time.Hour), func(e Event) {
			if events = append(events, e); len(events) == half-1 {
				woken <- struct{}{}
			}
		})
	}()
	for i := range half {
		fire(t, tr.progs[0], uint64(i), 0, 1)
	}
	<-woken
	require.NoError(t, tr.Kick())
	require.NoError(t, <-done)
	require.Len(t, events, half)
}

func TestClose(t *testing.T) {
	tr, err := load(Options{})
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	done := make(chan error)
	go func() { done <- tr.Read(time.Now().Add(time.Hour), func(Event) {}) }()
	require.NoError(t, tr.Close())
	require.ErrorIs(t, <-done, gpuerr.Closed)
	require.NoError(t, tr.Close())
	require.ErrorIs(t, tr.Read(time.Unix(1, 0), nil), gpuerr.Closed)

	for _, bytes := range []int{1, 5000, 1 << 31} {
		_, err := Open(Options{RingBytes: bytes})
		require.ErrorIs(t, err, gpuerr.Invalid)
	}
}

// TestGuestTracepoints attaches to the real tracepoints, where the kernel has them.
func TestGuestTracepoints(t *testing.T) {
	if err := Supported(); err != nil {
		require.ErrorIs(t, err, gpuerr.Unimplemented)
		t.Skipf("SKIPPED, this kernel tells nothing of its IOMMU: %v", err)
	}
	tr, err := Open(Options{})
	require.NoError(t, err)
	if err := tr.FindVFIO(); err != nil {
		require.ErrorIs(t, err, gpuerr.Unimplemented)
	}
	require.NoError(t, tr.Close())
}

func TestFindText(t *testing.T) {
	const symbols = `ffffffff81000000 T _text
ffffffff81000100 t vfio_pin_map_dma
ffffffff81000200 t vfio_remove_dma
ffffffff81000900 D vfio_remove_dma
ffffffff81000300 T somebody_else
ffffffffc0801ff0 t vfio_remove_dma	[another]
0000000000000000 t vfio_unmap_unpin
nonsense
`
	text, err := findText(strings.NewReader(symbols))
	require.NoError(t, err)
	require.Equal(t, [2]uint64{0xffffffff81000100, 0xffffffff81000300}, text)
	text, err = findText(strings.NewReader("ffffffff81000100 t vfio_pin_map_dma\n"))
	require.NoError(t, err)
	require.Equal(t, [2]uint64{0xffffffff81000100, 0xffffffff81000100 + maxFunctionBytes}, text)
	_, err = findText(strings.NewReader("ffffffff81000000 T _text\n"))
	require.ErrorIs(t, err, gpuerr.Unimplemented)
}

func TestModuleText(t *testing.T) {
	const modules = `vfio_pci 16384 0 - Live 0xffffffffc0810000
vfio_iommu_type1 49152 1 - Live 0xffffffffc0800000
virtio_net 90112 0 - Live 0xffffffffc0804000 (E)
vfio 73728 5 vfio_pci,vfio_iommu_type1, Live 0xffffffffc07e0000
nonsense
`
	text, ok := moduleText(modules)
	require.True(t, ok)
	require.Equal(t, [2]uint64{0xffffffffc0800000, 0xffffffffc0804000}, text)
	text, ok = moduleText("vfio_iommu_type1 49152 1 - Live 0xffffffffc0800000\n")
	require.True(t, ok)
	require.Equal(t, [2]uint64{0xffffffffc0800000, 0xffffffffc080c000}, text)
	for _, s := range []string{"", "vfio_iommu_type1 49152 1 - Live 0x0000000000000000\n"} {
		_, ok = moduleText(s)
		require.False(t, ok, s)
	}
}

func BenchmarkMap(b *testing.B) {
	tr, err := load(Options{})
	if err != nil {
		b.Skip(err)
	}
	defer tr.Close()
	for b.Loop() {
		_, err := tr.progs[0].Run(&ebpf.RunOptions{Context: [12]uint64{}})
		require.NoError(b, err)
	}
}
