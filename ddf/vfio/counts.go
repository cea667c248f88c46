package vfio

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// irqCount counts the interrupts of one vector through all epochs. The kernel
// starts anew each time a vector is armed.
type irqCount struct {
	before uint64 // of earlier arms
	now    uint64 // of this one, when the kernel was last asked
}

func (c *irqCount) see(n uint64) {
	if n < c.now { // armed anew in between
		c.before += c.now
	}
	c.now = n
}

func (c *irqCount) restart() { c.before, c.now = c.before+c.now, 0 }

// Interrupts counts what each vector has raised since the function was opened, as
// the kernel sees it; nil where it cannot be asked.
func (f *Function) Interrupts() []uint64 {
	f.opMu.Lock()
	defer f.opMu.Unlock()
	if f.vectorCount == 0 || !f.sampleLocked() {
		return nil
	}
	totals := make([]uint64, len(f.counts))
	for i, c := range f.counts {
		totals[i] = c.before + c.now
	}
	return totals
}

// maxInterruptsBytes bounds the file: a line has 11 bytes for each CPU, and there may be some
// thousand lines.
const maxInterruptsBytes = 64 << 20

// +checklocks:f.opMu
func (f *Function) sampleLocked() bool {
	file, err := os.Open(filepath.Join(f.proc, "interrupts"))
	if err != nil {
		return false
	}

	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxInterruptsBytes))
	if err != nil {
		return false
	}

	for vector, n := range parseInterrupts(text, f.identity.PCIAddress) {
		if vector < len(f.counts) {
			f.counts[vector].see(n)
		}
	}

	return true
}

// maxVectors is the largest number of MSI-X vectors.
const maxVectors = 2048

// parseInterrupts finds the vectors of a device in /proc/interrupts. Their names
// are made by vfio_msi_set_vector_signal:
//
//	          CPU0       CPU1
//	28:          3          1  IR-PCI-MSI-0000:01:00.0    0-edge      vfio-msi[0](0000:01:00.0)
func parseInterrupts(text []byte, address string) map[int]uint64 {
	counts := map[int]uint64{}
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	cpus := len(bytes.Fields(head))
	for line := range bytes.Lines(rest) {
		if !bytes.Contains(line, []byte("vfio-msi")) {
			continue
		}
		fields := strings.Fields(string(line))
		if len(fields) < cpus+2 {
			continue
		}
		vector, ok := vectorName(fields[len(fields)-1], address)
		if !ok {
			continue
		}
		total, err := uint64(0), error(nil)
		for _, word := range fields[1 : 1+cpus] {
			var n uint64
			if n, err = strconv.ParseUint(word, 10, 64); err != nil {
				break
			}
			total += n
		}
		if err == nil {
			counts[vector] = total
		}
	}

	return counts
}

// vectorName reads "vfio-msi[0](0000:01:00.0)" or "vfio-msix[0](0000:01:00.0)".
func vectorName(name, address string) (vector int, ok bool) {
	rest, ok := strings.CutSuffix(name, fmt.Sprintf("](%s)", address))
	if !ok {
		return 0, false
	}
	kind, number, ok := strings.Cut(rest, "[")
	if !ok || (kind != "vfio-msi" && kind != "vfio-msix") {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 16)
	return int(n), err == nil && n < maxVectors
}
