package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"capgpu/internal/crashpoint"
)

// standby keeps the process of a device's next driver, so that after a driver's death no
// process has to be spawned, confined and warmed up first.
//
//	order(true) ─► spawn ─► sent its first byte, confined ─► take ─► promoted: a driver
//	   ▲                │                 │
//	   └── back-off ◄───┴── it dies, or ──┘ the program on the disk has changed
//
// A standby holds no grants and drives no device: its links are not served, and its death is
// no death of the device. It has a user, a cgroup and namespaces of its own, as any driver.
// It gets its grants as every driver does, after the one before it is reaped and the function
// has stopped.
type standby struct {
	d      *device
	cancel context.CancelFunc
	done   chan struct{} // closed when runStandby has returned
	poked  chan struct{} // capacity 1: runStandby should look
	left   error         // the part that could not be ended; read it after done

	mu sync.Mutex
	// +checklocks:mu
	wanted bool // a driver is ready, so that another one is likely to start, too
	// +checklocks:mu
	process *driverProcess // nil: none
	// +checklocks:mu
	spoken chan struct{} // closed when the process has sent its first byte and is confined
}

const (
	// standbyPause is how long a standby is not spawned after a driver has become ready: the
	// driver's clients get the CPU first.
	standbyPause = 20 * time.Millisecond
	// standbyPatience is how long a driver's death waits for a standby that exists but has
	// not sent its first byte.
	standbyPatience = 2 * time.Second
	// standbyTick is how often the program on the disk is checked.
	standbyTick = 5 * time.Second
	// standbyRoom is the available memory of the host that a standby needs; it is checked
	// every standbyTick.
	standbyRoom = 256 << 20
)

// newStandby returns a standby that keeps no process unless the policy wants one.
func newStandby(d *device) *standby {
	ctx, cancel := context.WithCancel(context.Background())
	s := &standby{d: d, cancel: cancel, done: make(chan struct{}), poked: make(chan struct{}, 1)}
	if !d.policy.Respawn.Standby || d.drivers.actors != nil {
		close(s.done)
		return s
	}
	go s.runStandby(ctx)
	return s
}

// close ends the process, if there is one, and returns the part that could not be ended.
// Idempotent.
func (s *standby) close() error {
	s.cancel()
	<-s.done
	return s.left
}

// order says whether a process is wanted. An existing one stays.
func (s *standby) order(wanted bool) {
	s.mu.Lock()
	s.wanted = wanted
	s.mu.Unlock()
	s.poke()
}

func (s *standby) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

// take returns the process, which the caller then owns, or nil if there is none that can be
// promoted.
func (s *standby) take(ctx context.Context) *driverProcess {
	s.mu.Lock()
	p, spoken := s.process, s.spoken
	s.mu.Unlock()
	if p == nil {
		return nil
	}

	timer := time.NewTimer(standbyPatience)
	defer timer.Stop()
	select {
	case <-spoken:
	case <-p.child.exited:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return nil
	}

	defer s.poke()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != p || s.stale(p) {
		return nil
	}

	select {
	case <-p.child.exited:
		return nil
	default:
	}

	s.process = nil
	crashpoint.Here("manager.standby.taken")
	return p
}

// stale reports whether a driver spawned now would be another program.
func (s *standby) stale(p *driverProcess) bool {
	now, err := programOf(s.d.driver(), s.d.driverArgs())
	return err != nil || !now.same(p.from)
}

func (s *standby) runStandby(ctx context.Context) {
	defer close(s.done)
	respawn := backoff{policy: s.d.policy.Respawn}
	for pause := standbyPause; s.awaitOrder(ctx) && sleep(ctx, pause); {
		pause = standbyPause
		if !roomFor(standbyRoom) {
			pause = standbyTick
			continue
		}
		err := s.keepOne(ctx)
		switch {
		case errors.As(err, new(*remains)):
			s.left = err
			s.d.log.Warn("no standby is kept any more", "err", err)
			return
		case errors.Is(err, errStale):
			s.d.log.Info("the standby is replaced", "why", err)
		case err != nil && ctx.Err() == nil:
			pause, _ = respawn.died(time.Now(), 0, true) // ever slower, and never given up
			pause = max(pause, standbyPause)
			s.d.log.Warn("standby lost", "err", err, "delay", pause)
		}
	}
}

