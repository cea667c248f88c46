package crashtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/internal/crashpoint"
)

// trigger makes processes reach a point, besides work.
type trigger int

const (
	working  trigger = iota
	respawns         // drivers are killed
	stopping         // the manager is stopped
	upgrades         // the driver is replaced while it is at work
	reloads          // a tenant comes and goes with the policy
)

// plan is how one label is died at.
type plan struct {
	passes  []int // the last one is in the short form
	trigger trigger
	faults  string // of the device
	torn    bool   // the log was left with half a record
	keep    int    // segments of the log; 0: many
	second  bool   // of the driver that waits for its turn, too
	child   int    // which process of its role dies; 0: the first
}

// hang makes one job of each driver hang: only a reset of the function stops it.
const hang = `{"seed": 7, "faults": [{"kind": "hangFunction", "job": 9}]}`

// planOf says how a label is reached. A label that is not named here is reached at work, at
// its first pass and at a later one.
func planOf(label string) plan {
	switch {
	case strings.HasPrefix(label, "manager.start."):
		return plan{passes: []int{1}}
	case strings.HasPrefix(label, "manager.upgrade."), strings.HasPrefix(label, "driver.handover."):
		return plan{passes: []int{1}, trigger: upgrades}
	case strings.HasPrefix(label, "driver.takeover."):
		return plan{passes: []int{1}, trigger: upgrades, child: 2}
	case strings.HasPrefix(label, "manager.reload."), strings.HasPrefix(label, "driver.policy."):
		return plan{passes: []int{1, 2}, trigger: reloads}
	case label == "manager.listen.made":
		return plan{passes: []int{1, 2}}
	case label == "manager.listen.removed", strings.HasPrefix(label, "manager.stop."), strings.HasPrefix(label, "driver.shutdown."):
		return plan{passes: []int{1}, trigger: stopping}
	case strings.HasPrefix(label, "manager.standby."):
		return plan{passes: []int{1, 2}, trigger: respawns}
	case strings.HasPrefix(label, "manager.epoch."), strings.HasPrefix(label, "manager.respawn."), label == "manager.grants.half":
		return plan{passes: []int{1, 3}, trigger: respawns}
	case label == "manager.spawn.cell", label == "manager.spawn.started":
		return plan{passes: []int{1, 4}, trigger: respawns}
	case strings.HasPrefix(label, "manager.dma."):
		return plan{passes: []int{1, 12}}
	case strings.HasPrefix(label, "manager."):
		return plan{passes: []int{1, 5}}
	case label == "audit.open.cut":
		return plan{passes: []int{1}, torn: true}
	case strings.HasPrefix(label, "audit.append."):
		return plan{passes: []int{1, 4}}
	case strings.HasPrefix(label, "audit."):
		return plan{passes: []int{1, 2}, keep: 2}
	case strings.HasPrefix(label, "driver.start."):
		return plan{passes: []int{1}, second: true}
	case strings.HasPrefix(label, "driver.reset."):
		return plan{passes: []int{1}, faults: hang}
	case strings.HasPrefix(label, "gate.start."):
		return plan{passes: []int{1}}
	case strings.HasPrefix(label, "gate."), strings.HasPrefix(label, "driver.attach."), strings.HasPrefix(label, "driver.status."), strings.HasPrefix(label, "driver.close."):
		return plan{passes: []int{1, 4}}
	}
	return plan{passes: []int{1, 23}}
}

// shortPoints is how many labels the short form dies at.
const shortPoints = 8

// TestCrashPoints has each process die at each of its places, under load.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	var points []crashpoint.Point
	rounds, _ := strconv.Atoi(os.Getenv("CAPGPU_CRASH_ROUNDS"))
	for _, l := range crashpoint.Table {
		if only := os.Getenv("CAPGPU_CRASH_LABEL"); !strings.HasPrefix(l.Label, only) {
			continue
		}
		plan := planOf(l.Label)
		passes := plan.passes
		if rounds == 0 {
			passes = passes[len(passes)-1:]
		}
		for _, pass := range passes {
			points = append(points, crashpoint.Point{Label: l.Label, Pass: pass, Child: plan.child})
			if plan.second {
				points = append(points, crashpoint.Point{Label: l.Label, Pass: pass, Child: 2})
			}
			for range rounds - 1 { // at passes of chance, too, where there are many
				if pass < 3 {
					break
				}
				points = append(points, crashpoint.Point{Label: l.Label, Pass: pass + rng.IntN(pass+1)})
			}
		}
	}
	rng.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	if rounds == 0 && os.Getenv("CAPGPU_CRASH_LABEL") == "" {
		points = points[:shortPoints]
	}
	program(t, "device-manager")
	var mu sync.Mutex
	result := map[string]string{}
	t.Run("at", func(t *testing.T) {
		for i, p := range points {
			t.Run(p.String()+"#"+strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				defer func() {
					if t.Failed() {
						mu.Lock()
						defer mu.Unlock()
						result[p.String()] = "FAILED"
					}
				}()
				how := dieAt(t, p, rng64(seed, i))
				mu.Lock()
				defer mu.Unlock()
				result[p.String()] = how
			})
		}
	})
	for _, l := range crashpoint.Table {
		var lines []string
		for p, how := range result {
			if strings.HasPrefix(p, l.Label+":") {
				lines = append(lines, fmt.Sprintf("%-34s %s", p, how))
			}
		}
		slices.Sort(lines)
		for _, line := range lines {
			t.Log(line)
		}
	}
}

