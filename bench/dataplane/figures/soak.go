package figures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/churn"
	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/service"
)

// SoakOptions set the amount and the duration.
type SoakOptions struct {
	Bin      string
	For      time.Duration
	Rounds   int // at least
	Ops      int // of a client in each round
	Sessions int // open most of the time
	Buffers  int // in all of them
	Seed     uint64
	Say      func(format string, args ...any)
}

// SoakResult is the result of a soak.
type SoakResult struct {
	Ops, Looks             int
	Kills                  map[string]int // by the kind of the killed process
	Bytes, Descriptors     float64        // the largest differences between ledger and kernel
	PeakSessions, PeakKept int            // sessions and buffers at the fullest quiet point
	Memory                 map[string]Slope
	Longest                time.Duration // of a look
}

// Slope is the memory of a process at moments with the intended number of buffers:
// medians of the first and of the last quarter, after the first fifth.
type Slope struct{ First, Last float64 }

// The allowed growth of a process: memory that a runtime keeps for later is no
// leak.
const (
	slackPart  = 0.15
	slackBytes = 16 << 20
)

// Flat reports whether it did not grow.
func (s Slope) Flat() bool { return s.Last <= s.First*(1+slackPart)+slackBytes }

// Good reports whether everything is right.
func (r *SoakResult) Good() bool {
	for _, s := range r.Memory {
		if !s.Flat() {
			return false
		}
	}
	return r.Bytes == 0 && r.Descriptors == 0
}

// Print shows the table.
func (r *SoakResult) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "operations\t%d\n", r.Ops)
	fmt.Fprintf(t, "at the fullest\t%d sessions, %d buffers\n", r.PeakSessions, r.PeakKept)
	for _, what := range soakVictims {
		fmt.Fprintf(t, "kill -9 of a %s\t%d\n", what, r.Kills[what])
	}

	fmt.Fprintf(t, "comparisons of ledger and kernel\t%d, the longest %v\n", r.Looks, r.Longest.Round(time.Millisecond))
	fmt.Fprintf(t, "difference\t%.0f bytes, %.0f descriptors\n", r.Bytes, r.Descriptors)
	for _, who := range []string{soakManager, soakDriver} {
		s := r.Memory[who]
		flat := "flat"
		if !s.Flat() {
			flat = "GROWS"
		}
		fmt.Fprintf(t, "own memory of the %s, first and last quarter\t%.1f MiB, %.1f MiB (%s)\n", who, s.First/(1<<20), s.Last/(1<<20), flat)
	}

	_ = t.Flush() // the reader may be gone
}

const (
	soakWorkers = 8 // processes that speak the ring protocol,
	soakGates   = 4 // and that speak Cap'n Proto
	soakManager = "device-manager"
	soakDriver  = "driver"
)

// soakVictims are killed: see victim.
var soakVictims = []string{"client", "gate", "client of a gate", "driver"}

// Soak makes clients create, pass on, revoke and free at random. It kills clients,
// gates and drivers, and compares after each kill the ledger, the kernel and the
// clients' holdings.
func Soak(ctx context.Context, o SoakOptions) (_ *SoakResult, err error) {
	if err := raiseFiles(); err != nil {
		o.Say("open files: %v", err)
	}

	svc, err := service.Start(o.Bin, peers.ServerCPU, service.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()

	s := &soak{SoakOptions: o, result: &SoakResult{Kills: map[string]int{}, Memory: map[string]Slope{}}, rss: map[string][]float64{}}
	each := churn.Size{Sessions: max(o.Sessions/soakWorkers, 2), Total: max(o.Buffers/soakWorkers, 1), Below: 2}
	each.Trees = each.Sessions / 2
	each.Buffers = 2*each.Total/each.Sessions + 1 // of one, at most
	var sizes []churn.Size
	for range soakWorkers {
		sizes = append(sizes, each)
	}

	for range soakGates {
		sizes = append(sizes, churn.Size{Buffers: 48, Gate: true})
	}

	random := rand.New(rand.NewPCG(o.Seed, 0))
	s.book = newBook(&Env{Options: Options{Say: o.Say}}, svc, sizes)
	s.book.seed = random.Uint64
	defer s.killAll()

	if err := s.run(ctx); err != nil {
		return s.result, fmt.Errorf("after %d operations: %w; the service said:\n%s", s.ops, err, svc.Log())
	}

	return s.result, nil
}

type soak struct {
	SoakOptions
	*book
	result *SoakResult
	rss    map[string][]float64 // of each sample at the intended fill
	fulls  int                  // samples at the intended fill
	said   time.Time
	began  time.Time
}

const soakProgress = 10 * time.Second

func (s *soak) run(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}

	s.began = time.Now()
	for n := 0; n < max(s.Rounds, 1) || time.Since(s.began) < s.For; n++ {
		if err := s.begin(s.SoakOptions.Ops); err != nil {
			return err
		}
		held, err := s.await(-1)
		if err != nil {
			return err
		}
		if err := s.compare(ctx, held); err != nil {
			return err
		}
		if err := s.killOne(ctx, s.victim(held, n)); err != nil {
			return fmt.Errorf("after round %d: %w", n, err)
		}
	}

	if err := s.finish(ctx); err != nil {
		return err
	}

	s.sum()
	return nil
}

