package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"capgpu/audit"
	"capgpu/ddf"
)

type auditCmd struct {
	Show      auditShowCmd      `cmd:"" help:"Print the records of an audit log."`
	Verify    auditVerifyCmd    `cmd:"" help:"Check that no byte of an audit log was changed."`
	Reconcile auditReconcileCmd `cmd:"" help:"Compare what device-manager granted to devices with what the kernel mapped for them."`
}

type auditShowCmd struct {
	Log    string `help:"The log file. The full files beside it, PATH.000001 and so on, are read with it, and the logs of devices, drivers and tenants in PATH.d." required:"" placeholder:"PATH"`
	From   uint64 `help:"Print the log at PATH alone, from the record with this index." default:"0" placeholder:"INDEX"`
	Max    int    `help:"Print at most this many records; 0 means all." default:"0" placeholder:"N"`
	Kind   string `help:"Only records of this kind, or of the kinds below it: session also means session.open." placeholder:"KIND"`
	Tenant string `help:"Only records of this tenant, a driver's about it among them." placeholder:"NAME"`
}

type auditVerifyCmd struct {
	Log   string   `help:"The log file. It may be in use. The full files beside it, PATH.000001 and so on, are checked with it, and the logs of devices, drivers and tenants in PATH.d." required:"" placeholder:"PATH"`
	Known []string `help:"A head that an earlier verify printed: its records must still be those of the log. That of a log in PATH.d begins with the log's name. Repeat for more." placeholder:"[LOG=]SIZE:ROOT" sep:"none"`
}

type auditRecordJSON struct {
	Log    string    `json:"log,omitempty"` // beside the host's
	Index  uint64    `json:"index"`
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Tenant string    `json:"tenant,omitempty"`
	Detail string    `json:"detail"`
}

// readRecords is the number of a log's records that are read if the end is not
// requested.
const readRecords = math.MaxInt32

func (c auditShowCmd) Run(a *app) error {
	if c.Max < 0 {
		return usagef("--max must not be negative")
	}

	entries, readErr := c.read()
	if readErr != nil && !isDamage(readErr) {
		return readErr
	}

	shown := []auditRecordJSON{}
	gone := map[string]uint64{} // of each log
	for _, e := range entries {
		if _, seen := gone[e.Log]; !seen {
			gone[e.Log] = e.Index
		}
		if c.Max > 0 && len(shown) == c.Max {
			break
		}
		if (c.Kind != "" && e.Kind != c.Kind && !strings.HasPrefix(e.Kind, c.Kind+".")) || (c.Tenant != "" && !concerns(e.AuditRecord, c.Tenant)) {
			continue
		}

		beside, prefix := "", ""
		if e.Log != filepath.Base(c.Log) {
			beside, prefix = e.Log, strings.TrimSuffix(e.Log, ".log")+"/"
		}

		shown = append(shown, auditRecordJSON{beside, e.Index, e.Time.UTC(), e.Kind, e.Tenant, e.Detail})
		if !a.json {
			fmt.Fprintln(a.out, prefix+audit.Format(e.AuditRecord))
		}
	}

	c.printGone(a, gone)
	if a.json && readErr == nil {
		a.printJSON(shown)
	}

	if readErr != nil {
		if len(entries) == 0 {
			return &hinted{readErr, `Nothing in it can be trusted, if it is an audit log at all. Keep the file, and look for a copy.`}
		}
		return &hinted{readErr, `What was printed is intact; nothing after it in that log can be trusted. Keep the file, and look for a copy.`}
	}

	if !a.json && len(shown) == 0 {
		fmt.Fprintln(a.out, "No such record.")
	}

	return nil
}

// read reads all logs in their order, or one from a record on.
func (c auditShowCmd) read() (entries []audit.Entry, err error) {
	if c.From == 0 {
		return audit.ReadAll(c.Log)
	}
	records, err := audit.Read(c.Log, c.From, readRecords)
	for _, r := range records {
		entries = append(entries, audit.Entry{Log: filepath.Base(c.Log), AuditRecord: r})
	}
	return entries, err
}

// printGone reports which records are gone.
func (c auditShowCmd) printGone(a *app, gone map[string]uint64) {
	for _, log := range slices.Sorted(maps.Keys(gone)) {
		first, of := gone[log], ""
		if log != filepath.Base(c.Log) {
			of = " of " + log
		}
		if first > c.From {
			fmt.Fprintf(a.err, "Records %d to %d%s were rotated away.\n", c.From, first-1, of)
		}
	}
}

// concerns reports whether a record is the tenant's. A driver, which writes as
// "@DEVICE", names the tenant first in such a record.
func concerns(r ddf.AuditRecord, tenant string) bool {
	if r.Tenant == tenant {
		return true
	}
	first, _, _ := strings.Cut(r.Detail, " ")
	return strings.HasPrefix(r.Tenant, "@") && first == "tenant="+tenant
}

func isDamage(err error) bool {
	var d *audit.Damage
	return errors.As(err, &d)
}

type damageJSON struct {
	Index  uint64 `json:"index"`
	File   string `json:"file,omitempty"` // beside the log
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
}

