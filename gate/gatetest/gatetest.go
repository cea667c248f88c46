// Package gatetest lets tests find the gate processes that have a client;
// device-manager keeps some more that wait for one.
package gatetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// HasClient reports whether a gate process has a client. Such a process holds the
// client's connection and a tenant socket; before that it holds only its link to
// device-manager. A process that has ended has no client.
func HasClient(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	sockets := 0
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return sockets > 1
}
