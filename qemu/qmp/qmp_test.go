package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// request is a request to the fake QEMU.
type request struct {
	Execute   string            `json:"execute"`
	Arguments map[string]string `json:"arguments"`
	ID        uint64            `json:"id"`
}

// dial returns a client of a fake QEMU that passes each request after the first to answer and
// sends its result.
func dial(t *testing.T, answer func(r request) string) *Client {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	go func() {
		defer theirs.Close()
		fmt.Fprintln(theirs, `{"QMP": {"version": {}, "capabilities": ["oob"]}}`)
		in := bufio.NewScanner(theirs)
		for in.Scan() {
			var r request
			if json.Unmarshal(in.Bytes(), &r) != nil {
				return
			}
			said := fmt.Sprintf(`{"return": {}, "id": %d}`, r.ID)
			if r.Execute != "qmp_capabilities" {
				said = answer(r)
			}
			if said == "" {
				return
			}
			fmt.Fprintln(theirs, said)
		}
	}()
	c, err := New(t.Context(), ours)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestExecute(t *testing.T) {
	c := dial(t, func(r request) string {
		switch r.Execute {
		case "query-status":
			return fmt.Sprintf("{\"event\": \"RESUME\", \"data\": {}}\n{\"return\": {\"status\": \"running\"}, \"id\": %d}", r.ID)
		case "die":
			return ""
		}
		return fmt.Sprintf(`{"error": {"class": "CommandNotFound", "desc": "no %s"}, "id": %d}`, r.Execute, r.ID)
	})
	var got struct{ Status string }
	require.NoError(t, c.Execute(t.Context(), "query-status", nil, &got))
	require.Equal(t, "running", got.Status)

	err := c.Execute(t.Context(), "nonsense", nil, nil)
	var refused *Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, Error{Class: "CommandNotFound", Desc: "no nonsense"}, *refused)

	require.ErrorContains(t, c.Execute(t.Context(), "die", nil, nil), "has ended")
	require.ErrorContains(t, c.Execute(t.Context(), "query-status", nil, nil), "has ended")
	_, err = c.WaitEvent(t.Context(), func(e Event) bool { return e.Name == "NEVER" })
	require.ErrorContains(t, err, "has ended")
}

func TestRemoveDevice(t *testing.T) {
	c := dial(t, func(r request) string {
		id := r.Arguments["id"]
		return fmt.Sprintf(`{"return": {}, "id": %d}
{"event": "DEVICE_DELETED", "data": {"path": "/machine/peripheral/other"}}
{"event": "DEVICE_DELETED", "data": {"device": "other"}}
{"event": "DEVICE_DELETED", "data": {"device": %q}}`, r.ID, id)
	})
	require.NoError(t, c.RemoveDevice(t.Context(), "edu1"))
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	c := dial(t, func(r request) string { return `{"event": "OTHER", "data": {}}` })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, c.Execute(ctx, "query-status", nil, nil), context.DeadlineExceeded)
	_, err := c.WaitEvent(ctx, func(e Event) bool { return e.Name == "NEVER" })
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestGarbageEndsTheConnection(t *testing.T) {
	c := dial(t, func(r request) string { return "hello" })
	require.ErrorContains(t, c.Execute(t.Context(), "query-status", nil, nil), "not a message")
}
