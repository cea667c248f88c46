//go:build crashpoint

package crashpoint

import (
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Built tells whether Here does anything.
const Built = true

// armed is the point that this process dies at.
type armed struct {
	point Point
	left  atomic.Int64 // passes
}

var (
	here     atomic.Pointer[armed]
	children atomic.Int64 // of the armed point's role, that were started
)

// A wrong point would look like one that is never reached.
func init() {
	text := os.Getenv(Environment)
	if text == "" {
		return
	}
	p, err := Parse(text)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	a := &armed{point: p}
	a.left.Store(int64(p.Pass))
	here.Store(a)
}

// Here ends the process if it is armed to end here, this time.
func Here(label string) {
	a := here.Load()
	if a == nil || a.point.Label != label || a.left.Add(-1) != 0 {
		return
	}
	// Both calls are on the lists of a confined process. No defers, no other thread's
	// next instruction.
	_, _ = unix.Write(2, []byte("crashpoint "+label+"\n"))
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, Status, 0, 0)
	}
}

// ForChild is what to add to the environment of a process that is started as role:
// the point, if it is that process which is to die of it.
func ForChild(role string) []string {
	a := here.Load()
	if a == nil || RoleOf(a.point.Label) != role || children.Add(1) != int64(a.point.Child) {
		return nil
	}
	p := a.point
	p.Child = 1
	return []string{Environment + "=" + p.String()}
}
