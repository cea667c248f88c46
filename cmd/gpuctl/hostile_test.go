package main

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
)

// nasty is a name that sets a terminal's title, clears it, reverses the text and
// makes a line of its own.
const nasty = "x\x1b]0;title\a\u009b2J\u202e\r\nforged"

// startHostile runs a tenant socket of a service with nasty names, and returns its
// path.
func startHostile(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "hostile.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}

			raw, err := c.SyscallConn()
			fd := -1
			if err == nil {
				raw.Control(func(s uintptr) { fd, _ = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
			}

			c.Close()
			conn, err := control.NewConn(fd, control.ConnOptions{})
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}

			serving.Go(func() { control.Serve(ctx, conn, answerNastily) })
		}
	})

	t.Cleanup(func() {
		l.Close()
		cancel()
		serving.Wait()
	})

	return path
}

func answerNastily(_ context.Context, m *control.Message) *control.Message {
	defer m.CloseFDs()
	switch m.Type {
	case control.TypeHello:
		return control.NewReply(m, control.HelloReply{Version: control.HelloVersion, Tenant: "x"}.AppendTo(nil))
	case control.TypeListDevices:
		return control.NewReply(m, control.ListDevicesReply{Devices: []control.DeviceInfo{{
			State: 1, Epoch: 1, Name: nasty, Backend: nasty, PCIAddress: nasty,
		}}}.AppendTo(nil))
	case control.TypeStatus:
		text, _ := json.Marshal(map[string]any{"tenants": []any{map[string]any{
			"tenant":      nasty,
			"bannedUntil": time.Now().Add(time.Hour),
			"budget":      []any{map[string]any{"class": nasty, "limit": 1}},
			"sessions":    []any{map[string]any{"id": 1, "facet": nasty}},
		}}})
		return control.NewReply(m, text)
	}

	return control.ErrorReply(m, gpuerr.New(gpuerr.Denied, "%s", nasty))
}

func TestServiceDoesNotDriveTheTerminal(t *testing.T) {
	socket := startHostile(t)
	for _, tc := range []struct {
		args  string
		lines int
	}{
		{"devices", 2}, {"sessions", 2}, {"budget", 3}, {"run x", 2},
		{"devices --json", 0}, {"sessions --json", 0}, {"budget --json", 0}, {"run x --json", 0},
	} {
		args := strings.Fields(tc.args)
		i := gpuctl(context.Background(), nil, false, append([]string{"--socket", socket}, args...)...)
		text := i.out.String() + i.err.String()
		require.Contains(t, text, "forged", "the name is shown")
		for _, r := range text {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%s: %q in %q", tc.args, r, text)
		}
		if tc.lines == 0 {
			require.True(t, json.Valid(i.out.Bytes()))
			require.Empty(t, i.err.String())
			continue
		}
		require.Equal(t, tc.lines, strings.Count(text, "\n"), "%s: a name made a line of its own: %s", tc.args, text)
	}

	var devices []deviceJSON
	i := gpuctl(context.Background(), nil, false, "--socket", socket, "devices", "--json")
	require.NoError(t, json.Unmarshal(i.out.Bytes(), &devices))
	require.Equal(t, nasty, devices[0].Name, "JSON keeps the value")
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain text é": "plain text é", "\x1b[2J": `\x1b[2J`, "a\tb\n": `a\tb\n`, "\u202e": `\u202e`, "\xff": "\ufffd",
	} {
		require.Equal(t, want, visible(in))
	}
	for _, in := range []string{"plain é", "\u009b\u202e\U000e0001"} {
		text := visibleJSON("{\n  " + `"a": ` + `"` + in + `"` + "\n}\n")
		require.NotContains(t, text, "\u202e")
		var back map[string]string
		require.NoError(t, json.Unmarshal([]byte(text), &back))
		require.Equal(t, in, back["a"])
	}
}
