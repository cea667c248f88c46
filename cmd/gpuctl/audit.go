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
	Show   auditShowCmd   `cmd:"" help:"Print the records of an audit log."`
	Verify auditVerifyCmd `cmd:"" help:"Check that no byte of an audit log was changed."`
}

type auditShowCmd struct {
	Log    string `help:"The log file." required:"" placeholder:"PATH"`
	From   uint64 `help:"Index of the first record to print." default:"0" placeholder:"INDEX"`
	Max    int    `help:"Print at most this many records; 0 means all." default:"0" placeholder:"N"`
	Kind   string `help:"Only records of this kind, or of the kinds below it: session also means session.open." placeholder:"KIND"`
	Tenant string `help:"Only records of this tenant." placeholder:"NAME"`
}

type auditVerifyCmd struct {
	Log   string   `help:"The log file. It may be in use." required:"" placeholder:"PATH"`
	Known []string `help:"A head that an earlier verify printed: the log must still begin with those records. Repeat for more." placeholder:"SIZE:ROOT" sep:"none"`
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
		if (c.Kind != "" && r.Kind != c.Kind && !strings.HasPrefix(r.Kind, c.Kind+".")) || (c.Tenant != "" && r.Tenant != c.Tenant) {
			continue
		}
		shown = append(shown, auditRecordJSON{r.Index, r.Time.UTC(), r.Kind, r.Tenant, r.Detail})
		if !a.json {
			fmt.Fprintln(a.out, audit.Format(r))
		}
	}
	if a.json && readErr == nil {
		a.printJSON(shown)
	}
	if readErr != nil {
		return &hinted{readErr, `What was printed is intact; nothing after it can be trusted. Keep the file, and look for a copy.`}
	}
	if !a.json && len(shown) == 0 {
		fmt.Fprintln(a.out, "No such record.")
	}
	return nil
}

func isDamage(err error) bool {
	var d *audit.Damage
	return errors.As(err, &d)
}

type damageJSON struct {
	Index  uint64 `json:"index"`
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
}

type verifyJSON struct {
	Log       string      `json:"log"`
	Intact    bool        `json:"intact"`
	Records   uint64      `json:"records"` // that are intact
	Head      string      `json:"head"`    // for --known
	Bytes     int64       `json:"bytes"`
	TornBytes int64       `json:"tornBytes"`
	Damage    *damageJSON `json:"damage,omitempty"`
}

func (c auditVerifyCmd) Run(a *app) error {
	known, err := parseHeads(c.Known)
	if err != nil {
		return err
	}
	report, err := audit.Verify(c.Log, known...)
	out := verifyJSON{Log: c.Log, Intact: err == nil, Records: report.Head.Size, Head: headText(report.Head), Bytes: report.Bytes, TornBytes: report.TornBytes}
	var damage *audit.Damage
	if errors.As(err, &damage) {
		out.Damage = &damageJSON{damage.Index, damage.Off, damage.Reason}
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
		fmt.Fprintf(a.out, "  record %d, at byte %d: %s\n", v.Damage.Index, v.Damage.Offset, v.Damage.Reason)
		fmt.Fprintln(a.out, "  Keep the file as it is, and look for a copy.")
		return
	}
	fmt.Fprintf(a.out, "%s is intact: %s records, %s.\n", v.Log, countText(v.Records), bytesText(uint64(v.Bytes)))
	switch {
	case known == 1:
		fmt.Fprintln(a.out, "  It begins with the records of the known head.")
	case known > 1:
		fmt.Fprintf(a.out, "  It begins with the records of all %d known heads.\n", known)
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
