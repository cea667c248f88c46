package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/records"
	"capgpu/gpu/strikes"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/ring"
)

// Device is one device and all that tenants have of it.
type Device struct {
	cfg     Config
	log     *slog.Logger
	ledger  *ledger.Ledger
	root    *revoke.Node
	reactor *reactor
	records *records.Writer
	opened  time.Time
	loss
	stopped chan struct{} // closed when the reactor has ended
	wg      sync.WaitGroup
	newRing func(ring.Config) (serverRing, error)
	// closeBackend does so once: when the device is lost, or at its end.
	closeBackend func() error
	loading      line // see load.go
	reclaim      *reclaimer
	recordings   atomic.Uint64 // the number of the last list

	end struct {
		begun sync.Once
		over  chan struct{} // closed with closeErr set
	}

	mu sync.Mutex
	// +checklocks:mu
	closeErr []error
	// +checklocks:mu
	tenants map[string]*tenant
	// +checklocks:mu
	sessions map[uint64]*Session
	// +checklocks:mu
	lastSession uint64
	// +checklocks:mu
	lastGroup uint32
}

// loss is the device's, for good.
type loss struct {
	lost    chan struct{} // closed with lostErr set
	lostErr atomic.Pointer[gpuerr.Error]
	isLost  atomic.Bool // lost is closed, or about to be
}

// tenant lives as long as its device, unless the policy takes it away (tenants.go): its
// strikes must survive its sessions. There are as many as the policy has.
type tenant struct {
	name    string
	group   uint32 // of its contexts on the device; nobody else's
	node    *revoke.Node
	account *ledger.Account
	flow    *flow // the reactor's
	loading line

	strikes     strikes.Strikes
	restricted  strikes.Strikes           // of its restricted sessions, since the last that became one of its own; not told to a successor
	bannedUntil atomic.Pointer[time.Time] // nil: not banned
	banReason   atomic.Pointer[string]    // set before bannedUntil

	longest atomic.Int64  // of a submission, in ns, as the policy says now; 0: as each session has it
	openers atomic.Int32  // OpenSession calls
	leaving error         // why the policy has taken it away; guarded by Device.mu
	remains []remains     // of closed sessions, the oldest first; guarded by reclaimer.mu
	wanted  chan struct{} // capacity 1: somebody waits for what remains
}

// New makes a Device and starts its backend.
func New(cfg Config) (*Device, error) {
	if cfg.Backend == nil || cfg.DMA == nil {
		return nil, gpuerr.New(gpuerr.Invalid, "Config needs a Backend and a DMA pool")
	}
	cfg.setDefaults()
	d := &Device{
		cfg: cfg, log: cfg.Log, opened: time.Now(),
		ledger: ledger.New("device", cfg.Limits), root: revoke.NewRoot("device"),
		loss: loss{lost: make(chan struct{})}, stopped: make(chan struct{}),
		newRing: ringsOf(&cfg), loading: newLine(), tenants: map[string]*tenant{}, sessions: map[uint64]*Session{},
	}
	d.end.over = make(chan struct{})
	d.closeBackend = sync.OnceValue(cfg.Backend.Close)
	var err error
	if d.reactor, err = newReactor(d); err != nil {
		return nil, errors.Join(err, cfg.Backend.Close())
	}
	d.records = records.New(cfg.Audit, d.log)
	d.reclaim = &reclaimer{log: d.log, idle: d.forget}
	if err := cfg.Backend.Start(d.reactor); err != nil {
		d.reactor.poll.close()
		return nil, errors.Join(fmt.Errorf("start the backend: %w", err), cfg.Backend.Close())
	}
	d.wg.Go(func() {
		defer close(d.stopped)
		d.reactor.run()
	})
	d.wg.Go(d.records.Run)
	return d, nil
}

// age is the time since the device was opened in this epoch. That a successor has taken it
// over changes nothing but that the time between the two is not counted.
func (d *Device) age() time.Duration { return max(0, time.Since(d.opened)) }

