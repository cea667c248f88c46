package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
)

// Devices that are listed as ready and refuse their status.
const (
	readyAndLost   = 101 // because they were lost just then
	readyAndBroken = 102
	readyAndBusy   = 103 // with something else
)

// serveDevices answers a tenant socket with devices of the given states. Each has
// one session, with the device's number plus 40.
func serveDevices(t *testing.T, states ...uint32) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "t.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: socket, Net: "unixpacket"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	answer := func(_ context.Context, m *control.Message) *control.Message {
		m.CloseFDs()
		switch m.Type {
		case control.TypeHello:
			return control.NewReply(m, control.HelloReply{Version: control.HelloVersion, Tenant: "t"}.AppendTo(nil))

		case control.TypeListDevices:
			var list control.ListDevicesReply
			for i, s := range states {
				if s > 100 {
					s = 1
				}
				list.Devices = append(list.Devices, control.DeviceInfo{
					Index: uint32(i), State: s, Epoch: 1, MemoryBytes: 1 << 20, Name: fmt.Sprintf("edu%d", i), Backend: "edu", PCIAddress: fmt.Sprintf("0000:0%d:00.0", i+1),
				})
			}
			return control.NewReply(m, list.AppendTo(nil))

		case control.TypeStatus:
			req, err := control.ParseStatusRequest(m.Body)
			if err == nil && states[req.Index] == readyAndBroken {
				return control.ErrorReply(m, gpuerr.New(gpuerr.Internal, "describe the device: it cannot be"))
			}
			if err == nil && states[req.Index] == readyAndBusy {
				return control.ErrorReply(m, gpuerr.New(gpuerr.Busy, "status: it was given up before it was done"))
			}
			if err != nil || states[req.Index] != 1 {
				return control.ErrorReply(m, gpuerr.New(gpuerr.DeviceLost, "device edu%d: wedged", req.Index))
			}
			text := fmt.Sprintf(`{"version": "v0.1.0", "recovery": {"incidents": 3, "steps": {"queueReset": 2}, "stepNanos": {"queueReset": 5000000}}, "tenants": [{"tenant": "t", "budget": [{"class": "sessions", "used": 1, "limit": 4, "peak": %d}], "sessions": [{"id": %d, "facet": "full"}]}]}`, req.Index+1, req.Index+40)
			return control.NewReply(m, []byte(text))

		case control.TypeNextState:
			req, err := control.ParseNextStateRequest(m.Body)
			if err != nil {
				return control.ErrorReply(m, err)
			}
			now := control.NextStateReply{Epoch: 1, State: 1}
			if states[req.Index] == readyAndLost {
				now.State, now.Changed = uint32(client.Recovering), true
			}
			return control.NewReply(m, now.AppendTo(nil))
		}

		return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v", m.Type))
	}

	serving.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}

			raw, err := c.SyscallConn()
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}

			fd := -1
			raw.Control(func(s uintptr) { fd, _ = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
			c.Close()
			conn, err := control.NewConn(fd, control.ConnOptions{})
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}

			serving.Go(func() { control.Serve(ctx, conn, answer) })
		}
	})

	t.Cleanup(func() {
		cancel()
		l.Close()
		serving.Wait()
	})

	return socket
}

// Without --device, all devices are shown, each under its name; a device that is
// not ready shows nothing.
func TestStatusOfSeveralDevices(t *testing.T) {
	socket := serveDevices(t, 1, 3, 1)
	run := func(args ...string) *invocation {
		return gpuctl(context.Background(), nil, false, append([]string{"--socket", socket}, args...)...)
	}
	i := run("sessions")
	require.Zero(t, i.exit, i.err.String())
	require.Regexp(t, `(?s)^edu0:\nSESSION .*\n40 .*\n\nedu2:\nSESSION .*\n42 `, i.out.String())
	require.NotContains(t, i.out.String(), "edu1")
	i = run("budget")
	require.Regexp(t, `(?s)^edu0:\nRESOURCE .*sessions +1 +4 .*\n\nedu2:\nRESOURCE`, i.out.String())

	i = run("sessions", "--device", "edu2")
	require.Regexp(t, `^SESSION .*\n42 `, i.out.String(), "one device needs no heading")
	i = run("sessions", "--device", "1")
	require.Equal(t, "", i.out.String())
	require.Contains(t, i.err.String(), "wedged")

	i = run("--json", "sessions")
	var all []status
	require.NoError(t, json.Unmarshal(i.out.Bytes(), &all), "one JSON value")
	require.Len(t, all, 2)
	require.EqualValues(t, 40, all[0].Tenants[0].Sessions[0].ID)
	require.EqualValues(t, 42, all[1].Tenants[0].Sessions[0].ID)

	i = run("--json", "budget")
	var entries []budgetJSON
	require.NoError(t, json.Unmarshal(i.out.Bytes(), &entries), "one JSON value")
	require.Equal(t, []budgetJSON{{"edu0", "t", "sessions", 1, 4, 1}, {"edu2", "t", "sessions", 1, 4, 3}}, entries)

	i = run("devices")
	for _, want := range []string{"edu0", "edu1", "edu2", "0000:02:00.0", "wedged"} {
		require.Contains(t, i.out.String(), want)
	}
}

