package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

type sessionsCmd struct {
	Device string `help:"Index or name of the device. Default: the first that is ready." short:"d" placeholder:"DEVICE"`
}

type budgetCmd struct {
	Device string `help:"Index or name of the device. Default: the first that is ready." short:"d" placeholder:"DEVICE"`
}

// status is what gpuctl reads of a driver's account of itself. The driver may be
// newer and say more, or older and say less.
type status struct {
	Tenants []struct {
		Tenant      string    `json:"tenant"`
		BannedUntil time.Time `json:"bannedUntil"`
		Budget      []struct {
			Class    string `json:"class"`
			Reserved uint64 `json:"reserved"`
			Used     uint64 `json:"used"`
			Limit    uint64 `json:"limit"`
			Peak     uint64 `json:"peak"`
		} `json:"budget"`
		Sessions []struct {
			ID              uint64            `json:"id"`
			Parent          uint64            `json:"parent"`
			Facet           string            `json:"facet"`
			AgeNanos        int64             `json:"ageNanos"`
			Closing         bool              `json:"closing"`
			Buffers         uint64            `json:"buffers"`
			MemoryBytes     uint64            `json:"memoryBytes"`
			InFlight        uint64            `json:"inFlight"`
			DeviceTimeNanos uint64            `json:"deviceTimeNanos"`
			Outcomes        map[string]uint64 `json:"outcomes"`
		} `json:"sessions"`
	} `json:"tenants"`
}

// readStatus asks a device for its status, and hands the text on as it is.
func (a *app) readStatus(ctx context.Context, device string) (client.DeviceInfo, status, json.RawMessage, error) {
	conn, err := a.dial(ctx)
	if err != nil {
		return client.DeviceInfo{}, status{}, nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d, err := chooseDevice(ctx, conn, device)
	if err != nil {
		return d, status{}, nil, err
	}
	text, err := conn.Status(ctx, d.Index)
	if err != nil {
		return d, status{}, nil, err
	}
	var st status
	if err := json.Unmarshal(text, &st); err != nil {
		return d, st, nil, gpuerr.New(gpuerr.Protocol, "the status of %s is not as expected: %v", d.Name, err)
	}
	return d, st, text, nil
}

func (c sessionsCmd) Run(ctx context.Context, a *app) error {
	d, st, text, err := a.readStatus(ctx, c.Device)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(text)
		return nil
	}
	rows := [][]string{}
	for _, t := range st.Tenants {
		for _, s := range t.Sessions {
			id := fmt.Sprint(s.ID)
			if s.Parent != 0 {
				id += fmt.Sprintf(" (of %d)", s.Parent)
			}
			age := ageText(time.Duration(s.AgeNanos))
			if s.Closing {
				age += ", closing"
			}
			rows = append(rows, []string{id, t.Tenant, s.Facet, age, countText(s.Buffers), bytesText(s.MemoryBytes),
				countText(s.InFlight), durationText(time.Duration(s.DeviceTimeNanos)), outcomesText(s.Outcomes)})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(a.out, "No session is open on %s.\n", visible(d.Name))
		return nil
	}
	table(a.out, []string{"SESSION", "TENANT", "MAY", "AGE", "BUFFERS", "MEMORY", "RUNNING", "DEVICE TIME", "ENDED"}, rows)
	return nil
}

// ageText is an age to the second.
func ageText(d time.Duration) string { return d.Truncate(time.Second).String() }

// outcomesText counts how work ended, in the order of the outcomes.
func outcomesText(ended map[string]uint64) string {
	var parts []string
	for _, k := range []outcome.Kind{outcome.OK, outcome.Failed, outcome.TimedOut, outcome.Cancelled, outcome.Innocent, outcome.Revoked, outcome.DeviceLost} {
		if n, text := ended[k.String()], kindText(k); n > 0 {
			parts = append(parts, countText(n)+" "+text)
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func (c budgetCmd) Run(ctx context.Context, a *app) error {
	d, st, _, err := a.readStatus(ctx, c.Device)
	if err != nil {
		return err
	}
	if a.json {
		type entry struct {
			Tenant   string `json:"tenant"`
			Resource string `json:"resource"`
			Used     uint64 `json:"used"`
			Limit    uint64 `json:"limit"` // 2^64-1: no limit
			Peak     uint64 `json:"peak"`
		}
		out := []entry{}
		for _, t := range st.Tenants {
			for _, b := range t.Budget {
				out = append(out, entry{t.Tenant, b.Class, b.Reserved + b.Used, b.Limit, b.Peak})
			}
		}
		a.printJSON(out)
		return nil
	}
	rows := [][]string{}
	banned := ""
	for _, t := range st.Tenants {
		if t.BannedUntil.After(a.now()) {
			banned += fmt.Sprintf("Tenant %s is banned after too many faults, for another %s.\n", visible(t.Tenant), durationText(t.BannedUntil.Sub(a.now())))
		}
		for _, b := range t.Budget {
			used := b.Reserved + b.Used
			rows = append(rows, []string{b.Class, amount(b.Class, used), amount(b.Class, b.Limit), shareText(used, b.Limit), amount(b.Class, b.Peak)})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(a.out, "Nothing is in use on %s, and nothing is limited.\n", visible(d.Name))
	} else {
		table(a.out, []string{"RESOURCE", "USED", "LIMIT", "SHARE", "PEAK"}, rows)
	}
	fmt.Fprint(a.out, banned)
	return nil
}

// shareText is how much of a limit is used.
func shareText(used, limit uint64) string {
	switch {
	case limit == 1<<64-1:
		return "-"
	case limit == 0:
		return "100%"
	case used > 0 && used < limit/200: // would round to nothing
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(used)/float64(limit))
}
