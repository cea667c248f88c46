package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
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
	Log    string `help:"The log file. The full files beside it, PATH.000001 and so on, are read with it." required:"" placeholder:"PATH"`
	From   uint64 `help:"Index of the first record to print." default:"0" placeholder:"INDEX"`
	Max    int    `help:"Print at most this many records; 0 means all." default:"0" placeholder:"N"`
	Kind   string `help:"Only records of this kind, or of the kinds below it: session also means session.open." placeholder:"KIND"`
	Tenant string `help:"Only records of this tenant, a driver's about it among them." placeholder:"NAME"`
}

type auditVerifyCmd struct {
	Log   string   `help:"The log file. It may be in use. The full files beside it, PATH.000001 and so on, are checked with it." required:"" placeholder:"PATH"`
	Known []string `help:"A head that an earlier verify printed: its records must still be those of the log. Repeat for more." placeholder:"SIZE:ROOT" sep:"none"`
}

type auditRecordJSON struct {
	Index  uint64    `json:"index"`
	Time   time.Time `json:"time"`
	Kind   string    `json:"kind"`
	Tenant string    `json:"tenant,omitempty"`
	Detail string    `json:"detail"`
}

// readRecords is how many records are read of a log whose end is not asked for.
const readRecords = math.MaxInt32

func (c auditShowCmd) Run(a *app) error {
	if c.Max < 0 {
		return usagef("--max must not be negative")
	}
	limit := readRecords
	if c.Max > 0 && c.Kind == "" && c.Tenant == "" {
		limit = c.Max
	}
	records, readErr := audit.Read(c.Log, c.From, limit)
	if readErr != nil && !isDamage(readErr) {
		return readErr
	}
	shown := []auditRecordJSON{}
	for _, r := range records {
		if c.Max > 0 && len(shown) == c.Max {
			break
		}
		if (c.Kind != "" && r.Kind != c.Kind && !strings.HasPrefix(r.Kind, c.Kind+".")) || (c.Tenant != "" && !concerns(r, c.Tenant)) {
			continue
		}
		shown = append(shown, auditRecordJSON{r.Index, r.Time.UTC(), r.Kind, r.Tenant, r.Detail})
		if !a.json {
			fmt.Fprintln(a.out, audit.Format(r))
		}
	}
	if len(records) > 0 && records[0].Index > c.From {
		fmt.Fprintf(a.err, "Records %d to %d were rotated away.\n", c.From, records[0].Index-1)
	}
	if a.json && readErr == nil {
		a.printJSON(shown)
	}
	if readErr != nil {
		if len(records) == 0 {
			return &hinted{readErr, `Nothing in it can be trusted, if it is an audit log at all. Keep the file, and look for a copy.`}
		}
		return &hinted{readErr, `What was printed is intact; nothing after it can be trusted. Keep the file, and look for a copy.`}
	}
	if !a.json && len(shown) == 0 {
		fmt.Fprintln(a.out, "No such record.")
	}
	return nil
}

// concerns reports whether a record is the tenant's, or one in which a driver,
// which writes as "@DEVICE", names it first of all.
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
	Log       string      `json:"log"`
	Intact    bool        `json:"intact"`
	Records   uint64      `json:"records"` // that are there and intact
	First     uint64      `json:"first"`   // index of the first of them; those before were rotated away
	Unnoted   bool        `json:"unnoted"` // and the log does not say that it did that
	Files     int         `json:"files"`
	Head      string      `json:"head"` // for --known
	Bytes     int64       `json:"bytes"`
	TornBytes int64       `json:"tornBytes"`
	Unchecked []string    `json:"unchecked,omitempty"` // known heads over records that were rotated away
	Damage    *damageJSON `json:"damage,omitempty"`
}

func (c auditVerifyCmd) Run(a *app) error {
	known, err := parseHeads(c.Known)
	if err != nil {
		return err
	}
	report, err := audit.Verify(c.Log, known...)
	out := verifyJSON{
		Log: c.Log, Intact: err == nil, Records: report.Head.Size - report.First, First: report.First, Unnoted: report.Unnoted,
		Files: report.Segments, Head: headText(report.Head), Bytes: report.Bytes, TornBytes: report.TornBytes,
	}
	for _, h := range report.Unchecked {
		out.Unchecked = append(out.Unchecked, headText(h))
	}
	var damage *audit.Damage
	if errors.As(err, &damage) {
		out.Damage = &damageJSON{damage.Index, damage.File, damage.Off, damage.Reason}
	} else if err != nil {
		return err
	}
	if a.json {
		a.printJSON(out)
	} else {
		a.printVerify(out, len(known))
	}
	if damage != nil {
		return &failedWork{exitFailed}
	}
	return nil
}

func (a *app) printVerify(v verifyJSON, known int) {
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
	switch checked := known - len(v.Unchecked); {
	case checked == 1:
		fmt.Fprintln(a.out, "  It agrees with the known head.")
	case checked > 1:
		fmt.Fprintf(a.out, "  It agrees with %d known heads.\n", checked)
	}
	if v.TornBytes > 0 {
		fmt.Fprintf(a.out, "  The last %d bytes are an unfinished record: being written just now, or torn by a crash. device-manager notes and removes it when it starts.\n", v.TornBytes)
	}
	fmt.Fprintf(a.out, "  head %s\n", v.Head)
	if known == 0 {
		fmt.Fprintln(a.out, "  That nothing was cut off the end shows only against a head kept elsewhere: keep this one, and give it to --known next time.")
	}
}

func headText(h ddf.AuditHead) string {
	return fmt.Sprintf("%d:%s", h.Size, hex.EncodeToString(h.Root[:]))
}

func parseHeads(args []string) ([]ddf.AuditHead, error) {
	var heads []ddf.AuditHead
	for _, arg := range args {
		size, root, _ := strings.Cut(arg, ":")
		n, err := strconv.ParseUint(size, 10, 64)
		raw, hexErr := hex.DecodeString(root)
		if err != nil || hexErr != nil || len(raw) != 32 {
			return nil, usagef("--known %s: write SIZE:ROOT as verify prints it after \"head\"", arg)
		}
		heads = append(heads, ddf.AuditHead{Size: n, Root: [32]byte(raw)})
	}
	return heads, nil
}
