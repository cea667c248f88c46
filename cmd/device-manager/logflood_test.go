package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	strangers      = 4000 // connections of a user without access
	hostileStreams = 120  // each of which ends a gate
	// mostLines bounds the lines of the start, and of three causes for one user,
	// with their counts.
	mostLines = 150
)

// Strangers and hostile clients do not flood the log, whatever they do and however
// often, and the log counts exactly how much they did.
func TestLogIsNotFlooded(t *testing.T) {
	bin := buildPrograms(t)
	policy := filepath.Join(bin, "policy.json")
	require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, `{"tenants": [{"name": "closed", "allowedUids": [65533]}, {"name": "open", "allowedUids": [%d], "gateRate": 1000}]}`, os.Getuid()), 0o600))
	run := filepath.Join(bin, "run")
	cmd := exec.Command(filepath.Join(bin, "device-manager"), "--dev", "--policy", policy, "--run-dir", run, "--log-format", "text")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()

	timer := time.AfterFunc(60*time.Second, func() { cmd.Process.Kill() })
	defer timer.Stop()
	ready := make(chan struct{})
	log := make(chan []string, 1)
	go func() {
		var lines []string
		for s := bufio.NewScanner(stderr); s.Scan(); {
			if lines = append(lines, s.Text()); strings.Contains(s.Text(), "device mock0 ready") {
				close(ready)
			}
		}
		log <- lines
	}()

	<-ready

	var storm sync.WaitGroup
	for range 4 {
		storm.Go(func() {
			for range strangers / 4 {
				c, err := dial("unixpacket", filepath.Join(run, "closed.sock"))
				if err != nil {
					t.Error(err)
					return
				}
				c.Close()
			}
		})
	}

	storm.Wait()
	// Connections are accepted in order: when this one is refused, all were.
	sendGarbage(t, "unixpacket", filepath.Join(run, "closed.sock"))
	for range hostileStreams {
		sendGarbage(t, "unix", filepath.Join(run, "open.capnp.sock"))
	}

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	lines := <-log
	require.NoError(t, cmd.Wait())

	refused, ended := 0, 0
	for _, line := range lines {
		n := 1
		if m := leftOut.FindStringSubmatch(line); m != nil {
			require.Contains(t, line, "uid="+strconv.Itoa(os.Getuid()))
			n, _ = strconv.Atoi(m[1])
		}
		switch {
		case strings.Contains(line, "refused a connection"):
			refused += n
		case strings.Contains(line, "gate ended") || strings.Contains(line, "like=said") && strings.Contains(line, "process=gate"):
			ended += n
		}
	}

	require.Equal(t, strangers+1, refused)
	require.Equal(t, hostileStreams, ended)
	require.Less(t, len(lines), mostLines, strings.Join(lines, "\n"))
}

var leftOut = regexp.MustCompile(`msg="lines were left out" .*lines=(\d+)`)

// dial connects; it tries again if a socket has too many waiting connections.
func dial(network, path string) (c net.Conn, err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if c, err = net.Dial(network, path); !errors.Is(err, syscall.EAGAIN) {
			break
		}
	}
	return c, err
}

// sendGarbage sends garbage and reads until the other side has closed.
func sendGarbage(t *testing.T, network, path string) {
	t.Helper()
	c, err := dial(network, path)
	require.NoError(t, err)
	defer c.Close()
	_, _ = c.Write(bytes.Repeat([]byte{0xff}, 64)) // a refusal may have come first
	_, _ = io.Copy(io.Discard, c)
}
