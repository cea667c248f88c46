package faultlog

import (
	"strconv"
	"strings"

	"capgpu/iommu"
)

// Fault is one report of the IOMMU's driver.
type Fault struct {
	// Address is the function's PCI address, 0000:01:00.0; empty when the record only counts
	// Lost.
	Address string
	// AnySegment: the driver does not name the PCI segment of the function, and Address has
	// 0000 for it. See Matches.
	AnySegment bool
	// IOVA is the address that the function tried to reach; DMAR reports its page only.
	IOVA  iommu.IOVA
	Write bool
	// Reason is the driver's word for it: "PTE Write access is not set", or AMD's
	// domain and flags.
	Reason string
	// Micros is when it was printed, in µs of the kernel's own clock since boot.
	Micros uint64
	// Lost is how many reports the kernel dropped since the last Fault, as far as is known:
	// suppressed by the driver's rate limit, or overwritten before they were read. Not every
	// overwritten one need have been about a fault.
	Lost uint64
	// Overrun: some of Lost were overwritten, of unknown functions. Reports that the rate
	// limit suppressed come after a report that used it up.
	Overrun bool
}

// Matches reports whether the fault can be of the function at this address.
func (f Fault) Matches(address string) bool {
	if f.AnySegment {
		_, ours, _ := strings.Cut(f.Address, ":")
		_, theirs, ok := strings.Cut(address, ":")
		return ok && ours == theirs
	}
	return f.Address != "" && f.Address == address
}

// maxReasonBytes bounds what of a line ends up in the audit log.
const maxReasonBytes = 128

// record is one read of /dev/kmsg: "prio,seq,µs,flags[,…];text\n" and then lines of KEY=value
// that begin with a space (Documentation/ABI/testing/dev-kmsg, Linux 6.12).
type record struct {
	facility uint64
	seq      uint64
	micros   uint64
	text     string
}

func parseRecord(b []byte) (record, bool) {
	head, rest, ok := strings.Cut(string(b), ";")
	if !ok {
		return record{}, false
	}

	fields := strings.Split(head, ",")
	if len(fields) < 4 {
		return record{}, false
	}

	var n [3]uint64
	for i := range n {
		v, ok := decimal(fields[i])
		if !ok {
			return record{}, false
		}
		n[i] = v
	}

	text, _, _ := strings.Cut(rest, "\n")
	return record{facility: n[0] >> 3, seq: n[1], micros: n[2], text: text}, true
}

// parseLine reads a line of an IOMMU's driver. It is false for every other one.
func parseLine(s string) (Fault, bool) {
	if rest, ok := strings.CutPrefix(s, "DMAR: ["); ok {
		return parseDMAR(rest)
	}
	return parseAMD(s)
}

// parseDMAR reads what dmar_fault_do_one prints (drivers/iommu/intel/dmar.c), after
// its first bracket:
//
//	DMA Write NO_PASID] Request device [00:01.0] fault addr 0x900000 [fault reason 0x05] PTE Write access is not set
//	DMA Read PASID 0x1] Request device [00:01.0] fault addr 0x0 [fault reason 0x71] SM: …        since 5.12, with [0x00:0x01.0] at first
//	DMA Read] Request device [00:01.0] PASID ffffffff fault addr 900000 [fault reason 06] …       4.20 to 5.11
//	DMA Write] Request device [00:01.0] fault addr 900000 [fault reason 05] …                     before
//
// Faults of interrupt remapping ([INTR-REMAP]) are about no memory.
func parseDMAR(s string) (f Fault, ok bool) {
	p := line{s: s}
	switch {
	case p.skip("DMA Write"):
		f.Write = true
	case p.skip("DMA Read"):
	default:
		return Fault{}, false
	}

	if p.skip(" PASID 0x") {
		p.hex(8)
	} else {
		p.skip(" NO_PASID")
	}

	p.must("] Request device [")
	bus := p.prefixedHex(2, 2)
	p.must(":")
	slot := p.prefixedHex(2, 2)
	p.must(".")
	function := p.prefixedHex(1, 1)
	p.must("] ")
	if p.skip("PASID ") {
		p.hex(8)
		p.must(" ")
	}

	p.must("fault addr ")
	f.IOVA = iommu.IOVA(p.prefixedHex(1, 16))
	p.must(" [fault reason ")
	p.skip("0x")
	p.hex(3)
	p.must("] ")
	if p.bad || slot > 31 || function > 7 || p.s == "" {
		return Fault{}, false
	}

	f.Address, f.AnySegment, f.Reason = address(0, bus, slot, function), true, clip(p.s)
	return f, true
}

