package client

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DefaultSocket is the tenant socket of a program that was told none: $CAPGPU_SOCKET,
// else that of device-manager --dev if this user runs it, else that of the tenant default
// of a host. getenv is os.Getenv.
func DefaultSocket(getenv func(string) string) string {
	if p := getenv("CAPGPU_SOCKET"); p != "" {
		return p
	}
	dir := getenv("XDG_RUNTIME_DIR")
	if dir != "" {
		dir = filepath.Join(dir, "capgpu")
	} else {
		dir = ownTempDir(getenv("TMPDIR"))
	}
	if dir != "" {
		p := filepath.Join(dir, "default.sock")
		if _, err := os.Lstat(p); err == nil {
			return p
		}
	}
	return "/run/capgpu/default.sock"
}

// ownTempDir is where device-manager --dev serves a user that has no runtime folder.
// Anyone may make a folder of that name, so only one that is this user's own and closed
// to others counts; "" otherwise.
func ownTempDir(temp string) string {
	if temp == "" {
		temp = "/tmp"
	}
	dir := filepath.Join(temp, fmt.Sprintf("capgpu-%d", os.Getuid()))
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil || st.Mode != unix.S_IFDIR|0o700 || int(st.Uid) != os.Getuid() {
		return ""
	}
	return dir
}
