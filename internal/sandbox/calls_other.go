//go:build !amd64

package sandbox

import "golang.org/x/sys/unix"

const sysNewfstatat = unix.SYS_FSTATAT

var oldCalls, oldOpeningCalls []call