// The bits of AMD's flags that describe the access (EVENT_FLAG_* in
// drivers/iommu/amd/amd_iommu_types.h, Linux 6.12).
const (
	amdFlagInterrupt = 0x008
	amdFlagWrite     = 0x020
)

// parseAMD reads what amd_iommu_report_page_fault prints (drivers/iommu/amd/iommu.c),
// in the form for a function that the driver knows and in that for another, which
// had no segment before 6.1:
//
//	vfio-pci 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000d address=0x900000 flags=0x0020]
//	AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:01:00.0 domain=0x000d address=0x900000 flags=0x0020]
func parseAMD(s string) (f Fault, ok bool) {
	const event = "AMD-Vi: Event logged [IO_PAGE_FAULT "
	p := line{s: s}
	named := strings.HasPrefix(s, event)
	if !named {
		driver, rest, ok := strings.Cut(s, " ")
		if !ok || driver == "" || strings.Contains(driver, ":") {
			return Fault{}, false
		}
		p.s = rest
		f.Address = p.address(false)
		p.must(": ")
	}

	p.must(event)
	if named {
		p.must("device=")
		f.AnySegment = len(p.s) > 7 && p.s[2] == ':' && p.s[5] == '.'
		f.Address = p.address(f.AnySegment)
		p.must(" ")
	}

	p.must("domain=0x")
	domain := p.hex(8)
	p.must(" address=0x")
	f.IOVA = iommu.IOVA(p.hex(16))
	p.must(" flags=0x")
	flags := p.hex(8)
	p.must("]")
	if p.bad || p.s != "" || flags&amdFlagInterrupt != 0 {
		return Fault{}, false
	}

	f.Write = flags&amdFlagWrite != 0
	f.Reason = "IO_PAGE_FAULT domain=0x" + strconv.FormatUint(domain, 16) + " flags=0x" + strconv.FormatUint(flags, 16)
	return f, true
}

// parseSuppressed reads how many calls of a rate-limited print were dropped
// (lib/ratelimit.c), "dmar_fault: 34 callbacks suppressed", and returns how many
// faults that were at least. DMAR asks up to three times about one fault: for the
// line about the status, for the fault, and for the end of the list.
func parseSuppressed(s string) (uint64, bool) {
	who, rest, ok := strings.Cut(s, ": ")
	if !ok || (who != "dmar_fault" && who != "amd_iommu_report_page_fault") {
		return 0, false
	}
	n, ok := strings.CutSuffix(rest, " callbacks suppressed")
	if !ok {
		return 0, false
	}
	calls, ok := decimal(n)
	if who == "dmar_fault" {
		calls = calls/3 + min(1, calls%3)
	}
	return calls, ok
}

// line is read from its front. Once something was not as expected, it stays bad.
type line struct {
	s   string
	bad bool
}

func (p *line) skip(prefix string) bool {
	rest, ok := strings.CutPrefix(p.s, prefix)
	if ok && !p.bad {
		p.s = rest
		return true
	}
	return false
}

func (p *line) must(prefix string) {
	if !p.skip(prefix) {
		p.bad = true
	}
}

// hex reads one to most lower-case digits.
func (p *line) hex(most int) uint64 { return p.digits(1, most) }

// prefixedHex is the same after a prefix that older kernels leave out.
func (p *line) prefixedHex(least, most int) uint64 {
	p.skip("0x")
	return p.digits(least, most)
}

func (p *line) digits(least, most int) (v uint64) {
	n := 0
	for n < len(p.s) && n < most && isHex(p.s[n]) {
		n++
	}
	if p.bad || n < least {
		p.bad = true
		return 0
	}
	v, err := strconv.ParseUint(p.s[:n], 16, 64)
	p.bad = err != nil
	p.s = p.s[n:]
	return v
}

// address reads "0000:01:00.0", or "01:00.0".
func (p *line) address(short bool) string {
	var segment uint64
	if !short {
		segment = p.digits(4, 8)
		p.must(":")
	}

	bus := p.digits(2, 2)
	p.must(":")
	slot := p.digits(2, 2)
	p.must(".")
	function := p.digits(1, 1)
	if p.bad || slot > 31 || function > 7 {
		p.bad = true
		return ""
	}

	return address(segment, bus, slot, function)
}

// address is a PCI address as sysfs writes it.
func address(segment, bus, slot, function uint64) string {
	return padded(segment, 4) + ":" + padded(bus, 2) + ":" + padded(slot, 2) + "." + strconv.FormatUint(function, 16)
}

func padded(v uint64, width int) string {
	s := strconv.FormatUint(v, 16)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// decimal reads a number without sign, space or underscore.
func decimal(s string) (uint64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil
}

func clip(s string) string { return s[:min(len(s), maxReasonBytes)] }
