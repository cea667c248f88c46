// Package gatetest tells tests which gate processes serve somebody: device-manager keeps
// some more that wait for a client.
package gatetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// HasClient reports whether a gate process has a client: it holds the client's connection
// and a tenant socket then, and before that its link to device-manager only. A process
// that has ended has none.
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