// victim chooses the process to kill: one with little each time, one with much when
// everything is there.
func (s *soak) victim(held churn.Holds, n int) string {
	if s.full(held) {
		s.fulls++
		switch s.fulls % 5 {
		case 2:
			return "client"
		case 4:
			return soakDriver
		}
	}
	if n%2 == 0 {
		return "gate"
	}
	return "client of a gate"
}

// compare compares, and records the current amounts.
func (s *soak) compare(ctx context.Context, held churn.Holds) error {
	start := time.Now()
	if err := s.look(ctx, held); err != nil {
		return err
	}

	s.result.Longest = max(s.result.Longest, time.Since(start))
	if held.Buffers > s.result.PeakKept {
		s.result.PeakSessions, s.result.PeakKept = held.Sessions, held.Buffers
	}

	driver, err := s.svc.DriverPID()
	if err != nil {
		return err
	}

	now := map[string]float64{}
	for who, pid := range map[string]int{soakManager: s.svc.ManagerPID(), soakDriver: driver} {
		if now[who], err = service.Anonymous(pid); err != nil {
			return err
		}
		if s.full(held) {
			s.rss[who] = append(s.rss[who], now[who])
		}
	}

	if time.Since(s.said) > soakProgress {
		s.said = time.Now()
		s.Say("%6s %9d operations %5d sessions %6d buffers %4d kills %4d looks: %.0f bytes, %.0f descriptors; manager %.1f MiB, driver %.1f MiB",
			time.Since(s.began).Round(time.Second), s.ops, held.Sessions, held.Buffers, s.kills, s.looks, s.bytes, s.descriptors, now[soakManager]/(1<<20), now[soakDriver]/(1<<20))
	}

	return nil
}

// full reports whether the amounts are about as intended.
func (s *soak) full(held churn.Holds) bool {
	return held.Buffers >= s.Buffers*9/10 && held.Sessions >= s.Sessions*9/10
}

// killOne kills a process while all work.
func (s *soak) killOne(ctx context.Context, what string) error {
	if err := s.begin(min(killOps, s.SoakOptions.Ops)); err != nil {
		return err
	}

	time.Sleep(time.Duration(s.seed() % uint64(5*time.Millisecond)))
	victim := -1
	var pid int
	var err error
	switch what {
	case "client":
		victim = s.kills % soakWorkers
	case "client of a gate":
		victim = soakWorkers + s.kills%soakGates
	case "gate":
		pid, err = s.svc.GatePID()
	default:
		pid, err = s.svc.DriverPID()
	}

	if err != nil {
		return err
	}

	if victim >= 0 {
		s.workers[victim].Kill()
	} else if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return err
	}

	s.kills++
	s.result.Kills[what]++
	held, err := s.await(victim)
	if err != nil {
		return err
	}

	if victim >= 0 {
		if err := s.start(victim); err != nil {
			return err
		}
	}

	if what == soakDriver {
		if err := s.svc.AwaitReady(startTimeout); err != nil {
			return err
		}
	}

	return s.look(ctx, held)
}

// sum fills in the final results.
func (s *soak) sum() {
	s.result.Ops, s.result.Looks, s.result.Bytes, s.result.Descriptors = s.ops, s.looks, s.bytes, s.descriptors
	for who, all := range s.rss {
		if len(all) == 0 {
			continue
		}
		all = all[len(all)/5:] // until then they grow to their size
		quarter := max(len(all)/4, 1)
		s.result.Memory[who] = Slope{First: paired.Median(all[:quarter]), Last: paired.Median(all[len(all)-quarter:])}
	}
}
