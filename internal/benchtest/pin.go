package benchtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Pin keeps every thread of this process, and those to come, on one CPU. undo lets
// them go where they could before.
func Pin(cpu int) (undo func() error, err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("ask for the CPUs: %w", err)
	}
	one.Set(cpu)
	return func() error { return setAffinity(&before) }, setAffinity(&one)
}

// setAffinity goes on until no thread has come meanwhile: a new one has the CPUs of
// the one that made it.
func setAffinity(set *unix.CPUSet) error {
	done := map[int]bool{}
	for {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		added := false
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil || done[tid] {
				continue
			}
			done[tid], added = true, true
			if err := unix.SchedSetaffinity(tid, set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("pin thread %d: %w", tid, err)
			}
		}
		if !added {
			return nil
		}
	}
}

// PinInterrupts sends the interrupts of a PCI function to one CPU. All of its vectors are
// armed.
func PinInterrupts(address string, cpu int) error {
	vectors, err := filepath.Glob(filepath.Join("/sys/bus/pci/devices", address, "msi_irqs", "*"))
	if err != nil || len(vectors) == 0 {
		return fmt.Errorf("%s has no armed vector (%v)", address, err)
	}
	for _, v := range vectors {
		path := filepath.Join("/proc/irq", filepath.Base(v), "smp_affinity_list")
		if err := os.WriteFile(path, []byte(strconv.Itoa(cpu)), 0); err != nil {
			return fmt.Errorf("pin an interrupt: %w", err)
		}
	}
	return nil
}
