package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

// A driver that stands still is found by its silence, and replaced, and its waiting clients
// are told.
func TestStoppedDriverIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStack(t, options{})
	s.start(crashpoint.Point{})
	s.ready()
	l := s.load(rand.New(rand.NewPCG(1, 12)), 2, 1)
	l.works(t, 2)
	pid := s.driver()
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	eventually(t, func() bool { return unix.Kill(pid, 0) != nil }, "a stopped driver is not replaced")
	l.works(t, 2)
	l.end(t)
	s.atRest()
	eventually(t, func() bool {
		return slices.ContainsFunc(s.records(), func(line string) bool {
			return strings.HasPrefix(line, "driver.end ") && strings.Contains(line, "did not answer")
		})
	}, "the log does not tell why")
	s.stop()
}

// No descriptors are left in the manager, and then none in the driver: each client is
// served or refused, by a typed error, and when there are some again the service is whole.
func TestNoDescriptors(t *testing.T) {
	t.Parallel()
	for _, who := range []string{crashpoint.Manager, crashpoint.Driver} {
		t.Run(who, func(t *testing.T) {
			s := newStack(t, options{})
			s.scarce = true
			s.start(crashpoint.Point{})
			s.ready()
			pid := s.cmd.Process.Pid
			if who == crashpoint.Driver {
				pid = s.driver()
			}
			l := s.load(rand.New(rand.NewPCG(1, 14)), 6, 1)
			l.works(t, 4)
			before := tighten(t, pid, 1)
			eventually(t, func() bool { return l.scarcity.Load() > 8 || len(l.faults()) > 0 }, "nothing was scarce")
			require.True(t, s.running())
			if unix.Kill(pid, 0) == nil { // else the driver without descriptors was replaced
				require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil))
			}
			l.works(t, 8)
			l.end(t)
			s.atRest()
			s.stop()
			s.records()
		})
	}
}

// tighten leaves a process so many free descriptors, and returns its former limit.
func tighten(t *testing.T, pid, more int) (before unix.Rlimit) {
	t.Helper()
	free := 0 // the lowest number that is
	for ; more > 0; free++ {
		if _, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, free)); err != nil {
			more--
		}
	}
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before))
	less := unix.Rlimit{Cur: uint64(free), Max: before.Max}
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &less, nil))
	return before
}

// The disk is full: nothing is granted without a record, work goes on, and when there is room
// again the log is whole and counts the missing records.
func TestNoSpaceForTheLog(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := unix.Mount("capgpu", disk, "tmpfs", 0, "size=96k"); errors.Is(err, unix.EPERM) {
		require.NotZero(t, os.Geteuid(), "root may mount")
		t.Skip("mounting takes root")
	} else {
		require.NoError(t, err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	s := newStack(t, options{audit: filepath.Join(disk, "audit.log")})
	t.Cleanup(s.kill) // before the disk goes
	s.scarce = true
	s.start(crashpoint.Point{})
	s.ready()
	l := s.load(rand.New(rand.NewPCG(1, 15)), 2, 0)
	eventually(t, func() bool { return l.scarcity.Load() > 0 || len(l.faults()) > 0 }, "the log never was full")
	require.True(t, s.running())
	require.NoError(t, unix.Mount("capgpu", disk, "tmpfs", unix.MS_REMOUNT, "size=16m"))
	l.works(t, 4)
	l.end(t)
	s.atRest()
	s.stop()
	require.True(t, slices.ContainsFunc(s.records(), func(line string) bool { return strings.HasPrefix(line, "audit.lost ") }),
		"the log does not tell that records are missing")
}

// A session that is restricted while it is closed, or while its driver dies: the transferred
// session is dead with its parent, or the transfer was refused.
func TestRevokeRacesTransfer(t *testing.T) {
	t.Parallel()
	s := newStack(t, options{})
	s.start(crashpoint.Point{})
	s.ready()
	rng := rand.New(rand.NewPCG(seedOf(t), 24))
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	conn, err := client.Dial(ctx, s.socket())
	require.NoError(t, err)
	defer conn.Close()
	open := func() (parent *client.Session) {
		eventually(t, func() bool { parent, err = conn.Open(ctx, 0); return err == nil }, "no session: %v", err)
		return parent
	}
	passed := 0
	for i := range 40 {
		parent := open()
		kill, delay := i%8 == 7, time.Duration(rng.IntN(300))*time.Microsecond
		driver := 0
		if kill {
			driver = s.driverOf(parent.Epoch())
		}
		ended := make(chan error, 1)
		go func() {
			time.Sleep(delay)
			if kill {
				_ = unix.Kill(driver, unix.SIGKILL)
				select {
				case <-parent.Done():
				case <-ctx.Done():
				}
			}
			ended <- parent.Close(ctx)
		}()
		var below []*client.Session
		for {
			child, err := parent.Restrict(ctx, client.Policy{Facet: client.FacetMemory})
			if err != nil {
				require.True(t, isEnd(err), "%v", err)
				break
			}
			below = append(below, child)
			if len(below) == 16 {
				break
			}
		}
		require.NoError(t, <-ended)
		for _, child := range below {
			passed++
			_, err := child.CreateBuffer(ctx, 4096, client.Storage)
			require.True(t, err != nil && isEnd(err), "a session outlives the one that it was made from: %v", err)
			require.NoError(t, child.Close(ctx))
		}
	}
	require.NotZero(t, passed, "nothing was ever transferred")
	require.NoError(t, conn.Close())
	s.atRest()
	s.stop()
	s.records()
}

// A manager that is killed while it replaces a driver, again and again: each time all of
// it goes, and the next one serves.
func TestManagerKilledWhileItRespawns(t *testing.T) {
	t.Parallel()
	s := newStack(t, options{})
	rng := rand.New(rand.NewPCG(seedOf(t), 25))
	s.start(crashpoint.Point{})
	l := s.load(rng, 2, 1)
	const times = 3
	for range times {
		l.works(t, 2)
		s.killDriver()
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
		s.kill()
		eventually(t, func() bool { return len(s.processes()) == 0 }, "processes outlive their manager")
		s.start(crashpoint.Point{})
	}
	l.works(t, 2)
	l.end(t)
	s.atRest()
	crashes := 0
	for _, line := range s.records() {
		if strings.HasPrefix(line, "manager.crashed ") {
			crashes++
		}
	}
	require.Equal(t, times, crashes)
	s.stop()
}

// isEnd says whether an error is that of something which has ended.
func isEnd(err error) bool { return ended(err) || gpuerr.CodeOf(err) == gpuerr.Stale }
