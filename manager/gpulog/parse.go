// Package gpulog reads what the kernel's drivers of GPUs report of their devices: hangs,
// faults and resets, which they tell nobody but the kernel's log (/dev/kmsg).
//
// Trust: the kernel alone is trusted. A process that may write to /dev/kmsg cannot give its
// line facility 0 (kernel/printk/printk.c, devkmsg_write), and lines of other facilities are
// passed over. A line must be of a known form from its first byte on. The names of processes in
// a line are their own choice, 15 bytes: a number behind one is less sure than one before it,
// and Event.Sure says which.
//
// A report may be missing: most hangs that end with a kill are not reported at all
// (docs/gpus.md, section 11). Nothing waits for one.
package gpulog

import (
	"strconv"
	"strings"
)

// Event is one report.
type Event struct {
	// Address is the PCI function: "0000:01:00.0", or without the function, as NVIDIA's driver
	// has it: "0000:01:00".
	Address string
	Kind    string // "xid", "timeout", "process" or "hang"
	Xid     uint64 // NVIDIA's number of the error; 0: another kind
	PID     int    // of the process that the driver names; 0: none
	Sure    bool   // PID is not behind text of a process
	Text    string // the report, at most maxTextBytes
}

const maxTextBytes = 200

// Concerns reports whether the event is about the function.
func (e Event) Concerns(address string) bool {
	return e.Address == address || strings.HasPrefix(address, e.Address+".")
}

// ParseRecord returns the event of one read of /dev/kmsg: "prio,seq,µs,flags[,…];text\n" and
// then lines of KEY=value (Documentation/ABI/testing/dev-kmsg, Linux 6.12).
func ParseRecord(b []byte) (Event, bool) {
	head, rest, ok := strings.Cut(string(b), ";")
	priority, _, more := strings.Cut(head, ",")
	n, err := strconv.ParseUint(priority, 10, 16)
	if !ok || !more || err != nil || n>>3 != 0 {
		return Event{}, false
	}
	text, _, _ := strings.Cut(rest, "\n")
	return ParseLine(text)
}

// ParseLine returns the event of a line.
func ParseLine(s string) (e Event, ok bool) {
	for _, parse := range []func(string) (Event, bool){parseXid, parseAMD, parseIntel} {
		if e, ok = parse(s); ok {
			e.Text = s[:min(len(s), maxTextBytes)]
			return e, true
		}
	}
	return Event{}, false
}

// parseXid reads a report of NVIDIA's driver (its document XID Errors, r580):
//
//	NVRM: Xid (PCI:0000:01:00): 31, pid=1234, name=engine, Ch 00000008, …
//	NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
func parseXid(s string) (e Event, ok bool) {
	s, ok = strings.CutPrefix(s, "NVRM: Xid (PCI:")
	if !ok {
		return e, false
	}
	address, s, ok := strings.Cut(s, "): ")
	if !ok || !isAddress(address, false) {
		return e, false
	}
	number, s, _ := strings.Cut(s, ",")
	xid, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return e, false
	}
	e = Event{Address: address, Kind: "xid", Xid: xid}
	if pid, ok := strings.CutPrefix(s, " pid="); ok {
		e.PID = leadingPID(strings.TrimPrefix(pid, "'"))
		e.Sure = e.PID != 0
	}
	return e, true
}

// parseAMD reads a report of amdgpu (amdgpu_job.c, amdgpu_job_timedout, Linux 6.12):
//
//	amdgpu 0000:03:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=3, emitted seq=5
//	amdgpu 0000:03:00.0: amdgpu: Process information: process engine pid 12 thread engine pid 13
//	amdgpu 0000:03:00.0: amdgpu: GPU reset begin!
func parseAMD(s string) (e Event, ok bool) {
	s, ok = strings.CutPrefix(s, "amdgpu ")
	if !ok {
		return e, false
	}
	address, s, ok := strings.Cut(s, ": amdgpu: ")
	if !ok || !isAddress(address, true) {
		return e, false
	}
	e.Address = address
	switch s = strings.TrimLeft(s, " "); {
	case strings.HasPrefix(s, "ring ") && strings.Contains(s, " timeout"):
		e.Kind = "timeout"
	case strings.HasPrefix(s, "Process information: process "):
		e.Kind = "process"
		if i := strings.LastIndex(s, " thread "); i >= 0 {
			s = s[:i]
		}
		if i := strings.LastIndex(s, " pid "); i >= 0 {
			e.PID = leadingPID(s[i+len(" pid "):])
		}
	case strings.HasPrefix(s, "GPU reset begin"):
		e.Kind = "hang"
	default:
		return Event{}, false
	}
	return e, true
}

// parseIntel reads a report of i915 (i915_gpu_error.c, error_msg, Linux 6.12) or xe
// (xe_guc_submit.c, guc_exec_queue_timedout_job):
//
//	i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:85dffffb, in engine [1234]
//	xe 0000:03:00.0: [drm] Timedout job: seqno=3, lrc_seqno=3, guc_id=2, flags=0x0 in engine [12]
func parseIntel(s string) (e Event, ok bool) {
	for _, driver := range []string{"i915 ", "xe "} {
		rest, ours := strings.CutPrefix(s, driver)
		address, text, cut := strings.Cut(rest, ": [drm] ")
		if !ours || !cut || !isAddress(address, true) {
			continue
		}
		e = Event{Address: address, Kind: "hang"}
		switch {
		case strings.HasPrefix(text, "GPU HANG: "):
		case strings.Contains(text, "Timedout job: "):
			e.Kind = "timeout"
		default:
			return Event{}, false
		}
		if i := strings.LastIndex(text, "["); i >= 0 && strings.HasSuffix(text, "]") {
			e.PID = leadingPID(text[i+1:])
		}
		return e, true
	}
	return Event{}, false
}

// leadingPID returns the number that a text begins with, or 0.
func leadingPID(s string) int {
	end := 0
	for end < len(s) && end < 8 && '0' <= s[end] && s[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(s[:end])
	if err != nil {
		return 0
	}
	return n
}

// isAddress reports whether s is an address of a PCI function in lower case; whole: with the
// number of the function.
func isAddress(s string, whole bool) bool {
	if whole {
		rest, function := s[:max(len(s)-2, 0)], s[max(len(s)-2, 0):]
		if len(function) != 2 || function[0] != '.' || function[1] < '0' || function[1] > '7' {
			return false
		}
		s = rest
	}
	parts := strings.Split(s, ":")
	if len(parts) != 3 || len(parts[0]) < 4 || len(parts[0]) > 8 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef:") == ""
}
