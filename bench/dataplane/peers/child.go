package peers

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/benchtest"
)

// hidden is the first argument of a peer's process: this same program.
const hidden = "dataplane-peer"

// boardFD is the descriptor of a peer's shared page.
const boardFD = 3

// The CPUs of the two sides of every comparison.
const (
	ClientCPU = 0
	ServerCPU = 1
)

// RunIfPeer makes this process a peer if it was started as one, and then never
// returns. A program that uses the peers calls it first, tests in TestMain.
func RunIfPeer() {
	if len(os.Args) < 3 || os.Args[1] != hidden {
		return
	}
	if _, err := benchtest.Pin(ServerCPU); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	socket := ""
	if len(os.Args) > 3 {
		socket = os.Args[3]
	}

	serve := map[string]func() error{
		"raw":   func() error { fmt.Println("ready"); return answerRaw() },
		"capnp": func() error { return serveCapnp(socket) },
		"grpc":  func() error { return serveGRPC(socket) },
		"ttrpc": func() error { return serveTTRPC(socket) },
	}[os.Args[2]]
	if serve == nil {
		fmt.Fprintln(os.Stderr, "no such peer:", os.Args[2])
		os.Exit(2)
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, os.Args[2]+":", err)
		os.Exit(1)
	}

	os.Exit(0)
}

// child is a running peer.
type child struct {
	cmd  *exec.Cmd
	what string
	done chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

// Write receives the peer's output.
func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (c *child) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.what + ": " + c.log.String()
}

// spawn starts a peer and waits until it is ready.
func spawn(what, socket string, files ...*os.File) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	c := &child{cmd: exec.Command(self, hidden, what, socket), what: what, done: make(chan struct{})}
	c.cmd.ExtraFiles, c.cmd.Stderr = files, c
	c.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL} // it may be spinning
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the peer %s: %w", what, err)
	}

	ready := make(chan error, 1)
	go func() {
		defer close(c.done)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && line != "ready\n" {
			err = fmt.Errorf("it said %q", line)
		}
		ready <- err
		_ = c.cmd.Wait() // it is killed in the end
	}()

	select {
	case err = <-ready:
	case <-time.After(answerTimeout):
		err = fmt.Errorf("it does not get ready")
	}

	if err != nil {
		_ = c.close()
		return nil, fmt.Errorf("the peer %s: %w", c.output(), err)
	}

	return c, nil
}

// close ends the peer, and returns when it is gone.
func (c *child) close() error {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.done
	return nil
}
