package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/ddf/ddfrpc"
	"capgpu/gpuerr"
)

// Descriptors that a driver is started with.
const (
	SupervisionFD = 3
	GrantFD       = 4
)

// links are the two sockets of a driver.
type links struct {
	supervision *control.Conn // nil once taken
	grants      *net.UnixConn // nil once taken
}

// inherit takes descriptors 3 and 4 after checking that they are the links of a
// driver. A program that was started by hand so reports the mistake at once instead
// of failing later.
func inherit() (*links, error) {
	if err := checkLinks(SupervisionFD, GrantFD); err != nil {
		return nil, err
	}
	unix.CloseOnExec(SupervisionFD)
	unix.CloseOnExec(GrantFD)
	return newLinks(last(SupervisionFD), GrantFD)
}

// lastFD is above the descriptors that a driver usually has open.
const lastFD = 1000

// last moves a descriptor to a high number. When the process dies, the kernel
// closes its descriptors from the highest number down (Linux 6.18, exit_files,
// task_work_run). The manager so learns of a death before clients see their sockets
// close, and knows why they ask again. A descriptor that cannot be moved stays
// where it is.
func last(fd int) int {
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, lastFD)
	if err != nil {
		return fd
	}
	unix.Close(fd)
	return moved
}

// checkLinks names everything that is missing, with E_INVALID.
func checkLinks(supervision, grants int) error {
	var missing []string
	if err := checkLink(supervision, unix.SOCK_SEQPACKET); err != nil {
		missing = append(missing, fmt.Sprintf("descriptor %d is not the supervision link, a SEQPACKET socket (%v)", supervision, err))
	}
	if err := checkLink(grants, unix.SOCK_STREAM); err != nil {
		missing = append(missing, fmt.Sprintf("the grant set is missing: descriptor %d is not the grant link, a STREAM socket (%v)", grants, err))
	}
	if missing == nil {
		return nil
	}
	return gpuerr.New(gpuerr.Invalid, "%s; a driver is started by device-manager and holds only what it is granted: run `device-manager --dev` instead", strings.Join(missing, "; "))
}

func checkLink(fd, kind int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	switch {
	case errors.Is(err, unix.EBADF):
		return errors.New("it is not open")
	case errors.Is(err, unix.ENOTSOCK):
		return errors.New("it is no socket")
	case err != nil:
		return err
	case domain != unix.AF_UNIX:
		return errors.New("it is no UNIX socket")
	}

	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if got != kind {
		return errors.New("it is a socket of another type")
	}

	return nil
}

// newLinks takes ownership of both descriptors, also when it fails.
func newLinks(supervision, grants int) (*links, error) {
	conn, err := control.NewConn(supervision, control.ConnOptions{Descriptors: true}) // Attach brings a socket
	f := os.NewFile(uintptr(grants), "grant link")
	defer f.Close() // FileConn duplicates
	if err != nil {
		return nil, fmt.Errorf("take the supervision link: %w", err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take the grant link: %w", err), conn.Close())
	}
	stream, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("the grant link is no UNIX socket"), c.Close(), conn.Close())
	}
	return &links{supervision: conn, grants: stream}, nil
}

func (l *links) dialGrants(ctx context.Context) (*ddfrpc.Link, error) {
	c := l.grants
	l.grants = nil
	return ddfrpc.Dial(ctx, c)
}

func (l *links) takeSupervision() *control.Conn {
	c := l.supervision
	l.supervision = nil
	return c
}

// close closes the links that were not taken.
func (l *links) close() error {
	var errs []error
	if l.supervision != nil {
		errs = append(errs, l.supervision.Close())
	}
	if l.grants != nil {
		errs = append(errs, l.grants.Close())
	}
	return errors.Join(errs...)
}
