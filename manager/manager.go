package manager

import (
	"context"
	"log/slog"
	"time"
)

// Config is what a Manager is made from. Zero durations mean the defaults.
type Config struct {
	Policy *Policy
	RunDir string // made with mode 0700 if missing

	DriverPath string   // gpu-mock or gpu-service
	DriverArgs []string // after the program's name
	GatePath   string   // gpu-gate

	Log *slog.Logger      // for machines; nil: nowhere
	Say func(line string) // plain lines for a person; nil: nowhere

	ReadyTimeout time.Duration // from a driver's start to its Ready
	PingInterval time.Duration
	PingTimeout  time.Duration // a driver silent for so long is killed
}

// Manager is a running device-manager.
type Manager struct{}

// Start takes the run directory, opens the sockets and starts the driver. It
// returns once clients can connect; the device may still be starting.
func Start(cfg Config) (*Manager, error) { panic("not yet") }

// Close refuses new clients, lets the driver shut down within ctx, and returns
// when nothing of the manager is left.
func (m *Manager) Close(ctx context.Context) error { panic("not yet") }

// SocketPath is the tenant socket (SEQPACKET) of a tenant.
func (m *Manager) SocketPath(tenant string) string { panic("not yet") }

// CapnpSocketPath is the Cap'n Proto socket (STREAM) of a tenant.
func (m *Manager) CapnpSocketPath(tenant string) string { panic("not yet") }
