package manager

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxAsking is how many requests to the driver tenants can have us make at once,
// and maxTenantAsking how many of them one tenant. A link carries 64; the rest is
// for ours: a ping must never wait for tenants, or they could make a healthy
// driver look silent.
const (
	maxAsking       = 32
	maxTenantAsking = 4
)

// turnstile admits a number of holders at once, in the order they came.
type turnstile chan struct{}

func newTurnstile(n int) turnstile { return make(turnstile, n) }

func (t turnstile) enter(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turnstile) leave() { <-t }

// reservedDescriptors are for sockets, the log, and what is in passing.
const reservedDescriptors = 128

// affordableEntries is how many pieces of device memory the limit of open files
// leaves room for besides all connections: each is a descriptor here. Without
// this bound tenants with many buffers could keep others from connecting.
func affordableEntries(p *Policy) (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("ask for the limit of open files: %w", err)
	}
	return entriesWithin(p, limit.Cur)
}

func entriesWithin(p *Policy, files uint64) (uint64, error) {
	need := uint64(reservedDescriptors)
	for _, t := range p.Tenants {
		need += 4 * t.MaxConnections // connection, broker socket, a gate's log, one in passing
	}
	if need >= files {
		return 0, fmt.Errorf("the policy's connections need %d descriptors and the limit of open files is %d: raise the limit (LimitNOFILE, ulimit -n) or lower maxConnections", need, files)
	}
	return min(p.Device.IOVAEntries, files-need), nil
}

// grace is time that several things have to end in, one after the other.
type grace struct {
	timer *time.Timer
	over  bool
}

func newGrace(d time.Duration) *grace { return &grace{timer: time.NewTimer(d)} }

// lateGrace is for what is waited for when the time is up already.
const lateGrace = 100 * time.Millisecond

// wait reports whether done was closed in time.
func (g *grace) wait(done <-chan struct{}) bool {
	if g.over {
		g.timer.Reset(lateGrace)
	}
	select {
	case <-done:
		return true
	case <-g.timer.C:
		g.over = true
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}
