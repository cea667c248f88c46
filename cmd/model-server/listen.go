package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unixPath is the path of an address that is a UNIX socket.
func unixPath(address string) (path string, ok bool) { return strings.CutPrefix(address, "unix:") }

// checkAddress refuses an address that would serve strangers without a token.
func (o *options) checkAddress(address string) error {
	if path, ok := unixPath(address); ok {
		return checkPath("--listen unix:", path)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("--listen %s: it is HOST:PORT or unix:PATH", address)
	}
	if !isLoopback(host) && o.tokenFile == "" {
		return fmt.Errorf("--listen %s: whoever reaches this address would be served; give --token-file, or listen on 127.0.0.1, [::1] or unix:PATH", address)
	}
	return nil
}

// checkPath refuses a path that is not a socket file's. A name that begins with "@"
// or a zero byte would be in the kernel's table of names, which has no modes: every
// user of the machine could connect.
func checkPath(option, path string) error {
	switch {
	case path == "":
		return fmt.Errorf("%s names no path", option)
	case path[0] == '@' || strings.ContainsRune(path, 0):
		return fmt.Errorf("%s%q: a socket without a file has no mode, and serves every user; name a path (./@… for a file of such a name)", option, path)
	}
	return nil
}

// isLoopback accepts only numeric addresses. A resolver decides what a name means,
// and an empty host is every address.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Bounds of a token.
const (
	leastToken = 16
	mostToken  = 4096
)

// readToken reads the clients' token: one line of visible ASCII, in a file that
// only its owner and group can read.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}

	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer f.Close()

	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	if st.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("--token-file %s: every user can read or change it; chmod 600 it, and put another token in", path)
	}

	text, err := io.ReadAll(io.LimitReader(f, mostToken+2))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}

	token := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if len(token) < leastToken || len(token) > mostToken {
		return "", fmt.Errorf("--token-file %s: a token has %d to %d characters, not %d", path, leastToken, mostToken, len(token))
	}

	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return "", fmt.Errorf("--token-file %s: a token is one line of visible ASCII characters", path)
		}
	}

	return token, nil
}

// listenUnix makes a socket of mode 0660. It replaces a socket without a server,
// which an earlier server has left, and nothing else.
func listenUnix(path string) (*net.UnixListener, error) {
	st, err := os.Lstat(path)
	if err == nil {
		if st.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("listen on %s: it is there, and is no socket", path)
		}
		c, err := net.Dial("unix", path)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("listen on %s: another process serves it", path)
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}

	// The umask belongs to the whole process, so this runs before anything else
	// does.
	before := unix.Umask(0o117)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}

	return l, nil
}
