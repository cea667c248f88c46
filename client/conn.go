package client

import (
	"context"
	"encoding/json"
	"time"
)

// Conn is a tenant's connection to the service.
type Conn struct{}

// Dial connects to a tenant socket.
func Dial(ctx context.Context, path string) (*Conn, error) { panic("client: not yet") }

// NewConn speaks on a connected tenant socket; it takes ownership of fd, also
// when it fails.
func NewConn(ctx context.Context, fd int) (*Conn, error) { panic("client: not yet") }

// Tenant is whom the service takes this client for.
func (c *Conn) Tenant() string { panic("client: not yet") }

// Devices lists the devices of the tenant.
func (c *Conn) Devices(ctx context.Context) ([]DeviceInfo, error) { panic("client: not yet") }

// Open opens a session on a device. The session does not depend on the Conn.
func (c *Conn) Open(ctx context.Context, index uint32) (*Session, error) { panic("client: not yet") }

// NextState blocks until the device's state differs from "ready in epoch". When
// ctx ends first it returns ctx's error.
func (c *Conn) NextState(ctx context.Context, index uint32, epoch uint64) (State, error) {
	panic("client: not yet")
}

// NextStateFor is NextState with the time limit as a result: when timeout is
// over it returns the present state with Changed false and no error.
func (c *Conn) NextStateFor(ctx context.Context, index uint32, epoch uint64, timeout time.Duration) (State, error) {
	panic("client: not yet")
}

// Status is the driver's account of its sessions and budgets, as JSON.
func (c *Conn) Status(ctx context.Context, index uint32) (json.RawMessage, error) {
	panic("client: not yet")
}

// Done is closed when the service is gone or Close was called.
func (c *Conn) Done() <-chan struct{} { panic("client: not yet") }

// Err says why Done is closed; nil before.
func (c *Conn) Err() error { panic("client: not yet") }

// Close ends the connection. Sessions opened on it live on.
func (c *Conn) Close() error { panic("client: not yet") }
