package accel

import (
	"context"
	"errors"
	"sync"

	"capgpu/client"
	"capgpu/gpuerr"
)

// maxStreams bounds the streams of a GPU: work of the default stream waits for each of the others.
const maxStreams = 64

// Options of a GPU; the zero value is device 0.
type Options struct {
	Index uint32 // of the device, as in client.DeviceInfo
	// Checked has kernels run slowly and watched: races, reads of uninitialised shared memory and
	// divergent barriers are device errors too.
	Checked bool
	// SurviveHang makes a missed deadline an error of the wait that covers it, and not a sticky
	// one.
	SurviveHang bool
	Trace       *Trace // nil: none
}

// GPU is a device context: one session, its default stream, and the sticky error. All methods are
// safe for concurrent use.
type GPU struct {
	conn    *client.Conn
	options Options
	session *client.Session
	limits  client.Description

	mu sync.Mutex
	// +checklocks:mu
	streams []*stream // by slot; slot 0 is the default stream's
	// +checklocks:mu
	host clock // this process has waited for it
	// +checklocks:mu
	sticky *Error
	// +checklocks:mu
	closed bool // by Close or Renew
	// +checklocks:mu
	over bool // by Close
	// +checklocks:mu
	renewed *GPU
	// +checklocks:mu
	lastEvent uint32
	// +checklocks:mu
	lastStream uint32
}

// Open opens a session on a device.
func Open(ctx context.Context, c *client.Conn, o Options) (*GPU, error) {
	if err := o.Trace.claim(); err != nil {
		return nil, err
	}
	g, err := open(ctx, c, o, c.Open, &GPU{})
	if err != nil {
		o.Trace.release()
		return nil, err
	}
	return g, nil
}

// open makes g a context on a new session; its numbers go on from those that it has.
func open(ctx context.Context, c *client.Conn, o Options, plain func(context.Context, uint32) (*client.Session, error), g *GPU) (*GPU, error) {
	if o.Checked {
		plain = c.OpenChecked
	}
	session, err := plain(ctx, o.Index)
	if err != nil {
		return nil, wrap(DeviceUnavailable, "Open", err)
	}

	g.conn, g.options, g.session = c, o, session
	if g.limits, err = session.Describe(ctx); err == nil {
		_, err = g.newStream(ctx, spaceName[Device]())
	}
	if err != nil {
		_ = session.Close(context.WithoutCancel(ctx))
		return nil, wrap(DeviceUnavailable, "Open", err)
	}
	return g, nil
}

// Capability is the static properties of a device.
type Capability struct {
	WarpSize                int // lanes
	MaxThreadsPerBlock      int
	MaxSharedMemoryPerBlock int // bytes
	GlobalMemAlignment      int // bytes
}

// Capability tells the properties of the device.
func (g *GPU) Capability() Capability {
	return Capability{
		WarpSize:                int(g.limits.SubgroupSize),
		MaxThreadsPerBlock:      int(g.limits.MaxThreadsPerBlock),
		MaxSharedMemoryPerBlock: int(g.limits.MaxSharedBytes),
		GlobalMemAlignment:      int(g.limits.GlobalMemAlignment),
	}
}

// Default is the default stream. Its work waits for all that the other streams were given before,
// and what they are given later waits for it.
func (g *GPU) Default() *Stream[Device] {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &Stream[Device]{g.streams[0]}
}

// Launch runs a kernel in the default stream and waits for its end. When ctx ends first, the kernel
// goes on and its buffers stay borrowed: wait for the default stream.
func (g *GPU) Launch(ctx context.Context, l Launch) error {
	e, err := g.Default().Launch(l)
	if err != nil {
		return err
	}
	return e.Synchronize(ctx)
}

// Err is the sticky error, nil while there is none.
func (g *GPU) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sticky != nil {
		return g.sticky
	}
	return nil
}

// Renew closes the GPU, with all that is on it, and opens another on the same device: the way out
// of a sticky error. It waits for a driver where the device has none at the moment. Host buffers
// live on, and belong to the new one.
func (g *GPU) Renew(ctx context.Context) (*GPU, error) {
	g.mu.Lock()
	next := &GPU{lastEvent: g.lastEvent, lastStream: g.lastStream}
	again := g.renewed != nil || g.over
	g.mu.Unlock()
	if again {
		return nil, errRenewed
	}

	if err := g.end(ctx); err != nil {
		return nil, err
	}
	if _, err := open(ctx, g.conn, g.options, g.conn.OpenReady, next); err != nil {
		return nil, err
	}

	g.mu.Lock()
	again = g.renewed != nil || g.over
	if !again {
		g.renewed = next
	}
	g.mu.Unlock()
	if again { // by another goroutine meanwhile
		return nil, errors.Join(errRenewed, next.end(ctx))
	}
	return next, nil
}

var errRenewed = refuse(DeviceUnavailable, "Renew", "the GPU was closed or renewed before")

// Close ends the session, its work and everything that is on it. Slices of its buffers are valid
// until these are freed.
func (g *GPU) Close(ctx context.Context) error {
	g.mu.Lock()
	first := !g.over && g.renewed == nil
	g.over = true
	g.mu.Unlock()
	err := g.end(ctx)
	if first {
		g.options.Trace.release()
	}
	return err
}

func (g *GPU) end(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	if err := g.session.Close(ctx); err != nil {
		return wrap(DeviceUnavailable, "Close", err)
	}
	return nil
}

// checkLocked refuses a call in a context that is over.
//
// +checklocks:g.mu
func (g *GPU) checkLocked(op string) error {
	if g.sticky != nil {
		return g.sticky
	}
	if g.closed {
		return &Error{Code: DeviceUnavailable, Op: op, Err: gpuerr.New(gpuerr.Closed, "the GPU is closed")}
	}
	if err := g.session.Err(); err != nil {
		return wrap(DeviceUnavailable, op, err)
	}
	return nil
}

func (g *GPU) check(op string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checkLocked(op)
}

// current is the GPU, or the one that took its place.
func (g *GPU) current() *GPU {
	for {
		g.mu.Lock()
		next := g.renewed
		g.mu.Unlock()
		if next == nil {
			return g
		}
		g = next
	}
}
