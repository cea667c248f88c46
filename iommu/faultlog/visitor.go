package faultlog

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// A fault is in the log when the IOMMU's interrupt has been served, and the straying device
// may report completion before that: the handler has yet to run or to print, on another
// processor than the reader of the log. So a reader that wants all faults has to come after
// the handlers. They run with interrupts off (DMAR's: dmar_fault in
// drivers/iommu/intel/dmar.c), or in a thread of real-time priority on the processor of the
// interrupt (AMD-Vi's: amd_iommu_int_thread in drivers/iommu/amd/iommu.c; both Linux 6.12):
// no other thread runs on that processor before they are through.
//
// visitor is a thread that goes to these processors.
type visitor struct {
	proc string
	asks chan chan error
	quit chan struct{}
	done chan struct{}
	once sync.Once

	// The thread's own.
	lines []*os.File // files that name the processors of each interrupt
	cpus  []int
	text  []byte
}

// newVisitor finds the interrupts below proc, which is /proc. A host without an IOMMU has
// none.
func newVisitor(proc string) (*visitor, error) {
	v := &visitor{proc: proc, asks: make(chan chan error), quit: make(chan struct{}), done: make(chan struct{}), text: make([]byte, 4096)}
	if err := v.open(); err != nil {
		v.forget()
		return nil, err
	}
	go v.run()
	return v, nil
}

// visit returns when the handlers of all faults until now have run.
func (v *visitor) visit() error {
	answer := make(chan error, 1)
	select {
	case v.asks <- answer:
		return <-answer
	case <-v.done:
		return os.ErrClosed
	}
}

func (v *visitor) Close() error {
	v.once.Do(func() { close(v.quit) })
	<-v.done
	return nil
}

func (v *visitor) run() {
	defer close(v.done)
	runtime.LockOSThread() // for good: the thread ends with this goroutine, on whichever processor
	defer v.forget()
	for {
		select {
		case answer := <-v.asks:
			answer <- v.round()
		case <-v.quit:
			return
		}
	}
}

// maxRounds bounds how often a round is repeated because interrupts were moved during it.
const maxRounds = 8

func (v *visitor) round() error {
	for range maxRounds {
		before, err := v.where()
		if err != nil {
			return err
		}
		for _, cpu := range before {
			if err := stand(cpu); err != nil {
				return err
			}
		}
		before = slices.Clone(before)
		after, err := v.where()
		if err != nil {
			return err
		}
		if slices.Equal(before, after) {
			return nil
		}
	}

	return gpuerr.New(gpuerr.Busy, "the interrupts of the IOMMU are moved from processor to processor all the time: stop whoever does that")
}

// stand has this thread run on a processor. One that the process may not use, as its cpuset
// has it, is waited for: that takes some milliseconds, and does for DMAR.
func stand(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	err := unix.SchedSetaffinity(0, &set)
	if err == nil {
		return nil
	}
	const global = 1 // MEMBARRIER_CMD_GLOBAL, include/uapi/linux/membarrier.h: an RCU grace period, and no handler outlasts one
	if _, _, e := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); e != 0 {
		return gpuerr.New(gpuerr.IO, "faults of the IOMMU are reported on processor %d, which this process may not use: %v, and nobody waits for it: %v; let its cpuset have that processor", cpu, err, e)
	}
	return nil
}

// where lists the processors on which the interrupts are served, in order.
func (v *visitor) where() ([]int, error) {
	for again := false; ; again = true {
		cpus, err := v.read()
		if err == nil || again {
			return cpus, err
		}
		if err := v.open(); err != nil { // the interrupt has changed
			return nil, err
		}
	}
}

func (v *visitor) read() (_ []int, err error) {
	v.cpus = v.cpus[:0]
	for _, f := range v.lines {
		n, err := unix.Pread(int(f.Fd()), v.text, 0)
		if err != nil {
			return nil, gpuerr.New(gpuerr.IO, "read %s: %v", f.Name(), err)
		}
		if v.cpus, err = appendCPUs(v.cpus, string(v.text[:n])); err != nil {
			return nil, gpuerr.New(gpuerr.IO, "read %s: %v", f.Name(), err)
		}
	}
	slices.Sort(v.cpus)
	v.cpus = slices.Compact(v.cpus)
	return v.cpus, nil
}

func (v *visitor) forget() {
	for _, f := range v.lines {
		f.Close()
	}
	v.lines = nil
}

// open finds the interrupts, and the files that name their processors.
func (v *visitor) open() error {
	v.forget()
	table, err := os.ReadFile(filepath.Join(v.proc, "interrupts"))
	if err != nil {
		return gpuerr.New(gpuerr.IO, "find the interrupts of the IOMMU: %v", err)
	}

	for _, irq := range faultInterrupts(table) {
		dir := filepath.Join(v.proc, "irq", strconv.Itoa(irq))
		f, err := os.Open(filepath.Join(dir, "effective_affinity_list"))
		if errors.Is(err, os.ErrNotExist) { // a kernel that leaves the choice to the hardware
			f, err = os.Open(filepath.Join(dir, "smp_affinity_list"))
		}
		if err != nil {
			return gpuerr.New(gpuerr.IO, "find who serves the interrupts of the IOMMU: %v", err)
		}
		v.lines = append(v.lines, f)
	}

	return nil
}

// faultInterrupts returns the numbers of the interrupts in the table /proc/interrupts that
// report faults: dmar0 and so on, not dmar0-prq; AMD-Vi or AMD-Vi0-Evt and its siblings;
// older kernels have one of them.
func faultInterrupts(table []byte) (all []int) {
	lines := bufio.NewScanner(bytes.NewReader(table))
	lines.Buffer(nil, len(table)+1)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		number, ok := strings.CutSuffix(fields[0], ":")
		irq, err := strconv.ParseUint(number, 10, 31)
		if name := fields[len(fields)-1]; ok && err == nil && reportsFaults(name) {
			all = append(all, int(irq))
		}
	}
	return all
}

func reportsFaults(name string) bool {
	if n, ok := strings.CutPrefix(name, "dmar"); ok {
		_, err := strconv.ParseUint(n, 10, 31)
		return err == nil
	}
	return strings.HasPrefix(name, "AMD-Vi")
}

// maxCPUs is the capacity of a unix.CPUSet.
const maxCPUs = 1024

// appendCPUs reads a list of processors as the kernel writes it: "0-3,8\n".
func appendCPUs(to []int, s string) ([]int, error) {
	s = strings.TrimSuffix(s, "\n")
	if s == "" {
		return to, nil
	}

	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 31)
		if err != nil {
			return to, err
		}
		until, err := strconv.ParseUint(last, 10, 31)
		if err != nil {
			return to, err
		}
		if until >= maxCPUs || from > until {
			return to, gpuerr.New(gpuerr.IO, "processors %q, of at most %d", part, maxCPUs)
		}
		for cpu := from; cpu <= until; cpu++ {
			to = append(to, int(cpu))
		}
	}

	return to, nil
}
