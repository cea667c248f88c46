// Package leakcheck makes a test binary fail when it leaves something behind:
// goroutines, file descriptors, or mappings of shared memory.
//
//	func TestMain(m *testing.M) { leakcheck.Main(m) }
//
// compares the end of the whole binary with its start; Check does the same for one test that
// does not run in parallel with others. Resources that are about to be freed get ten seconds.
// Only those of after the start count.
package leakcheck

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// graceTime is how long goroutines may take to notice that they are done, also on a busy
// host. A leak stays for any time.
const graceTime = 10 * time.Second

// pollTime is how often the state is compared within graceTime.
const pollTime = 5 * time.Millisecond

// Main runs the tests of a binary and exits, with a failure if they leaked.
func Main(m *testing.M) { os.Exit(Run(m, nil)) }

// Run runs the tests of a binary, then clean if it is not nil, and returns the exit
// status: a failure if they leaked.
func Run(m *testing.M, clean func()) int {
	before := Take()
	code := m.Run()
	if clean != nil {
		clean()
	}
	if left := before.Left(); code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "leakcheck: the tests left behind:\n%s\n", strings.Join(left, "\n"))
		code = 1
	}
	return code
}

// Check fails t when it ends with more than there is now. Call it first, so that
// the test's other cleanups have run before it looks.
func Check(t testing.TB) {
	t.Helper()
	before := Take()
	t.Cleanup(func() {
		if left := before.Left(); len(left) > 0 {
			t.Errorf("leakcheck: left behind:\n%s", strings.Join(left, "\n"))
		}
	})
}

// Descriptors is how many files the process has open.
func Descriptors() int { return len(descriptors()) }

// Snapshot is what a process held at one moment.
type Snapshot struct {
	goroutines map[string]string // by "goroutine N"
	fds        map[string]string // by number and target
	maps       map[string]string // by address range and object
}

// Take looks at the process.
func Take() Snapshot {
	startPoller()
	return look()
}

// Left lists what the process holds beyond s, after waiting for it to go away.
func (s Snapshot) Left() []string {
	deadline := time.Now().Add(graceTime)
	for {
		left := s.beyond(look())
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(pollTime)
	}
}

func (s Snapshot) beyond(now Snapshot) []string {
	var left []string
	add := func(kind string, old, cur map[string]string) {
		for id, what := range cur {
			if _, ok := old[id]; !ok {
				left = append(left, kind+" "+what)
			}
		}
	}
	add("goroutine:", s.goroutines, now.goroutines)
	add("descriptor:", s.fds, now.fds)
	add("mapping:", s.maps, now.maps)
	slices.Sort(left)
	return left
}

func look() Snapshot {
	return Snapshot{goroutines: goroutines(), fds: descriptors(), maps: mappings()}
}

// startPoller makes the runtime open its epoll and eventfd descriptors, which
// stay for the life of the process, before they could be taken for a leak.
func startPoller() {
	r, w, err := os.Pipe()
	if err != nil {
		panic(fmt.Sprintf("leakcheck: pipe: %v", err))
	}
	r.Close()
	w.Close()
}

// ownedByRuntime marks stacks that belong to the runtime or to package testing
// and live until the process exits.
var ownedByRuntime = []string{
	"os/signal.signal_recv",
	"os/signal.loop",
	"testing.(*M).startAlarm",
	"runtime.ReadTrace",
	"runtime/pprof.profileWriter",
	"internal/leakcheck.goroutines", // the caller
}

func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}

	found := map[string]string{}
	for _, stack := range strings.Split(string(buf), "\n\n") {
		id, _, ok := strings.Cut(stack, " [")
		if !ok || slices.ContainsFunc(ownedByRuntime, func(s string) bool { return strings.Contains(stack, s) }) {
			continue
		}
		found[id] = stack
	}

	return found
}

func descriptors() map[string]string {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		panic(fmt.Sprintf("leakcheck: %v", err))
	}

	names, err := dir.Readdirnames(-1)
	own := fmt.Sprint(dir.Fd())
	dir.Close()
	if err != nil {
		panic(fmt.Sprintf("leakcheck: %v", err))
	}

	found := map[string]string{}
	for _, name := range names {
		if name == own {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + name)
		if err != nil {
			continue // closed since
		}
		id := name + " " + target
		found[id] = id
	}

	return found
}

func mappings() map[string]string {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(fmt.Sprintf("leakcheck: %v", err))
	}
	found := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if line := lines.Text(); strings.Contains(line, "memfd:") {
			id, _, _ := strings.Cut(line, " ")
			found[id] = line
		}
	}
	return found
}
