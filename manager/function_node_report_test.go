package manager

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/manager/engines"
	"capgpu/manager/gpulog"
)

// reports is an audit log that keeps details.
type reports struct {
	AuditLog
	details []string
}

func (r *reports) Append(kind, _, detail string) (uint64, error) {
	r.details = append(r.details, kind+" "+detail)
	return 0, nil
}

func TestReportsOfTheKernel(t *testing.T) {
	life := &reports{}
	pool := engines.New(engines.Config{Device: "gpu0", Most: 1, Record: func(string, string) error { return nil }})
	defer func() { require.NoError(t, pool.Close()) }()
	f := &nodeFunction{name: "gpu0", info: ddf.DeviceInfo{PCIAddress: "0000:01:00.0"}, pool: pool, log: slog.New(slog.DiscardHandler), life: life, paced: newRateLimiter(2, time.Hour, time.Now())}
	for _, address := range []string{"0000:01:00", "0000:02:00", "0000:01:00.0", "0000:01:00"} {
		f.takeReport(gpulog.Event{Address: address, Kind: "xid", Xid: 31, PID: 77, Sure: true, Text: "NVRM: \x1b[31m"})
	}
	require.Len(t, life.details, 2, "of this function, and at a pace")
	require.True(t, strings.HasPrefix(life.details[0], "gpu.trouble gpu0 kind=xid xid=31 pid=77 engine=none group=none before=0 text="), life.details[0])
	require.NotContains(t, life.details[0], "\x1b")
}
