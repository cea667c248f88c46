package faultlog

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	intelTable = `            CPU0       CPU1
   0:         49          0  IR-IO-APIC    2-edge      timer
  24:          3          0  DMAR-MSI    0-edge      dmar1
  25:          0          0  DMAR-MSI    1-edge      dmar0
  26:          0          0  DMAR-MSI    2-edge      dmar0-prq
  27:          0          9  IR-PCI-MSI-0000:00:1f.2    0-edge      dmarks
 NMI:          0          0   Non-maskable interrupts
 ERR:          0
`
	amdTable = `           CPU0
  26:          0  PCI-MSI-0000:00:00.2    0-edge      AMD-Vi
  27:          0  IOMMU-MSI    0-edge      AMD-Vi1-Evt
  28:          0  IOMMU-MSI    1-edge      AMD-Vi1-PPR
`
)

func TestFaultInterrupts(t *testing.T) {
	require.Equal(t, []int{24, 25}, faultInterrupts([]byte(intelTable)))
	require.Equal(t, []int{26, 27, 28}, faultInterrupts([]byte(amdTable)))
	require.Empty(t, faultInterrupts(nil))
}

func TestAppendCPUs(t *testing.T) {
	for s, want := range map[string][]int{"": nil, "\n": nil, "3\n": {3}, "0-2,7\n": {0, 1, 2, 7}, "1023": {1023}} {
		got, err := appendCPUs(nil, s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"x", "1,", "2-1", "1-", "-1", "1024", "0-4294967295"} {
		_, err := appendCPUs(nil, s)
		require.Error(t, err, s)
	}
}

func FuzzInterrupts(f *testing.F) {
	f.Add(intelTable, "0-2,7\n")
	f.Add(amdTable, "1023")
	f.Fuzz(func(t *testing.T, table, cpus string) {
		for _, irq := range faultInterrupts([]byte(table)) {
			require.GreaterOrEqual(t, irq, 0)
		}
		if got, err := appendCPUs(nil, cpus); err == nil {
			for _, cpu := range got {
				require.Less(t, uint(cpu), uint(maxCPUs))
			}
		}
	})
}

// fakeProc is a /proc with interrupts that the test moves.
type fakeProc struct {
	t   *testing.T
	dir string
}

func newFakeProc(t *testing.T, table string) fakeProc {
	p := fakeProc{t, t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "interrupts"), []byte(table), 0o644))
	return p
}

func (p fakeProc) put(irq int, name, cpus string) {
	dir := filepath.Join(p.dir, "irq", fmt.Sprint(irq))
	require.NoError(p.t, os.MkdirAll(dir, 0o755))
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name), []byte(cpus+"\n"), 0o644))
}

// TestVisit: the thread goes where the interrupts are served, also when they have moved, and
// when they are others.
func TestVisit(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	defer func() { require.NoError(t, unix.SchedSetaffinity(0, &all)) }()
	var cpus []int
	for cpu := range maxCPUs {
		if all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	p := newFakeProc(t, intelTable)
	v := &visitor{proc: p.dir, text: make([]byte, 4096)}
	require.Error(t, v.open(), "nobody says who serves it")
	first, last := cpus[0], cpus[len(cpus)-1]
	p.put(24, "effective_affinity_list", fmt.Sprint(first))
	p.put(25, "smp_affinity_list", fmt.Sprint(first))
	require.NoError(t, v.open())
	defer func() { v.forget() }()

	isAt := func(cpu int) {
		t.Helper()
		require.NoError(t, v.round())
		var at unix.CPUSet
		require.NoError(t, unix.SchedGetaffinity(0, &at))
		require.Equal(t, 1, at.Count())
		require.True(t, at.IsSet(cpu))
	}
	isAt(first)
	p.put(25, "smp_affinity_list", fmt.Sprint(last))
	isAt(last)
	p.put(24, "effective_affinity_list", fmt.Sprint(maxCPUs-1))
	isAt(last) // and is no error: this process may not use that one, which is waited for
	p.put(24, "effective_affinity_list", "nothing")
	require.Error(t, v.round())
	p.put(24, "effective_affinity_list", fmt.Sprint(first))
	require.NoError(t, v.lines[0].Close(), "as one that is gone")
	require.NoError(t, v.round())
	require.NoError(t, os.Remove(filepath.Join(p.dir, "interrupts")))
	require.NoError(t, v.lines[0].Close())
	require.Error(t, v.round())
}

func TestVisitorEnds(t *testing.T) {
	_, err := newVisitor(filepath.Join(t.TempDir(), "nothing"))
	require.Error(t, err)
	v, err := newVisitor(newFakeProc(t, "").dir)
	require.NoError(t, err)
	require.NoError(t, v.visit(), "there is nowhere to go")
	require.NoError(t, v.Close())
	require.NoError(t, v.Close())
	require.ErrorIs(t, v.visit(), os.ErrClosed)
}

func BenchmarkVisit(b *testing.B) {
	b.Chdir(b.TempDir())
	require.NoError(b, os.MkdirAll("irq/24", 0o755))
	require.NoError(b, os.WriteFile("interrupts", []byte(" 24: 0 DMAR-MSI 0-edge dmar0\n"), 0o644))
	require.NoError(b, os.WriteFile("irq/24/effective_affinity_list", []byte("0\n"), 0o644))
	v, err := newVisitor(".")
	require.NoError(b, err)
	defer v.Close()
	for b.Loop() {
		require.NoError(b, v.visit())
	}
}
