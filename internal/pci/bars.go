package pci

import (
	"fmt"
	"strconv"
	"strings"
)

// BAR is one base address register that the kernel has assigned.
type BAR struct {
	Index      int // 0 to 5
	Start      uint64
	Bytes      uint64
	Memory     bool // else I/O ports
	Prefetched bool
	Wide       bool // 64-bit: it takes the next register, too
}

// Flags of a resource: include/linux/ioport.h, Linux 6.12.
const (
	resourceIO       = 0x00000100
	resourceMemory   = 0x00000200
	resourcePrefetch = 0x00002000
	resourceWide     = 0x00100000
)

const (
	barCount = 6
	// The file goes on with the ROM, and windows of bridges or of virtual functions.
	maxResources = 32
)

// ParseResource reads the file "resource" of a function: a line of start, end and flags for
// each region. The first six are the BARs. It leaves out BARs that do not exist.
func ParseResource(text string) ([]BAR, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < barCount || len(lines) > maxResources {
		return nil, fmt.Errorf("resource has %d lines, not %d to %d", len(lines), barCount, maxResources)
	}

	var bars []BAR
	for i, line := range lines {
		n, err := parseResourceLine(line)
		if err != nil {
			return nil, fmt.Errorf("resource line %d: %w", i+1, err)
		}
		start, end, flags := n[0], n[1], n[2]
		if i >= barCount || flags&(resourceIO|resourceMemory) == 0 {
			continue
		}
		// A region that could not be placed has flags but no address.
		if end <= start || end-start == 1<<64-1 {
			continue
		}
		bars = append(bars, BAR{Index: i, Start: start, Bytes: end - start + 1, Memory: flags&resourceMemory != 0,
			Prefetched: flags&resourcePrefetch != 0, Wide: flags&resourceWide != 0})
	}

	return bars, nil
}

func parseResourceLine(line string) (n [3]uint64, err error) {
	words := strings.Split(line, " ")
	if len(words) != 3 {
		return n, fmt.Errorf("%.80q is not three numbers", line)
	}
	for i, word := range words {
		digits, hex := strings.CutPrefix(word, "0x")
		if !hex || len(digits) != 16 {
			return n, fmt.Errorf("%.80q is not three numbers of 16 hex digits", line)
		}
		if n[i], err = strconv.ParseUint(digits, 16, 64); err != nil {
			return n, fmt.Errorf("%.80q is not three numbers of 16 hex digits", line)
		}
	}
	return n, nil
}
