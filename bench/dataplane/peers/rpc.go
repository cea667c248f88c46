package peers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// PayloadBytes is the payload of a call: the size of an entry of our ring.
const PayloadBytes = 64

// RPC is an ordinary remote call to another process, over a UNIX socket.
type RPC struct {
	Name string
	Call func() error

	child      *child
	dir        string
	disconnect func() error
}

// RPCNames are the names for NewRPC.
var RPCNames = []string{"capnp", "grpc", "ttrpc"}

// NewRPC starts a server and connects to it.
func NewRPC(name string) (_ *RPC, err error) {
	connect := map[string]func(socket string) (call, disconnect func() error, err error){
		"capnp": dialCapnp, "grpc": dialGRPC, "ttrpc": dialTTRPC,
	}[name]
	if connect == nil {
		return nil, fmt.Errorf("there is no peer %q", name)
	}

	r := &RPC{Name: name}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()

	if r.dir, err = os.MkdirTemp("", "capgpu-bench-"); err != nil {
		return nil, err
	}

	socket := filepath.Join(r.dir, "s")
	if r.child, err = spawn(name, socket); err != nil {
		return nil, err
	}
	if r.Call, r.disconnect, err = connect(socket); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	if err := r.Call(); err != nil {
		return nil, fmt.Errorf("call %s: %w", name, err)
	}

	return r, nil
}

// Close ends the server.
func (r *RPC) Close() error {
	if r.disconnect != nil {
		_ = r.disconnect() // the server is killed in any case
	}
	if r.child != nil {
		_ = r.child.close()
	}
	return os.RemoveAll(r.dir)
}

// listen prints "ready" once clients can connect.
func listen(socket string) (net.Listener, error) {
	l, err := net.Listen("unix", socket)
	if err == nil {
		fmt.Println("ready")
	}
	return l, err
}
