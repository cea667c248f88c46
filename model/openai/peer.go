package openai

import (
	"context"
	"net"
	"strconv"

	"golang.org/x/sys/unix"
)

// connKey is of the connection in a request's context, peerKey of who is behind it.
type (
	connKey struct{}
	peerKey struct{}
)

// remember is http.Server.ConnContext.
func remember(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(context.WithValue(ctx, connKey{}, c), peerKey{}, peerOf(c))
}

// connOf is the connection of a request, if Limit has taken it; else nil.
func connOf(ctx context.Context) *limitedConn {
	c, _ := ctx.Value(connKey{}).(*limitedConn)
	return c
}

// peerOf names who is at the other end: the user, on a UNIX socket; another machine; on
// this machine, where one is as good as another, the connection. There is no "/" in it.
func peerOf(c net.Conn) string {
	number := ""
	if l, ok := c.(*limitedConn); ok {
		number, c = strconv.FormatUint(l.number, 10), l.Conn
	}
	if u, ok := c.(*net.UnixConn); ok {
		if raw, err := u.SyscallConn(); err == nil {
			var cred *unix.Ucred
			if raw.Control(func(fd uintptr) {
				cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
			}) == nil && err == nil {
				return "uid" + strconv.FormatUint(uint64(cred.Uid), 10)
			}
		}
	}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		if a.IP.IsLoopback() {
			return a.String()
		}
		return a.IP.String()
	}
	return "http" + number
}
