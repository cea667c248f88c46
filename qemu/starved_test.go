package qemu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/proctest"
)

// guestRuns wants a guest to pass. One that failed while it waited for a processor longer
// than it had one says little: promises within seconds are for a machine that runs. It is run
// once more, and its second result counts.
func guestRuns(t *testing.T, run func() error) {
	t.Helper()
	for again := false; ; again = true {
		m := startMeter(emulator)
		err := run()
		ran, waited := m.stop()
		t.Logf("the guest had a processor for %v, and waited for one for %v", ran.Round(time.Second), waited.Round(time.Second))
		if err == nil {
			return
		}
		if again || waited <= ran {
			require.NoError(t, err)
		}
		t.Logf("again: %v", err)
	}
}

// emulator is the name of QEMU's process, as the kernel keeps it.
const emulator = "qemu-system-x86"

// meter sees how the children of this process with one name fare.
type meter struct {
	name    string
	end     chan struct{}
	looking sync.WaitGroup
	threads map[string]share // by their files
}

// share is a thread's time on the processors.
type share struct{ ran, waited time.Duration }

func startMeter(name string) *meter {
	m := &meter{name: name, end: make(chan struct{}), threads: map[string]share{}}
	m.looking.Go(m.runLook)
	return m
}

// runLook looks again and again, because a thread that has ended reports nothing.
func (m *meter) runLook() {
	every := time.NewTicker(time.Second / 4)
	defer every.Stop()
	for {
		m.look()
		select {
		case <-every.C:
		case <-m.end:
			return
		}
	}
}

func (m *meter) look() {
	children, _ := proctest.Children(os.Getpid(), m.name)
	for _, c := range children {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", c.PID))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has just ended
			}
			var s share
			if _, err := fmt.Sscan(string(text), &s.ran, &s.waited); err == nil {
				m.threads[file] = s
			}
		}
	}
}

// stop returns the sums over all threads.
func (m *meter) stop() (ran, waited time.Duration) {
	close(m.end)
	m.looking.Wait()
	for _, s := range m.threads {
		ran += s.ran
		waited += s.waited
	}
	return ran, waited
}

// Each of three threads that want one processor has it for a third of the time.
func TestMeter(t *testing.T) {
	var all unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	one := 0
	for !all.IsSet(one) {
		one++
	}
	var first unix.CPUSet
	first.Set(one)

	path := filepath.Join(t.TempDir(), "guest-of-test")
	require.NoError(t, proctest.WriteProgram(path, []byte("#!/bin/sh\nwhile :; do :; done\n")))
	m := startMeter("guest-of-test")
	for range 3 {
		cmd := exec.Command(path)
		require.NoError(t, cmd.Start())
		defer cmd.Wait()
		defer cmd.Process.Kill()
		require.NoError(t, unix.SchedSetaffinity(cmd.Process.Pid, &first))
	}
	time.Sleep(2 * time.Second)
	ran, waited := m.stop()
	require.Positive(t, ran)
	require.Greater(t, waited, ran)
}