type verifyJSON struct {
	Log       string       `json:"log"`
	Intact    bool         `json:"intact"`
	Records   uint64       `json:"records"` // that are present and intact
	First     uint64       `json:"first"`   // index of the first record; earlier ones were rotated away
	Unnoted   bool         `json:"unnoted"` // and the log has no note of the rotation
	Files     int          `json:"files"`
	Head      string       `json:"head"` // for --known
	Bytes     int64        `json:"bytes"`
	TornBytes int64        `json:"tornBytes"`
	Unchecked []string     `json:"unchecked,omitempty"` // known heads over records that were rotated away
	Damage    *damageJSON  `json:"damage,omitempty"`
	Missing   []string     `json:"missing,omitempty"` // logs that this one records as begun, and that are missing
	Others    []verifyJSON `json:"others,omitempty"`  // the logs of devices and tenants

	checked int // known heads
}

func (c auditVerifyCmd) Run(a *app) error {
	known, err := parseHeads(c.Known)
	if err != nil {
		return err
	}

	paths, err := audit.Paths(c.Log)
	if err != nil {
		return err
	}

	var all []verifyJSON
	intact := true
	for i, path := range paths {
		name := filepath.Base(path)
		if i == 0 {
			name = ""
		}
		v, err := verifyLog(path, name, known[name])
		if err != nil {
			return err
		}
		delete(known, name)
		intact = intact && v.Intact
		all = append(all, v)
	}

	for name := range known {
		if name != "" {
			return usagef("--known %s=…: there is no such log in %s.d", name, c.Log)
		}
	}

	if all[0].Intact {
		if all[0].Missing, err = audit.Missing(c.Log); err != nil {
			return err
		}
	}

	if a.json {
		whole := all[0]
		whole.Others = all[1:]
		a.printJSON(whole)
	} else {
		for i, v := range all {
			a.printVerify(v, i == 0)
		}
	}

	if !intact {
		return &failedWork{exitFailed}
	}

	return nil
}

// verifyLog verifies one log; its name is empty for the host's log.
func verifyLog(path, name string, known []ddf.AuditHead) (out verifyJSON, err error) {
	report, err := audit.Verify(path, known...)
	out = verifyJSON{
		Log: path, Intact: err == nil, Records: report.Head.Size - report.First, First: report.First, Unnoted: report.Unnoted,
		Files: report.Segments, Head: headText(name, report.Head), Bytes: report.Bytes, TornBytes: report.TornBytes, checked: len(known) - len(report.Unchecked),
	}
	for _, h := range report.Unchecked {
		out.Unchecked = append(out.Unchecked, headText(name, h))
	}
	var damage *audit.Damage
	if errors.As(err, &damage) {
		out.Damage = &damageJSON{damage.Index, damage.File, damage.Off, damage.Reason}
		return out, nil
	}
	return out, err
}

func (a *app) printVerify(v verifyJSON, host bool) {
	if v.Damage != nil {
		fmt.Fprintf(a.out, "%s is NOT intact.\n", v.Log)
		place := audit.Damage{File: v.Damage.File, Off: v.Damage.Offset}
		fmt.Fprintf(a.out, "  record %d, at %s: %s\n", v.Damage.Index, place.Place(), v.Damage.Reason)
		fmt.Fprintln(a.out, "  Keep the files as they are, and look for a copy.")
		return
	}

	files := ""
	if v.Files > 1 {
		files = fmt.Sprintf(" in %d files", v.Files)
	}

	fmt.Fprintf(a.out, "%s is intact: %s records%s, %s.\n", v.Log, countText(v.Records), files, bytesText(uint64(v.Bytes)))
	if v.First > 0 {
		fmt.Fprintf(a.out, "  Records before %d were rotated away.\n", v.First)
	}
	if v.Unnoted {
		fmt.Fprintln(a.out, "  The log does not say that it did that: somebody else took files away.")
	}

	for _, head := range v.Unchecked {
		fmt.Fprintf(a.out, "  Not checked, for its records were rotated away: known head %s\n", head)
	}

	for _, log := range v.Missing {
		fmt.Fprintf(a.out, "  %s was begun, and is not there: somebody took it away.\n", visible(log))
	}

	switch checked := v.checked; {
	case checked == 1:
		fmt.Fprintln(a.out, "  It agrees with the known head.")
	case checked > 1:
		fmt.Fprintf(a.out, "  It agrees with %d known heads.\n", checked)
	}

	if v.TornBytes > 0 {
		fmt.Fprintf(a.out, "  The last %d bytes are an unfinished record: being written just now, or torn by a crash. device-manager notes and removes it when it starts.\n", v.TornBytes)
	}

	fmt.Fprintf(a.out, "  head %s\n", v.Head)
	if host && v.checked+len(v.Unchecked) == 0 {
		fmt.Fprintln(a.out, "  That nothing was cut off the end shows only against a head kept elsewhere: keep this one, and give it to --known next time.")
	}
}

// headText is a head of the log of that name, in the syntax of --known.
func headText(name string, h ddf.AuditHead) string {
	if name != "" {
		name += "="
	}
	return fmt.Sprintf("%s%d:%s", name, h.Size, hex.EncodeToString(h.Root[:]))
}

// parseHeads reads heads by the name of their log.
func parseHeads(args []string) (map[string][]ddf.AuditHead, error) {
	heads := map[string][]ddf.AuditHead{}
	for _, arg := range args {
		name, head, named := strings.Cut(arg, "=")
		if !named {
			name, head = "", arg
		}
		size, root, _ := strings.Cut(head, ":")
		n, err := strconv.ParseUint(size, 10, 64)
		raw, hexErr := hex.DecodeString(root)
		if err != nil || hexErr != nil || len(raw) != 32 {
			return nil, usagef("--known %s: write SIZE:ROOT as verify prints it after \"head\"", arg)
		}
		heads[name] = append(heads[name], ddf.AuditHead{Size: n, Root: [32]byte(raw)})
	}
	return heads, nil
}
