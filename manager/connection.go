package manager

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// connection is a client's connection to either socket of a tenant. A session remembers the
// connection that opened it, and ends when that connection's user loses the right, even if
// the session was passed on.
type connection struct {
	tenant *tenantServer
	who    credentials

	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   *idleWatch // busy while a request is answered or a session is open; set when it is served
	// denied is why the policy no longer admits this user: further requests are refused.
	denied atomic.Pointer[gpuerr.Error]
}

// credentials are those of the connecting process, at the time it connected.
type credentials struct {
	uid, gid uint32
	groups   []uint32 // besides gid
}

// credentialsOf asks the kernel for the peer's credentials (unix(7), SO_PEERCRED;
// SO_PEERGROUPS).
func credentialsOf(c *net.UnixConn) (who credentials, err error) {
	cred, err := peerCred(c)
	if err != nil {
		return who, err
	}
	who = credentials{uid: cred.Uid, gid: cred.Gid}
	raw, err := c.SyscallConn()
	if err != nil {
		return who, gpuerr.New(gpuerr.IO, "read the groups of a connection: %v", err)
	}
	var asked error
	err = raw.Control(func(fd uintptr) { who.groups, asked = shm.PeerGroups(int(fd)) })
	return who, errors.Join(err, asked)
}

// join adds a connection, unless the policy has changed since its user was admitted and
// admits it no longer.
func (s *tenantServer) join(who credentials, t *Tenant) (*connection, error) {
	c := &connection{tenant: s, who: who}
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	s.mu.Lock()
	s.connections[c] = struct{}{}
	s.mu.Unlock()
	// A later change of the policy finds the connection; an earlier one is seen here.
	if now := s.policy(); now != t || s.removed.Load() {
		if err := s.refuses(c, t, now); err != nil {
			s.leave(c)
			return nil, err
		}
	}
	return c, nil
}

// leave removes a connection.
func (s *tenantServer) leave(c *connection) {
	c.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.connections, c)
}

// all returns the connections.
func (s *tenantServer) all() []*connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*connection, 0, len(s.connections))
	for c := range s.connections {
		list = append(list, c)
	}
	return list
}

// refuses returns why a connection that was admitted under one policy is refused under
// another, or nil. A tenant that was removed admits no user.
func (s *tenantServer) refuses(c *connection, before, now *Tenant) error {
	if s.removed.Load() {
		return errRemoved(before.Name)
	}
	return now.refuses(c.who, before)
}

func errRemoved(tenant string) error {
	return gpuerr.New(gpuerr.Denied, "the policy has no tenant %q any more", tenant)
}

// refuses returns why a user that the earlier policy admitted is refused now, or nil.
func (t *Tenant) refuses(who credentials, before *Tenant) error {
	switch {
	case !t.AnyUID && !slices.Contains(t.AllowedUIDs, who.uid):
		return errNotAllowed(who.uid, t.Name)
	case before.reachedBy(who) && !t.reachedBy(who):
		return gpuerr.New(gpuerr.Denied, "the policy has changed the owner, group or mode of the sockets of tenant %q, and user %d cannot open them any more", t.Name, who.uid)
	}
	return nil
}

func errNotAllowed(uid uint32, tenant string) error {
	return gpuerr.New(gpuerr.Denied, "user %d may not act as tenant %q; an operator can add it to allowedUids in the policy", uid, tenant)
}

// reachedBy reports whether mode, owner and group of the sockets let a process connect, which
// takes write permission (unix(7)). The manager does not know its capabilities.
func (t *Tenant) reachedBy(who credentials) bool {
	owner, group := t.socketOwner()
	switch {
	case who.uid == 0:
		return true
	case int(who.uid) == owner:
		return t.SocketMode&0o200 != 0
	case int(who.gid) == group, slices.Contains(who.groups, uint32(group)):
		return t.SocketMode&0o020 != 0
	}
	return t.SocketMode&0o002 != 0
}