// awaitOrder returns true when a process is wanted, false when ctx ends.
func (s *standby) awaitOrder(ctx context.Context) bool {
	for {
		s.mu.Lock()
		wanted := s.wanted
		s.mu.Unlock()
		if wanted {
			return ctx.Err() == nil
		}
		select {
		case <-s.poked:
		case <-ctx.Done():
			return false
		}
	}
}

var errStale = errors.New("the driver's program is another one now")

// keepOne spawns a process and keeps it until it is taken (nil), it dies, it is stale or ctx
// ends.
func (s *standby) keepOne(ctx context.Context) error {
	p, err := s.d.spawnDriver()
	if err != nil {
		return err
	}

	crashpoint.Here("manager.standby.spawned")
	s.d.record("driver.standby", fmt.Sprintf("%s pid=%d path=%s", s.d.name, p.child.pid(), p.from.path))
	spoken, word := make(chan struct{}), make(chan error, 1)
	s.mu.Lock()
	s.process, s.spoken = p, spoken
	s.mu.Unlock()
	go func() { word <- p.awaitWord() }()
	why, listening := s.watch(ctx, p, word, spoken)
	if why == nil {
		return nil
	}

	s.mu.Lock()
	taken := s.process != p
	s.process = nil
	s.mu.Unlock()
	if taken { // meanwhile
		return nil
	}

	err = p.close(stopPatience)
	if listening {
		<-word // its link is closed
	}
	if err != nil {
		return err
	}

	return why
}

// watch returns nil when the process was taken, or why it cannot be taken any more, and
// whether its first byte is still awaited.
func (s *standby) watch(ctx context.Context, p *driverProcess, word <-chan error, spoken chan<- struct{}) (why error, listening bool) {
	late := time.NewTimer(s.d.cfg.ReadyTimeout)
	defer late.Stop()
	tick := time.NewTicker(standbyTick)
	defer tick.Stop()
	listening = true
	for {
		select {
		case err := <-word:
			listening = false
			if err == nil {
				err = p.child.checkConfined(s.d.log, slog.LevelInfo, "standby", s.d.name)
			}
			if err != nil {
				return s.exitOr(p, err), false
			}
			p.checked = true
			late.Stop()
			close(spoken)
			s.d.log.Info("standby waits", "pid", p.child.pid())
		case <-late.C:
			return fmt.Errorf("it said nothing for %v", s.d.cfg.ReadyTimeout), listening
		case <-p.child.exited:
			return fmt.Errorf("it died: %w", p.child.err), listening
		case <-tick.C:
		case <-s.poked:
		case <-ctx.Done():
			return ctx.Err(), listening
		}
		s.mu.Lock()
		taken := s.process != p
		s.mu.Unlock()
		switch {
		case taken:
			return nil, false
		case s.stale(p):
			return errStale, listening
		}
	}
}

// exitOr returns the exit of the process as the reason if there is one: it tells more.
func (s *standby) exitOr(p *driverProcess, err error) error {
	if newGrace(exitGrace).wait(p.child.exited) {
		return fmt.Errorf("it died: %w", p.child.err)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) (slept bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// roomFor reports whether the host has that much memory available (proc(5), /proc/meminfo),
// or does not tell.
func roomFor(bytes uint64) bool {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return true
	}
	_, after, found := strings.Cut(string(text), "MemAvailable:")
	var kib uint64
	if _, err := fmt.Sscan(after, &kib); !found || err != nil {
		return true
	}
	return kib >= bytes>>10
}