// seedOf is that of the environment, or another one each day; it is printed.
func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().Unix() / 86400)
	if text := os.Getenv("CAPGPU_CRASH_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	t.Logf("seed %d (CAPGPU_CRASH_SEED)", seed)
	return seed
}

func rng64(seed uint64, i int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(i)+2)) }

func eventually(t *testing.T, done func() bool, why string, args ...any) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			require.Failf(t, "not in time", why, args...)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// ready waits until the device is.
func (s *stack) ready() {
	s.t.Helper()
	eventually(s.t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), callBound)
		defer cancel()
		c, err := client.Dial(ctx, s.socket())
		if err != nil {
			return !s.running()
		}
		defer c.Close()
		state, err := c.NextStateFor(ctx, 0, 0, 0)
		return err == nil && state.State == client.Ready
	}, "the device is not ready")
	require.True(s.t, s.running(), "device-manager has ended")
}

// upgrade replaces the driver again and again until a process dies at the point.
func (s *stack) upgrade(died func() bool) {
	s.t.Helper()
	eventually(s.t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), callBound)
		defer cancel()
		a, err := client.DialAdmin(ctx, filepath.Join(s.run(), "manager.admin.sock"))
		if err != nil {
			return died()
		}
		defer a.Close()
		_, err = a.Upgrade(ctx, "mock0")
		require.NotErrorIs(s.t, err, context.DeadlineExceeded)
		if err == nil {
			require.False(s.t, died(), "an upgrade of which somebody died is told as done")
			return false
		}
		// The log is read by another goroutine, and may say so later than the answer does.
		for begin := time.Now(); !died() && time.Since(begin) < time.Second; {
			time.Sleep(2 * time.Millisecond)
		}
		return died()
	}, "nobody dies of an upgrade")
}

// guest is the tenant that comes and goes.
const guest = "guest"

// reload adds a tenant to the policy and removes it again and again, until a process dies at
// the point. It ends with a policy without the tenant.
func (s *stack) reload(died func() bool) {
	s.t.Helper()
	defer s.writePolicy("default")
	socket := filepath.Join(s.run(), guest+".sock")
	is := func(there bool) bool {
		_, err := os.Stat(socket)
		return (err == nil) == there || died()
	}
	for begin := time.Now(); !died(); {
		require.Less(s.t, time.Since(begin), patience, "nobody dies of a reload")
		s.writePolicy("default", guest)
		_ = s.cmd.Process.Signal(unix.SIGHUP)
		eventually(s.t, func() bool { return is(true) }, "the tenant does not come")
		ctx, cancel := context.WithTimeout(context.Background(), callBound)
		if c, err := client.Dial(ctx, socket); err == nil {
			if session, err := c.Open(ctx, 0); err == nil { // for it to be ended
				defer session.Close(context.Background())
			}
			defer c.Close()
		}
		cancel()
		s.writePolicy("default")
		_ = s.cmd.Process.Signal(unix.SIGHUP)
		eventually(s.t, func() bool { return is(false) }, "the tenant does not go")
	}
}

// dieAt has the process die at p while clients work, and says what came of it.
func dieAt(t *testing.T, p crashpoint.Point, rng *rand.Rand) string {
	plan := planOf(p.Label)
	s := newStack(t, options{faults: plan.faults, keep: plan.keep, alone: plan.trigger == upgrades})
	if plan.faults != "" {
		s.deadline = 100 * time.Millisecond
	}
	if plan.torn {
		s.start(crashpoint.Point{Label: "audit.append.half", Pass: 3})
		l := s.load(rng, 1, 0)
		<-s.ended
		l.end(t)
	}
	if crashpoint.RoleOf(p.Label) == crashpoint.Manager {
		return managerDiesAt(s, p, plan, rng)
	}
	return childDiesAt(s, p, plan, rng)
}

// died reports whether a process has announced its death at the point.
func (s *stack) died(p crashpoint.Point) bool {
	return strings.Contains(s.log.String(), "crashpoint "+p.Label)
}

