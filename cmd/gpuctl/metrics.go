package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
	"capgpu/outcome"
)

// metricsCmd prints Prometheus's text format (for the textfile collector of its
// node exporter, say); device-manager itself serves no HTTP. A driver's counters
// restart with each driver, as Prometheus expects of a process that was restarted.
type metricsCmd struct{}

func (metricsCmd) Run(ctx context.Context, a *app) error {
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()

	devices, err := conn.Devices(ctx)
	if err != nil {
		return err
	}

	statuses, failures := map[string]deviceStatus{}, []error{}
	for _, d := range devices {
		if d.State != client.Ready || d.Suspended {
			continue
		}
		all, err := a.readStatus(ctx, strconv.FormatUint(uint64(d.Index), 10))
		switch {
		case err == nil && len(all) == 1:
			statuses[d.Name] = all[0]
		case err != nil && hasGone(ctx, conn, d): // since it was listed: it has nothing to report
		case err != nil:
			failures = append(failures, gpuerr.New(gpuerr.CodeOf(err), "the counters of %s: %s", visible(d.Name), gpuerr.From(err).Msg))
		}
	}

	if a.json {
		out := []metricsJSON{}
		for _, d := range devices {
			out = append(out, metricsJSON{newDeviceJSON(d), statuses[d.Name].text})
		}
		a.printJSON(out)
	} else {
		writeMetrics(a.out, devices, statuses)
	}

	return errors.Join(failures...) // the printed values are right all the same
}

// goneWithin limits how long device-manager may take to notice the end of a driver,
// after a client of the driver has noticed it.
const goneWithin = time.Second

// hasGone reports that a device that was listed as ready is no longer ready, or has
// another driver.
func hasGone(ctx context.Context, conn *client.Conn, d client.DeviceInfo) bool {
	now, err := conn.NextStateFor(ctx, d.Index, d.Epoch, goneWithin)
	return err == nil && (now.State != client.Ready || now.Epoch != d.Epoch || now.Suspended)
}

// metricsJSON is a device and, if its driver reports it, the source of the
// counters.
type metricsJSON struct {
	deviceJSON
	Status json.RawMessage `json:"status,omitempty"`
}

// metric is one family in the text format: its values by their labels.
type metric struct {
	name, kind, help string
	lines            []string
}

func (m *metric) add(value string, labels ...string) {
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, labels[i]+"="+labelText(labels[i+1]))
	}
	m.lines = append(m.lines, fmt.Sprintf("%s{%s} %s", m.name, strings.Join(pairs, ","), value))
}

// labelText is a label's value, with the three escapes of the format.
func labelText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(visible(s)) + `"`
}

func writeMetrics(w io.Writer, devices []client.DeviceInfo, statuses map[string]deviceStatus) {
	build := metric{name: "capgpu_build_info", kind: "gauge", help: "1 for the release, or the commit, of this program and of each device's driver."}
	build.add("1", "program", "gpuctl", "version", cmdline.Revision())
	state := metric{name: "capgpu_device_state", kind: "gauge", help: "1 for the state that the device is in, 0 for the others."}
	suspended := metric{name: "capgpu_device_suspended", kind: "gauge", help: "1 while an operator has the device begin nothing."}
	short := metric{name: "capgpu_device_short", kind: "gauge", help: "1 while the device's driver has run out of descriptors, mappings or memory."}
	epoch := metric{name: "capgpu_device_epoch", kind: "gauge", help: "Number of the device's last driver that was ready."}
	incidents := metric{name: "capgpu_device_incidents_total", kind: "counter", help: "Times that work did not end, or faulted, and something was done about it."}
	steps := metric{name: "capgpu_device_recovery_steps_total", kind: "counter", help: "Steps of recovery that were taken, by step. Those of a driver count from its start."}
	seconds := metric{name: "capgpu_device_recovery_seconds_total", kind: "counter", help: "How long these steps have taken."}
	used := metric{name: "capgpu_tenant_used", kind: "gauge", help: "What the tenant holds or has spent of a resource, in its unit (docs/glossary.md)."}
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	flag := func(yes bool) string {
		if yes {
			return "1"
		}
		return "0"
	}

	for _, d := range devices {
		for _, s := range []client.DeviceState{client.Starting, client.Ready, client.Recovering, client.Wedged} {
			state.add(flag(s == d.State), "device", d.Name, "state", s.String())
		}

		suspended.add(flag(d.Suspended), "device", d.Name)
		short.add(flag(d.Shortage != ""), "device", d.Name)
		epoch.add(number(d.Epoch), "device", d.Name)

		// The last two steps are the manager's: each driver except the first is one
		// respawn.
		steps.add(number(max(d.Epoch, 1)-1), "device", d.Name, "step", outcome.Respawn.String())
		steps.add(flag(d.State == client.Wedged), "device", d.Name, "step", outcome.WedgedStep.String())
		st, ok := statuses[d.Name]
		if !ok {
			continue
		}

		build.add("1", "program", "driver", "device", d.Name, "version", cmp.Or(st.Version, "unknown"))
		incidents.add(number(st.Recovery.Incidents), "device", d.Name)
		for s := outcome.Cancelling; s < outcome.Respawn; s++ {
			steps.add(number(st.Recovery.Steps[s.String()]), "device", d.Name, "step", s.String())
			seconds.add(strconv.FormatFloat(float64(st.Recovery.StepNanos[s.String()])/1e9, 'g', -1, 64), "device", d.Name, "step", s.String())
		}

		for _, t := range st.Tenants {
			for _, b := range t.Budget {
				used.add(number(b.Reserved+b.Used), "device", d.Name, "tenant", t.Tenant, "resource", b.Class)
			}
		}
	}

	for _, m := range []metric{build, state, suspended, short, epoch, incidents, steps, seconds, used} {
		if len(m.lines) > 0 {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s\n", m.name, m.help, m.name, m.kind, strings.Join(m.lines, "\n"))
		}
	}
}
