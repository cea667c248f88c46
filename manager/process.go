package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/internal/rpcguard"
	"capgpu/internal/shm"
)

// driverProcess is a driver's process, confined, with the manager's ends of its two links. It
// holds no grants: until it is promoted, the manager neither reads from it nor writes to it.
// Then either startDriver promotes it to a driverLink, or close ends it.
type driverProcess struct {
	child  *child
	conn   *control.Conn // of the supervision link
	grants *net.UnixConn // of the grant link
	from   programFile
	epoch  *atomic.Uint64 // to which it was promoted; 0: none yet
	// checked: the kernel has shown that it is confined, which it cannot undo.
	checked bool
}

// spawnDriver starts the device's driver program. Its links are not served yet.
func (d *device) spawnDriver() (*driverProcess, error) {
	from, err := programOf(d.driver(), d.driverArgs())
	if err != nil {
		return nil, err
	}

	superOurs, superTheirs, err := shm.Socketpair()
	if err != nil {
		return nil, err
	}

	grantOurs, grantTheirs, err := streamPair()
	if err != nil {
		unix.Close(superOurs)
		unix.Close(superTheirs)
		return nil, err
	}

	superFile, grantFile := os.NewFile(uintptr(superTheirs), "supervision link"), os.NewFile(uintptr(grantTheirs), "grant link")
	defer superFile.Close()
	defer grantFile.Close()
	conn, err := control.NewConn(superOurs, control.ConnOptions{})
	if err != nil {
		grantOurs.Close()
		return nil, err
	}

	epoch := new(atomic.Uint64)
	c, err := d.drivers.spawner.start(d.log, "driver", d.confineDriver(epoch), from.path, from.args, superFile, grantFile)
	if err != nil {
		return nil, errors.Join(err, conn.Close(), grantOurs.Close())
	}

	return &driverProcess{child: c, conn: conn, grants: grantOurs, from: from, epoch: epoch}, nil
}

// close ends a process that is not promoted, within patience. If some of it is left, the
// error is a *remains.
func (p *driverProcess) close(patience time.Duration) error {
	p.child.kill()
	err := errors.Join(p.conn.Close(), p.grants.Close())
	if !newGrace(patience).wait(p.child.exited) {
		err = errors.Join(err, &remains{patience: patience, parts: []string{fmt.Sprintf("the standby process %d cannot be reaped", p.child.pid())}})
	}
	return err
}

// awaitWord returns nil when the process has sent its first byte on the grant link, which it
// does when it is confined and warm; the byte stays unread. It returns an error when the
// process closes the link, or a deadline of the link passes.
func (p *driverProcess) awaitWord() error {
	if err := awaitBytes(p.grants); !errors.Is(err, io.EOF) {
		return err
	}
	return errors.New("it closed the grant link")
}

// awaitBytes returns nil when c has bytes to read, which stay unread. It returns io.EOF when
// the peer has closed its side, and an error when a deadline of c passes.
func awaitBytes(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}

	var said error
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return false
		case err != nil:
			said = err
		case n == 0:
			said = io.EOF
		}
		return true
	})
	return errors.Join(err, said)
}

// startDriver makes the driver of an epoch from the standby, or from a process that it
// spawns. Grants are served at once; ready tells when the driver can take sessions.
func (d *device) startDriver(ctx context.Context, g *grants, desk *faultDesk) (*driverLink, error) {
	p := d.drivers.standby.take(ctx)
	if p == nil {
		var err error
		if p, err = d.spawnDriver(); err != nil {
			return nil, err
		}
	}
	return d.promote(p, g, desk), nil
}

// promote gives a process its grants. The link owns the process from here on.
func (d *device) promote(p *driverProcess, g *grants, desk *faultDesk) *driverLink {
	return d.promoteFor(p, g, desk, nil)
}

// promoteFor is promote for the successor of another driver (upgrade.go).
func (d *device) promoteFor(p *driverProcess, g *grants, desk *faultDesk, h *holder) *driverLink {
	p.epoch.Store(g.info.Epoch)
	l := &driverLink{
		epoch: g.info.Epoch, holder: h, child: p.child, checked: p.checked, gate: rpcguard.NewGate(), sessions: g.sessions, failure: g.failure,
		settle:   func(ctx context.Context) (time.Duration, error) { return d.settleFaults(ctx, desk) },
		escalate: d.board.escalate, escalating: make(chan struct{}, 1), short: d.showShort,
		ready: make(chan control.ReadyRequest, 1), grantsDone: make(chan struct{}),
	}
	l.caller = control.NewPeer(context.Background(), p.conn, l.handle)
	server := &grantServer{grants: g, holder: h, gate: l.gate, log: d.log, launchRecords: d.cfg.Policy.Audit.Launches}
	go l.runGrants(server, p.grants)
	return l
}

// programFile identifies a program file at its start. A file that was overwritten or replaced
// is another.
type programFile struct {
	path  string
	args  []string
	dev   uint64
	inode uint64
	bytes int64
	// Time of the last change, which no user can set back (inode(7), st_ctim).
	changed syscall.Timespec
}

func programOf(path string, args []string) (programFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return programFile{}, fmt.Errorf("find a program: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return programFile{}, &fs.PathError{Op: "stat", Path: path, Err: errors.ErrUnsupported}
	}
	return programFile{path: path, args: args, dev: st.Dev, inode: st.Ino, bytes: st.Size, changed: st.Ctim}, nil
}

func (f programFile) same(other programFile) bool {
	return f.path == other.path && slices.Equal(f.args, other.args) &&
		f.dev == other.dev && f.inode == other.inode && f.bytes == other.bytes && f.changed == other.changed
}
