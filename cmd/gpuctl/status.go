package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

type sessionsCmd struct {
	Device string `help:"Index or name of the device. Default: all that are ready." short:"d" placeholder:"DEVICE"`
}

type budgetCmd struct {
	Device string `help:"Index or name of the device. Default: all that are ready." short:"d" placeholder:"DEVICE"`
}

// status is the part of a driver's status that gpuctl reads. The driver may be
// newer and report more, or older and report less.
type status struct {
	Version string `json:"version"` // of the driver
	Faults  uint64 `json:"faults"`
	Resets  uint64 `json:"resets"`
	// Recovery counts the recovery steps, and their durations.
	Recovery struct {
		Incidents uint64            `json:"incidents"`
		Steps     map[string]uint64 `json:"steps"`
		StepNanos map[string]int64  `json:"stepNanos"`
	} `json:"recovery"`
	Tenants []struct {
		Tenant      string    `json:"tenant"`
		BannedUntil time.Time `json:"bannedUntil"`
		BanReason   string    `json:"banReason"`
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
			Trap            string            `json:"trap"`
			Outcomes        map[string]uint64 `json:"outcomes"`
		} `json:"sessions"`
	} `json:"tenants"`
}

// deviceStatus is a driver's status of a device.
type deviceStatus struct {
	device client.DeviceInfo
	status
	text json.RawMessage // as the driver sent it
}

// readStatus asks the named device for its status, or all devices that are ready.
func (a *app) readStatus(ctx context.Context, device string) ([]deviceStatus, error) {
	conn, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	first, err := chooseDevice(ctx, conn, device)
	if err != nil {
		return nil, err
	}

	chosen := []client.DeviceInfo{first}
	if device == "" {
		all, err := conn.Devices(ctx)
		if err != nil {
			return nil, err
		}
		if ready := slices.DeleteFunc(all, func(d client.DeviceInfo) bool { return d.State != client.Ready || d.Suspended }); len(ready) > 0 {
			chosen = ready
		}
	}

	var read []deviceStatus
	for _, d := range chosen {
		s := deviceStatus{device: d}
		if s.text, err = conn.Status(ctx, d.Index); err != nil {
			return nil, refusal(d, err)
		}
		if err := json.Unmarshal(s.text, &s.status); err != nil {
			return nil, gpuerr.New(gpuerr.Protocol, "the status of %s is not as expected: %v", d.Name, err)
		}
		read = append(read, s)
	}

	return read, nil
}

// showEach shows one device after the other, under its name if there are several.
func (a *app) showEach(all []deviceStatus, show func(deviceStatus)) {
	for i, s := range all {
		if len(all) > 1 {
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			fmt.Fprintf(a.out, "%s:\n", visible(s.device.Name))
		}
		show(s)
	}
}

func (c sessionsCmd) Run(ctx context.Context, a *app) error {
	all, err := a.readStatus(ctx, c.Device)
	switch {
	case err != nil:
		return err
	case a.json:
		texts := []json.RawMessage{}
		for _, s := range all {
			texts = append(texts, s.text)
		}
		a.printJSON(texts)
	default:
		a.showEach(all, a.showSessions)
	}
	return nil
}

func (a *app) showSessions(st deviceStatus) {
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
			if s.Trap != "" {
				age += ", poisoned"
			}
			rows = append(rows, []string{id, t.Tenant, s.Facet, age, countText(s.Buffers), bytesText(s.MemoryBytes),
				countText(s.InFlight), durationText(time.Duration(s.DeviceTimeNanos)), outcomesText(s.Outcomes)})
		}
	}

	if len(rows) == 0 {
		fmt.Fprintf(a.out, "No session is open on %s.\n", visible(st.device.Name))
	} else {
		table(a.out, []string{"SESSION", "TENANT", "MAY", "AGE", "BUFFERS", "MEMORY", "RUNNING", "DEVICE TIME", "ENDED"}, rows)
	}

	fmt.Fprint(a.out, troubleText(st.device.Name, st.status))
}

// troubleText lists the failures on the device since its driver started.
func troubleText(device string, st status) string {
	text := ""
	if st.Resets > 0 {
		text += fmt.Sprintf("%s was reset %s times since its driver started.\n", visible(device), countText(st.Resets))
	}
	if st.Faults > 0 {
		text += fmt.Sprintf("%s reached %s times for memory that it was not granted; the IOMMU refused. \"gpuctl audit\" has the records.\n", visible(device), countText(st.Faults))
	}
	return text
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
	all, err := a.readStatus(ctx, c.Device)
	switch {
	case err != nil:
		return err
	case a.json:
		a.printJSON(budgetEntries(all))
	default:
		a.showEach(all, a.showBudget)
	}
	return nil
}

// budgetJSON is one resource of one device, for scripts.
type budgetJSON struct {
	Device   string `json:"device"`
	Tenant   string `json:"tenant"`
	Resource string `json:"resource"`
	Used     uint64 `json:"used"`
	Limit    uint64 `json:"limit"` // 2^64-1: no limit
	Peak     uint64 `json:"peak"`
}

func budgetEntries(all []deviceStatus) []budgetJSON {
	entries := []budgetJSON{}
	for _, s := range all {
		for _, t := range s.Tenants {
			for _, b := range t.Budget {
				entries = append(entries, budgetJSON{s.device.Name, t.Tenant, b.Class, b.Reserved + b.Used, b.Limit, b.Peak})
			}
		}
	}
	return entries
}

func (a *app) showBudget(st deviceStatus) {
	rows := [][]string{}
	banned := ""
	for _, t := range st.Tenants {
		if t.BannedUntil.After(a.now()) {
			banned += banText(t.Tenant, t.BanReason, t.BannedUntil, a.now())
		}
		for _, b := range t.Budget {
			used := b.Reserved + b.Used
			rows = append(rows, []string{b.Class, amount(b.Class, used), amount(b.Class, b.Limit), shareText(used, b.Limit), amount(b.Class, b.Peak)})
		}
	}

	if len(rows) == 0 {
		fmt.Fprintf(a.out, "Nothing is in use on %s, and nothing is limited.\n", visible(st.device.Name))
	} else {
		table(a.out, []string{"RESOURCE", "USED", "LIMIT", "SHARE", "PEAK"}, rows)
	}

	fmt.Fprint(a.out, banned)
}

// shareText is the used share of a limit.
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

// banText is the reason for a tenant's ban, and its end.
func banText(tenant, reason string, until, now time.Time) string {
	why := "too many strikes"
	if reason != "" {
		why += ", the last for " + visible(reason)
	}
	return fmt.Sprintf("Tenant %s is banned until %s (%s), for another %s.\n", visible(tenant), until.UTC().Format(time.RFC3339), why, durationText(until.Sub(now)))
}
