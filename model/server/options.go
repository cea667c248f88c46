package server

import (
	"context"
	"log/slog"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/llama"
	"capgpu/model/lm"
)

// Options of a server. Zero fields take the defaults.
type Options struct {
	// Dial connects to the tenant socket. It is called again whenever the
	// connection was lost.
	Dial func(ctx context.Context) (*client.Conn, error)
	// Device is the index of the device.
	Device uint32
	// Session opens the session; nil: Conn.Open of Device. It may weaken it.
	Session func(ctx context.Context, c *client.Conn) (*client.Session, error)
	// File is the model. The caller keeps owning it, and keeps it mapped until Run
	// has returned.
	File *model.File
	// Name is the model's name; default File.Name.
	Name  string
	Llama llama.Options

	// Waiting limits the requests that wait for a place, and the unread answers
	// that are kept; default 256. One peer may have three quarters of the waiting
	// places (peers.Shares).
	Waiting int
	// Ahead limits the tokens that are made before anybody pulls them; default 256.
	Ahead int
	// Patience limits how long requests that have not begun wait for a lost device;
	// default 10 s, negative: not at all.
	Patience time.Duration
	// Start limits how long Run tries to reach a service that does not exist yet;
	// default 0: once.
	Start time.Duration

	// Changed is called, from the goroutine of Run, when the state has changed.
	Changed func(state lm.State, reason string)
	Log     *slog.Logger // default slog.Default
	// Progress is called while the model is loaded, from the goroutine of Run, with
	// bytes.
	Progress func(done, total uint64)
}

const (
	defaultWaiting  = 256
	defaultAhead    = 256
	defaultPatience = 10 * time.Second
)

// complete fills in the defaults that do not depend on the file.
func (o *Options) complete() error {
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{{"waiting", &o.Waiting, defaultWaiting}, {"ahead", &o.Ahead, defaultAhead}} {
		if *f.value < 0 {
			return gpuerr.New(gpuerr.Invalid, "%s: %d is negative", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}

	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Changed == nil {
		o.Changed = func(lm.State, string) {}
	}
	if o.Progress == nil {
		o.Progress = func(uint64, uint64) {}
	}

	return nil
}
