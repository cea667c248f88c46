package qemu

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/proctest"
	"capgpu/qemu/guest/boot"
)

// fakeQEMU is a shell script in QEMU's place: the test checks how the runner treats a process
// of any kind.
func fakeQEMU(t *testing.T, script string) VM {
	path := filepath.Join(t.TempDir(), "qemu")
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\n"+script)))
	return VM{QEMU: path, Kernel: "kernel", Initrd: "initrd", MemoryMiB: 64, CPUs: 1, Timeout: 20 * time.Second}
}

func TestRunReturnsTheConsole(t *testing.T) {
	vm := fakeQEMU(t, `printf '\033[2J\033[1;1Hfirst\r\n'; echo second >&2; printf third`)
	var streamed []string
	vm.Line = func(line string) { streamed = append(streamed, line) }
	transcript, err := vm.Run(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, Transcript{"first", "second", "third"}, transcript) // of two streams
	require.Less(t, slices.Index(transcript, "first"), slices.Index(transcript, "third"))
	require.Equal(t, []string(transcript), streamed)
}

func TestRunReportsAnExitStatus(t *testing.T) {
	transcript, err := fakeQEMU(t, `echo no such machine; exit 3`).Run(t.Context())
	require.ErrorContains(t, err, "exit status 3")
	require.Equal(t, Transcript{"no such machine"}, transcript)
}

func TestRunReportsAMissingQEMU(t *testing.T) {
	_, err := VM{QEMU: "/nonexistent/qemu", Timeout: time.Second}.Run(t.Context())
	require.ErrorContains(t, err, "apt-get install qemu-system-x86")
}

// The script starts a child of its own, as a wrapper around QEMU would.
const hanging = `sleep 1000 & echo "pids $$ $!"; wait`

func TestRunKillsTheWholeGroupWhenTimeIsUp(t *testing.T) {
	vm := fakeQEMU(t, hanging)
	vm.Timeout = 500 * time.Millisecond
	transcript, err := vm.Run(t.Context())
	require.ErrorContains(t, err, "did not power off within 500ms")
	require.ErrorIs(t, err, ErrTimeout)
	require.True(t, transcript.has("qemu: thread "), "it was looked at: %q", transcript)
	requireGone(t, transcript)
}

func TestRunEndsWhoSaysNothing(t *testing.T) {
	vm := fakeQEMU(t, hanging)
	vm.Silence = 300 * time.Millisecond
	start := time.Now()
	transcript, err := vm.Run(t.Context())
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorContains(t, err, "has said nothing for 300ms")
	require.Less(t, time.Since(start), vm.Timeout)
	requireGone(t, transcript)

	// Before its first line a machine may be silent, and while it prints it may go on.
	vm = fakeQEMU(t, `sleep 1; for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done`)
	vm.Silence = 700 * time.Millisecond
	_, err = vm.Run(t.Context())
	require.NoError(t, err)
}

// TestRunBoundsTheBoot: a machine that does not get to Ready is booted again, and one that has
// got there may go on.
func TestRunBoundsTheBoot(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	vm := fakeQEMU(t, "printf x >> "+count+"; [ $(wc -c < "+count+") = 1 ] && { echo firmware; "+hanging+"; }; echo '"+boot.Ready+"'; sleep 0.5; echo fine")
	vm.Boot = 300 * time.Millisecond
	var streamed []string
	vm.Line = func(line string) { streamed = append(streamed, line) }
	transcript, err := vm.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Transcript{boot.Ready, "fine"}, transcript)
	require.Contains(t, strings.Join(streamed, "\n"), "booted again: the guest did not power off: it has not booted, and has said nothing for 300ms")

	vm = fakeQEMU(t, "printf x >> "+count+"; "+hanging)
	vm.Boot = 100 * time.Millisecond
	require.NoError(t, os.Remove(count))
	transcript, err = vm.Run(t.Context())
	require.ErrorIs(t, err, ErrTimeout)
	requireGone(t, transcript)
	text, err := os.ReadFile(count)
	require.NoError(t, err)
	require.Len(t, text, maxBoots)
}

func TestRunKillsTheWholeGroupWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	vm := fakeQEMU(t, hanging)
	vm.Line = func(string) { cancel() }
	transcript, err := vm.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	requireGone(t, transcript)
}

func TestRunKillsWhatAnExitedProcessLeftBehind(t *testing.T) {
	transcript, err := fakeQEMU(t, `sleep 1000 >/dev/null 2>&1 & echo "pids $$ $!"`).Run(t.Context())
	require.NoError(t, err)
	requireGone(t, transcript)
}

func TestRunEndsAtFatalWords(t *testing.T) {
	for _, words := range fatalWords {
		vm := fakeQEMU(t, "echo '"+words+": whatever'; "+hanging)
		start := time.Now()
		_, err := vm.Run(t.Context())
		require.ErrorContains(t, err, "the guest died: "+words)
		require.Less(t, time.Since(start), vm.Timeout)
	}
}

// TestRunBootsAgain: a machine that the emulator's flaw has killed is booted again, and
// no other.
func TestRunBootsAgain(t *testing.T) {
	const dies = "echo '[ 2.8] Oops: int3: 0000 [#1] PREEMPT SMP'; echo 'Kernel panic - not syncing: Fatal exception'; "
	count := filepath.Join(t.TempDir(), "count")
	boots := func() int {
		text, err := os.ReadFile(count)
		require.NoError(t, err)
		return len(text)
	}
	// Descriptor 3 is the first port.
	vm := fakeQEMU(t, "printf x >> "+count+"; echo result >&3; [ $(wc -c < "+count+") = 1 ] && { "+dies+hanging+"; }; echo fine")
	var said bytes.Buffer
	vm.Ports, vm.Again = []Port{{Name: "out", To: &said}}, said.Reset
	var streamed []string
	vm.Line = func(line string) { streamed = append(streamed, line) }
	transcript, err := vm.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Transcript{"fine"}, transcript)
	require.Equal(t, 2, boots())
	require.Contains(t, strings.Join(streamed, "\n"), "booted again")
	require.Equal(t, "result\n", said.String()) // of the second alone

	require.NoError(t, os.Remove(count))
	vm = fakeQEMU(t, "printf x >> "+count+"; "+dies+hanging)
	_, err = vm.Run(t.Context())
	require.ErrorContains(t, err, "Kernel panic")
	require.Equal(t, maxBoots, boots())

	require.NoError(t, os.Remove(count))
	vm = fakeQEMU(t, "printf x >> "+count+"; echo 'Kernel panic - not syncing: ours'; "+hanging)
	_, err = vm.Run(t.Context())
	require.ErrorContains(t, err, "Kernel panic")
	require.Equal(t, 1, boots())
}

func TestRunBoundsWhatTheGuestPrints(t *testing.T) {
	vm := fakeQEMU(t, `exec yes`)
	transcript, err := vm.Run(t.Context())
	require.ErrorContains(t, err, "more than 100000 lines")
	require.Len(t, transcript, maxLines)
}

// requireGone: the script and its child have been killed. The process that adopts the child
// reaps it, so it may be a zombie for a moment.
func requireGone(t *testing.T, transcript Transcript) {
	t.Helper()
	require.NotEmpty(t, transcript)
	pids := strings.Fields(transcript[0])[1:]
	require.Len(t, pids, 2)
	for _, p := range pids {
		pid, err := strconv.Atoi(p)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			if syscall.Kill(pid, 0) == syscall.ESRCH {
				return true
			}
			stat, _ := os.ReadFile("/proc/" + p + "/stat")
			return strings.Contains(string(stat), ") Z ")
		}, 5*time.Second, 10*time.Millisecond, "process %d is still there", pid)
	}
}