func childDiesAt(s *stack, p crashpoint.Point, plan plan, rng *rand.Rand) string {
	t := s.t
	s.start(p)
	s.ready()
	l := s.load(rng, 2, 1)
	if plan.trigger == stopping {
		l.works(t, 2)
		require.NoError(t, s.cmd.Process.Signal(unix.SIGTERM))
		<-s.ended
		require.True(t, s.died(p), "nobody died")
		require.Zero(t, s.cmd.ProcessState.ExitCode(), "an orderly stop")
		s.start(crashpoint.Point{})
	}
	if plan.trigger == upgrades {
		l.works(t, 2)
		s.upgrade(func() bool { return s.died(p) || len(l.faults()) > 0 })
	} else if plan.trigger == reloads {
		l.works(t, 2)
		s.reload(func() bool { return s.died(p) || len(l.faults()) > 0 })
	} else if p.Child == 2 { // its turn comes
		eventually(t, func() bool {
			return l.rounds.Load() > 0 && len(processes(s.program("gpu-mock"))) == 2 || s.died(p) || len(l.faults()) > 0
		}, "nobody waits for its turn")
		s.killDriver()
	}
	eventually(t, func() bool { return s.died(p) || len(l.faults()) > 0 }, "nobody comes by %s", p)
	at := time.Now()
	l.works(t, 4)
	took := time.Since(at)
	l.end(t)
	s.atRest()
	if crashpoint.RoleOf(p.Label) == crashpoint.Driver && plan.trigger != stopping && p.Child != 2 { // a standby is no driver yet, nor is a successor
		eventually(t, func() bool { // the epoch ends when all is taken back
			lines := s.records()
			return rotated(lines) || slices.ContainsFunc(lines, func(line string) bool {
				return strings.HasPrefix(line, "driver.end ") && strings.Contains(line, "exit status "+strconv.Itoa(crashpoint.Status))
			})
		}, "the log does not tell of the death")
	}
	s.stop()
	s.records()
	return l.told(took)
}

// rotated says whether the beginning of the log is gone. A log that is young has nothing yet:
// records wait for others to share their fsync.
func rotated(lines []string) bool {
	return len(lines) > 0 && !strings.HasPrefix(lines[0], "manager.start ")
}

// servedSockets are those of a manager at work.
var servedSockets = []string{"default.sock", "default.capnp.sock", "manager.admin.sock"}

// atRest waits until the manager holds only its own resources.
func (s *stack) atRest() {
	s.t.Helper()
	eventually(s.t, func() bool {
		h := s.held()
		return h["gates"] == 0 && h["drivers"] >= 1
	}, "somebody is still served")
}

func managerDiesAt(s *stack, p crashpoint.Point, plan plan, rng *rand.Rand) string {
	t := s.t
	s.start(p)
	l := s.load(rng, 2, 1)
	switch plan.trigger {
	case respawns:
		eventually(t, func() bool {
			if s.running() && l.rounds.Load() > 0 {
				s.killDriver()
				time.Sleep(50 * time.Millisecond)
			}
			return !s.running() || len(l.faults()) > 0
		}, "the manager does not come by %s", p)
	case upgrades:
		l.works(t, 2)
		s.upgrade(func() bool { return !s.running() || len(l.faults()) > 0 })
	case reloads:
		l.works(t, 2)
		s.reload(func() bool { return !s.running() || len(l.faults()) > 0 })
	case stopping:
		l.works(t, 2)
		require.NoError(t, s.cmd.Process.Signal(unix.SIGTERM))
	}
	eventually(t, func() bool { return !s.running() || len(l.faults()) > 0 }, "the manager does not come by %s", p)
	at := time.Now()
	require.Empty(t, l.faults())
	require.True(t, s.died(p), "nobody died")
	require.Equal(t, crashpoint.Status, s.cmd.ProcessState.ExitCode())
	eventually(t, func() bool { return len(s.processes()) == 0 }, "processes outlive their manager")
	crashed := s.cmd.Process.Pid
	s.start(crashpoint.Point{})
	l.works(t, 4)
	took := time.Since(at)
	l.end(t)
	s.atRest()
	require.ElementsMatch(t, servedSockets, s.sockets())
	dead := s.pids
	s.pids = s.pids[:len(s.pids)-1]
	require.Empty(t, s.cgroups(), "cgroups outlive their manager")
	s.pids = dead
	lines := s.records()
	require.True(t, rotated(lines) || slices.ContainsFunc(lines, func(line string) bool {
		if p.Label == "audit.open.cut" { // it had nothing yet; the one before had
			crashed = s.pids[0]
		}
		return strings.HasPrefix(line, fmt.Sprintf("manager.crashed  pid=%d", crashed))
	}), "the log does not tell of the crash")
	s.stop()
	lines = s.records() // all of them: those of an owner's log may have waited for others
	if p.Label == "audit.append.half" {
		require.True(t, slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "audit.torn ") }), "the log does not tell of the half record")
	}
	return l.told(took)
}
