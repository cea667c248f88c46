// Package driver is the main loop of a driver process.
package driver

import (
	"context"
	"log/slog"

	"capgpu/ddf"
	"capgpu/gpu/backend"
)

// Options is what a driver program decides: its backend and where it logs.
type Options struct {
	Open func(ddf.GrantSet) (backend.Backend, error)
	Log  *slog.Logger
}

// Run serves the device until the link to device-manager ends.
func Run(ctx context.Context, o Options) error { panic("not yet") }
