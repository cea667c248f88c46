// Package ddfrpc is ddf over the guarded link to device-manager.
package ddfrpc

import (
	"context"
	"net"

	"capgpu/ddf"
)

// Link is a driver's end of its grant link.
type Link struct{}

// Dial takes the grants from the link. It takes ownership of c.
func Dial(ctx context.Context, c *net.UnixConn) (*Link, error) { panic("not yet") }

// GrantSet is what the driver holds. It is valid until Close.
func (l *Link) GrantSet() ddf.GrantSet { panic("not yet") }

// Done is closed when the link has died.
func (l *Link) Done() <-chan struct{} { panic("not yet") }

// Close ends the link and with it every grant.
func (l *Link) Close() error { panic("not yet") }