// If no device is ready, the answer is the reason of the first one.
func TestStatusWithoutReadyDevice(t *testing.T) {
	i := gpuctl(context.Background(), nil, false, "--socket", serveDevices(t, 3, 3), "sessions")
	require.NotZero(t, i.exit)
	require.Contains(t, i.err.String(), "edu0")
}

// The metrics of devices, in Prometheus's text format, also of a device without a
// driver.
func TestMetrics(t *testing.T) {
	i := gpuctl(context.Background(), nil, false, "--socket", serveDevices(t, 1, 3), "metrics")
	require.Zero(t, i.exit, i.err.String())
	families := map[string]bool{}
	for line := range strings.Lines(i.out.String()) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(strings.TrimSpace(name), " ")
			require.False(t, families[name], "%s twice", name)
			require.Equal(t, strings.HasSuffix(name, "_total"), kind == "counter", name)
			families[name] = true
			continue
		}
		if !strings.HasPrefix(line, "# HELP ") {
			require.Regexp(t, `^capgpu_\w+\{(program="\w+",)?(device="edu\d"|version="[^"]+"\})[^}]*\}? [0-9.e+-]+\n$`, line)
		}
	}

	for _, want := range []string{
		`capgpu_build_info{program="gpuctl",version="` + cmdline.Revision() + `"} 1`, `capgpu_build_info{program="driver",device="edu0",version="v0.1.0"} 1`,
		`capgpu_device_state{device="edu0",state="ready"} 1`, `capgpu_device_state{device="edu1",state="wedged"} 1`, `capgpu_device_suspended{device="edu0"} 0`,
		`capgpu_device_recovery_steps_total{device="edu0",step="queueReset"} 2`, `capgpu_device_recovery_seconds_total{device="edu0",step="queueReset"} 0.005`,
		`capgpu_device_recovery_steps_total{device="edu0",step="respawn"} 0`, `capgpu_device_recovery_steps_total{device="edu1",step="wedged"} 1`,
		`capgpu_device_incidents_total{device="edu0"} 3`, `capgpu_tenant_used{device="edu0",tenant="t",resource="sessions"} 1`,
	} {
		require.Contains(t, i.out.String(), want+"\n")
	}

	require.NotContains(t, i.out.String(), `capgpu_device_incidents_total{device="edu1"}`)
	require.Equal(t, `"a\\b\"c"`, labelText(`a\b"c`))
}

// A refused status is reported, besides the other metrics; that of a device that
// was lost just then is no error.
func TestMetricsOfRefusedStatus(t *testing.T) {
	i := gpuctl(context.Background(), nil, false, "--socket", serveDevices(t, 1, readyAndLost), "metrics")
	require.Zero(t, i.exit, i.err.String())
	i = gpuctl(context.Background(), nil, false, "--socket", serveDevices(t, 1, readyAndBroken), "metrics")
	require.Equal(t, 1, i.exit, i.err.String())
	require.Contains(t, i.err.String(), "the counters of edu1")
	require.Contains(t, i.err.String(), "it cannot be")
	require.Contains(t, i.out.String(), `capgpu_device_incidents_total{device="edu0"} 3`+"\n")
	require.NotContains(t, i.out.String(), `capgpu_device_incidents_total{device="edu1"}`)
	i = gpuctl(context.Background(), nil, false, "--socket", serveDevices(t, 1, readyAndBusy), "metrics")
	require.NotZero(t, i.exit, "it exists and refuses its status")
	require.Contains(t, i.err.String(), "the counters of edu1: status: it was given up")
	require.NotContains(t, i.out.String(), `capgpu_device_incidents_total{device="edu1"}`)
}

func TestMetricsAsJSON(t *testing.T) {
	i := gpuctl(context.Background(), nil, false, "--socket", serveDevices(t, 1, 3), "--json", "metrics")
	require.Zero(t, i.exit, i.err.String())
	var all []struct {
		Name, State string
		Status      *status
	}
	require.NoError(t, json.Unmarshal(i.out.Bytes(), &all), "one JSON value")
	require.Len(t, all, 2)
	require.Equal(t, "edu0", all[0].Name)
	require.EqualValues(t, 2, all[0].Status.Recovery.Steps["queueReset"])
	require.Equal(t, "wedged", all[1].State)
	require.Nil(t, all[1].Status)
}
