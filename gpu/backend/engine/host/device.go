// Package host is the frame of an engine process: it takes orders off the wire, checks them, and
// has a Device carry them out.
package host

import "capgpu/gpu/backend/engine/wire"

// Device is a vendor's library, driven for one tenant. The frame has checked every number of an
// order against wire's limits and the device's own, and every span against its memory; it
// resolves ids, so that a Device keeps no tables.
//
// Methods are called from one goroutine, but for Wait and Stop. An error that wraps ErrLost is
// the end of the device for this process; any other is the end of the one order, and says which
// resource is short (gpuerr.Quota) or what the library said (gpuerr.Internal).
type Device interface {
	// Describe says what device it is.
	Describe() wire.Device

	// Import makes host memory reachable. mem is a shared mapping of whole pages of a sealed
	// memfd, which stays until Free has returned; no byte is copied. Another process writes it
	// at any time.
	Import(mem []byte) (Memory, error)
	// Alloc returns zeroed memory of the device's own, never the host's instead: gpuerr.Quota
	// where there is not enough. Where Describe().LocalBytes is 0 it is not called.
	Alloc(bytes uint64) (Memory, error)

	// Compile makes a pipeline. It may take long; the core kills an engine that takes too long.
	Compile(p *wire.Pipeline) (Pipeline, error)

	// Record prepares entries, at most wire.MaxEntries, to be run in order, any number of
	// times. An entry sees what earlier ones have written, and no entry begins behind one that
	// ended early: nor do a copy and a fill. Between entries that share no written memory the
	// device need not wait.
	Record(entries []Entry) (List, error)
	// Submit begins a run of a list when the runs before it have ended. At most wire.MaxAhead
	// runs are submitted and not ended; the same list may be among them more than once. Behind
	// a run that ended early each run is skipped, until Resume.
	Submit(l List) error
	// Resume ends the skipping. No run is submitted.
	Resume() error

	// Wait returns the end of the oldest run that was submitted: what its entries wrote is seen
	// by the host then. It blocks while none is, and ends with ErrClosed when the device is
	// closed. It has its own goroutine.
	Wait() (wire.Result, error)
	// Stop has the loops of all runs that are submitted end soon (instrument.StopOff). It may be
	// called at any time, from any goroutine.
	Stop()

	// Close gives everything back. Nothing runs: else the process is killed instead.
	Close() error
}

// Memory is a piece of memory that the device reaches.
type Memory interface {
	// Free ends it; local memory is zeroed before. No run that uses it is submitted, and no list
	// with it will be.
	Free() error
}

// Pipeline is a compiled program.
type Pipeline interface{ Free() error }

// List is a recorded list. Free comes when no run of it is submitted.
type List interface{ Free() error }

// Entry is wire.Entry with its ids resolved.
type Entry struct {
	*wire.Entry
	Pipeline Pipeline // OpLaunch
	Memory   []Memory // of Entry.Spans
}
