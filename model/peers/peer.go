package peers

import (
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Behind names the peer at the other end of a connection:
//
//	uid1000          a user, on a UNIX socket
//	loopback         this machine, by whichever of its loopback addresses
//	192.0.2.7        another machine
//	2001:db8::/64    another machine: a host with one IPv6 address can have many
//	unknown          the kernel gives no answer
func Behind(c net.Conn) string {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		return address(a.AddrPort().Addr().Unmap().WithZone(""))
	}
	if raw, ok := c.(syscall.Conn); ok {
		if uid, ok := user(raw); ok {
			return "uid" + strconv.FormatUint(uint64(uid), 10)
		}
	}
	return "unknown"
}

func address(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "loopback"
	case a.Is6():
		if net, err := a.Prefix(64); err == nil {
			return net.String()
		}
	}
	return a.String()
}

// user is the user that made the other end of a UNIX socket.
func user(c syscall.Conn) (uid uint32, ok bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false
	}
	failed := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = cred.Uid
		}
	})
	return uid, failed == nil && err == nil
}
