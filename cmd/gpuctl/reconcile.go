package main

import (
	"fmt"
	"strings"

	"capgpu/audit"
	"capgpu/audit/dma"
	"capgpu/ddf"
)

type auditReconcileCmd struct {
	Log string `help:"The log file. It may be in use. The full files beside it, PATH.000001 and so on, are read with it, and those in PATH.d." required:"" placeholder:"PATH"`
}

// reconcileSideJSON is the record of one source.
type reconcileSideJSON struct {
	Maps       uint64 `json:"maps"`
	MapBytes   uint64 `json:"mapBytes"`
	Unmaps     uint64 `json:"unmaps"`
	UnmapBytes uint64 `json:"unmapBytes"`
}

type reconcileRowJSON struct {
	Run        int               `json:"run"` // of device-manager, from 1
	Function   string            `json:"function"`
	Epoch      uint64            `json:"epoch"`
	State      string            `json:"state"` // ended, live, unfinished, partial, unwatched
	Reason     string            `json:"reason,omitempty"`
	Manager    reconcileSideJSON `json:"manager"`
	Kernel     reconcileSideJSON `json:"kernel"`
	Kept       int               `json:"kept"`
	Matched    uint64            `json:"matched"`
	Missing    uint64            `json:"missing"`
	Unexpected uint64            `json:"unexpected"`
	Pending    uint64            `json:"pending"`
	Mismatches uint64            `json:"mismatches"`
	Faults     uint64            `json:"faults"`
}

type reconcileJSON struct {
	Log         string             `json:"log"`
	Agrees      bool               `json:"agrees"`
	Epochs      []reconcileRowJSON `json:"epochs"`
	Lost        uint64             `json:"lost"`
	AuditLost   bool               `json:"auditLost"`
	Count       uint64             `json:"differences"`
	Differences []string           `json:"first,omitempty"` // the first of them
}

func (c auditReconcileCmd) Run(a *app) error {
	entries, err := audit.ReadAll(c.Log)
	if err != nil {
		if isDamage(err) {
			return &hinted{err, `A damaged log proves nothing. "gpuctl audit verify" says where it is damaged; keep the file, and look for a copy.`}
		}
		return err
	}

	report := compare(entries)
	if a.json {
		a.printJSON(reconcileToJSON(c.Log, report))
	} else {
		a.printReconcile(c.Log, report)
	}

	if !report.Agrees() {
		return &failedWork{exitFailed}
	}

	return nil
}

// compare compares the records of all logs except those of tenants.
func compare(entries []audit.Entry) *dma.Report {
	var records []ddf.AuditRecord
	var cut []string // devices with a log that has lost its beginning; "" is the host
	seen := map[string]bool{}
	for _, e := range entries {
		if strings.HasPrefix(e.Log, string(audit.OfTenant(""))) {
			continue
		}
		if !seen[e.Log] && e.Index > 0 {
			cut = append(cut, deviceOf(e.Log))
		}
		seen[e.Log] = true
		records = append(records, e.AuditRecord)
	}
	return dma.Compare(records, cut...)
}

// deviceOf is the device that a log is about, or "".
func deviceOf(log string) string {
	name := strings.TrimSuffix(log, ".log")
	for _, prefix := range []audit.Owner{audit.OfDevice(""), audit.OfDriver("")} {
		if device, ok := strings.CutPrefix(name, string(prefix)); ok {
			return device
		}
	}
	return ""
}

func reconcileToJSON(log string, r *dma.Report) reconcileJSON {
	out := reconcileJSON{Log: log, Agrees: r.Agrees(), Epochs: []reconcileRowJSON{}, Lost: r.Lost, AuditLost: r.AuditLost, Count: r.Count, Differences: r.Differences}
	for _, w := range r.Rows {
		out.Epochs = append(out.Epochs, reconcileRowJSON{
			Run: w.Run, Function: w.Function, Epoch: w.Epoch, State: string(w.State), Reason: w.Reason,
			Manager: reconcileSideJSON{w.Maps.Count, w.Maps.Bytes, w.Unmaps.Count, w.Unmaps.Bytes},
			Kernel:  reconcileSideJSON{w.KernelMaps.Count, w.KernelMaps.Bytes, w.KernelUnmaps.Count, w.KernelUnmaps.Bytes},
			Kept:    w.Kept, Matched: w.Matched, Missing: w.Missing, Unexpected: w.Unexpected, Pending: w.Pending, Mismatches: w.Mismatches, Faults: w.Faults,
		})
	}
	return out
}

func (a *app) printReconcile(log string, r *dma.Report) {
	if len(r.Rows) > 0 {
		rows := [][]string{}
		for _, w := range r.Rows {
			rows = append(rows, []string{
				fmt.Sprint(w.Run), visible(w.Function), fmt.Sprint(w.Epoch), string(w.State),
				sideText(w.Maps), sideText(w.Unmaps), sideText(w.KernelMaps), sideText(w.KernelUnmaps),
				countText(w.Matched), countText(w.Missing), countText(w.Unexpected), countText(w.Pending), countText(w.Faults),
			})
		}
		table(a.out, []string{"RUN", "FUNCTION", "EPOCH", "STATE", "GRANTED", "TAKEN BACK", "KERNEL MAPPED", "KERNEL UNMAPPED",
			"MATCHED", "MISSING", "UNEXPECTED", "PENDING", "FAULTS"}, rows)
	}

	for _, d := range r.Differences {
		fmt.Fprintf(a.out, "  %s\n", visible(d))
	}

	if more := r.Count - uint64(len(r.Differences)); more > 0 {
		fmt.Fprintf(a.out, "  and %s more.\n", countText(more))
	}
	if r.AuditLost {
		fmt.Fprintln(a.out, "  The log says that records are missing (audit.lost): what is missing or unexpected may have been among them.")
	}

	switch {
	case !r.Agrees():
		fmt.Fprintf(a.out, "%s: device-manager and the kernel do NOT agree about DMA memory.\n", log)
	case len(r.Rows) == 0:
		fmt.Fprintf(a.out, "%s: there was no function on hardware, so there is nothing to compare.\n", log)
	default:
		fmt.Fprintf(a.out, "%s: device-manager and the kernel agree about DMA memory.\n", log)
	}
}

// sideText is "3 (1.5 MiB)".
func sideText(s dma.Sum) string {
	if s.Count == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", countText(s.Count), bytesText(s.Bytes))
}