func (c *Config) setDefaults() {
	if c.Limits == (ledger.Limits{}) {
		c.Limits = ledger.NoLimits()
	}
	c.Limits[ledger.Descriptors] = min(c.Limits[ledger.Descriptors], descriptorLimit(processFiles))
	orElse(&c.HangBound, DefaultHangBound)
	orElse(&c.DefaultDeadline, DefaultDeadline)
	if _, ok := c.Backend.(backend.Progresser); ok {
		orElse(&c.MaxDeadline, DefaultMaxProgress)
	}
	orElse(&c.MaxDeadline, DefaultMaxDeadline)
	c.DefaultDeadline = min(c.DefaultDeadline, c.MaxDeadline)
	orElse(&c.MaxBufferBytes, DefaultMaxBufferBytes)
	orElse(&c.MaxQueueEntries, DefaultMaxQueueEntries)
	orElse(&c.MaxArgBytes, DefaultMaxArgBytes)
	orElse(&c.Strikes.Limit, DefaultStrikeLimit)
	orElse(&c.Strikes.Window, DefaultStrikeWindow)
	orElse(&c.Strikes.Ban, DefaultBan)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Lost is closed when the device is lost; Err then says why.
func (d *Device) Lost() <-chan struct{} { return d.lost }

// Err is nil while the device is not lost.
func (d *Device) Err() error {
	if err := d.lostErr.Load(); err != nil {
		return err
	}
	return nil
}

// setLost reports whether the device was not lost before.
func (d *Device) setLost(err *gpuerr.Error) (first bool) {
	if first = d.lostErr.CompareAndSwap(nil, err); first {
		d.isLost.Store(true)
		close(d.lost)
	}
	return first
}

// Gone says that the device is no longer there: everything ends as deviceLost. It
// does not wait for that.
func (d *Device) Gone(reason string) { d.reactor.lose(reason) }

// memoryLost is what an unmap that failed means: the device may still reach
// memory that was taken back, so nothing of it can be used again.
func (d *Device) memoryLost(err error) {
	d.reactor.lose("device memory could not be taken back: " + err.Error())
}

func setLimits(a *ledger.Account, l ledger.Limits) {
	for c := range l {
		a.SetLimit(ledger.Class(c), l[c])
	}
}

// limitsText names what is limited: "deviceMemory=1048576 sessions=2".
func limitsText(l ledger.Limits) string {
	var b strings.Builder
	for c, n := range l {
		if n != ledger.Unlimited {
			fmt.Fprintf(&b, " %v=%d", ledger.Class(c), n)
		}
	}
	if b.Len() == 0 {
		return "unlimited"
	}
	return b.String()[1:]
}

// sessionList is a snapshot, oldest first.
func (d *Device) sessionList() []*Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*Session, 0, len(d.sessions))
	for _, s := range d.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Session) int { return int(int64(a.id - b.id)) })
	return all
}

// Check verifies every invariant of the books. It is meant for tests and for
// operators, at any time.
func (d *Device) Check() error {
	if err := d.ledger.Check(); err != nil {
		return err
	}
	var err error
	d.reactor.mail.call(func() { err = d.reactor.sent.check(d.reactor.limits.MaxJobs) })
	return err
}

// Close closes all sessions, then the backend, and checks the books. Sessions that were
// closed before are reclaimed by then, too. When ctx ends first it returns ctx's error and
// the closing goes on.
func (d *Device) Close(ctx context.Context) error {
	d.end.begun.Do(func() { go d.close() })
	select {
	case <-d.end.over:
		d.mu.Lock()
		defer d.mu.Unlock()
		return errors.Join(d.closeErr...)
	case <-ctx.Done():
		return fmt.Errorf("close the device: %w", ctx.Err())
	}
}

func (d *Device) close() {
	errs := []error{d.root.Close(gpuerr.New(gpuerr.Revoked, "the device is being closed"))}
	// Nothing is left that could add work; a job that is stuck was reset away.
	d.reclaim.work.Wait()
	d.reactor.end()
	<-d.stopped // its last word is still recorded
	errs = append(errs, d.closeBackend())
	d.records.Close()
	d.wg.Wait()
	d.mu.Lock()
	tenants := slices.Collect(maps.Values(d.tenants)) // a late one holds nothing: the tree is closed
	d.mu.Unlock()
	for _, t := range tenants {
		errs = append(errs, t.account.Close())
	}
	errs = append(errs, d.Check(), d.ledger.Root().Zero())
	d.mu.Lock()
	d.closeErr = errs
	d.mu.Unlock()
	close(d.end.over)
}
