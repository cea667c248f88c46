package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/churn"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/service"
)

// accounting is the result of account.
type accounting struct {
	ops, kills, looks int
	// The largest differences that did not disappear by themselves.
	bytes, descriptors float64
}

const (
	workers = 4
	// ownKills is the number of kills, unless -kills is set.
	ownKills = 20
)

// book is a service under churn.
type book struct {
	e        *Env
	svc      *service.Service
	sizes    []churn.Size // of the workers
	workers  []*churn.Process
	baseline int // descriptors of a driver without sessions
	done     []int
	seed     func() uint64
	accounting
}

func newBook(e *Env, svc *service.Service, sizes []churn.Size) *book {
	return &book{e: e, svc: svc, sizes: sizes, workers: make([]*churn.Process, len(sizes)), done: make([]int, len(sizes)), seed: seed}
}

// start starts a worker, also one that was killed.
func (b *book) start(i int) (err error) {
	socket := b.svc.Socket
	if b.sizes[i].Gate {
		socket = b.svc.GateSocketOf(service.Tenant)
	}
	b.done[i] = 0
	b.workers[i], err = churn.Start(socket, b.seed(), b.sizes[i])
	return err
}

// account makes workers do random operations, kills a worker or the driver now and
// then, and checks after each kill whether ledger, kernel and workers agree. It has
// a service of its own, without other users.
func account(ctx context.Context, e *Env) (a accounting, err error) {
	svc, err := service.Start(e.Bin, peers.ServerCPU, service.Options{})
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()

	b := newBook(e, svc, slices.Repeat([]churn.Size{churn.Usual}, workers))
	defer b.killAll()
	if err := b.open(ctx); err != nil {
		return a, err
	}

	end := time.Now().Add(e.Longest * 6 / 10)
	kills := e.Kills
	if kills < 0 {
		kills = ownKills
	}

	rounds := max(kills, 1)
	for n := range rounds {
		if err := b.round(ctx, e.Ops/rounds/workers, n); err != nil {
			return b.accounting, fmt.Errorf("after %d operations and %d kills: %w; the service said:\n%s", b.ops, b.kills, err, svc.Log())
		}
		if time.Now().After(end) {
			e.Say("P12: the time is up after %d operations and %d kills", b.ops, b.kills)
			break
		}
	}

	return b.accounting, b.finish(ctx)
}

func (b *book) open(ctx context.Context) (err error) {
	if b.baseline, err = b.idleDescriptors(); err != nil {
		return err
	}
	for i := range b.workers {
		if err = b.start(i); err != nil {
			return err
		}
	}
	return b.look(ctx, churn.Holds{})
}

// idleDescriptors is the number of a driver's descriptors without sessions, once it
// has closed those of its start: when the number has not changed for a while.
func (b *book) idleDescriptors() (n int, err error) {
	const while = settle / 10
	began := time.Now()
	for since := began; time.Since(since) < while; time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > settle {
			return 0, fmt.Errorf("the number of descriptors of a driver without sessions, %d now, still changes after %v", n, settle)
		}
		driver, err := b.kernel()
		if err != nil {
			return 0, err
		}
		if driver.Descriptors != n {
			n, since = driver.Descriptors, time.Now()
		}
	}
	return n, nil
}

// round lets all workers work, compares, and kills a process while the others
// continue.
func (b *book) round(ctx context.Context, n, number int) error {
	if err := b.begin(n); err != nil {
		return err
	}

	held, err := b.await(-1)
	if err != nil {
		return err
	}
	if err := b.look(ctx, held); err != nil || b.e.Kills == 0 {
		return err
	}
	if err := b.begin(killOps); err != nil {
		return err
	}

	time.Sleep(time.Duration(seed() % uint64(5*time.Millisecond)))
	victim := -1
	if b.kills++; number%2 == 0 {
		pid, err := b.svc.DriverPID()
		if err != nil {
			return err
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return err
		}
	} else {
		victim = number / 2 % workers
		b.workers[victim].Kill()
	}

	if held, err = b.await(victim); err != nil {
		return err
	}

	if victim >= 0 {
		if err = b.start(victim); err != nil {
			return err
		}
	} else if err := b.svc.AwaitReady(startTimeout); err != nil {
		return err
	}

	return b.look(ctx, held)
}

const (
	startTimeout = 20 * time.Second
	// killOps are in progress at a kill.
	killOps = 200
)

func (b *book) begin(n int) error {
	for _, w := range b.workers {
		if err := w.Begin(n); err != nil {
			return err
		}
	}
	return nil
}

// await adds up the holdings of all workers but one.
func (b *book) await(but int) (sum churn.Holds, err error) {
	for i, w := range b.workers {
		if i == but {
			continue
		}
		h, err := w.Await()
		if err != nil {
			return sum, err
		}
		b.ops += h.Ops - b.done[i]
		b.done[i] = h.Ops
		sum.Bytes, sum.Buffers, sum.Queues, sum.Sessions = sum.Bytes+h.Bytes, sum.Buffers+h.Buffers, sum.Queues+h.Queues, sum.Sessions+h.Sessions
	}
	return sum, nil
}

// settle bounds the time in which the service notices that a process is gone.
const settle = 3 * time.Second

// look compares. Right after a kill the service may still be at work, so only
// lasting differences count.
func (b *book) look(ctx context.Context, held churn.Holds) error {
	b.looks++
	var bytes, descriptors float64
	for end := time.Now().Add(settle); ; time.Sleep(2 * time.Millisecond) {
		var why string
		var err error
		if bytes, descriptors, why, err = b.differences(ctx, held); err == nil && bytes == 0 && descriptors == 0 {
			return nil
		}
		if time.Now().After(end) {
			if err != nil {
				return err
			}
			b.e.Say("P12: %s", why)
			break
		}
	}

	b.bytes, b.descriptors = max(b.bytes, bytes), max(b.descriptors, descriptors)
	return nil
}

const (
	dmaName = "capgpu-dma"
	// zeroedName is memory that the manager made in advance. Until a driver has it,
	// it is charged to the device and to no tenant.
	zeroedName = "capgpu-dma-zeroed"
	// spareMost bounds that memory.
	spareMost = 128 << 20
	// The driver's descriptors for a session and for a queue: docs/wire.md.
	sessionDescriptors, queueDescriptors = 1, 3
)

// differences compares the clients' holdings, the ledger, and the kernel's view of
// the driver and of the manager.
func (b *book) differences(ctx context.Context, held churn.Holds) (bytes, descriptors float64, why string, err error) {
	ledger, err := b.ledger(ctx)
	if err != nil {
		return 0, 0, "", err
	}

	driver, err := b.kernel()
	if err != nil {
		return 0, 0, "", err
	}

	manager, err := service.HoldingsOf(b.svc.ManagerPID())
	if err != nil {
		return 0, 0, "", err
	}

	pieces, allocated := dma(driver)
	spare := unheld(manager, driver)
	_, managed := dma(manager)
	for _, other := range []float64{allocated, managed, float64(held.Bytes)} {
		bytes = max(bytes, math.Abs(ledger-other))
	}

	expected := b.baseline + sessionDescriptors*held.Sessions + queueDescriptors*held.Queues + pieces
	descriptors = math.Abs(float64(driver.Descriptors - expected))
	if spare > spareMost {
		bytes = max(bytes, spare)
	}

	why = fmt.Sprintf("ledger %.0f B, pages of the driver %.0f B, of the manager %.0f B and %.0f B spare, clients %d B; descriptors %d, expected %d (%d sessions, %d queues, %d pieces of memory)",
		ledger, allocated, managed, spare, held.Bytes, driver.Descriptors, expected, held.Sessions, held.Queues, pieces)
	return bytes, descriptors, why, nil
}

// unheld subtracts the spare memory from the manager's memory, and returns its
// size.
func unheld(manager, driver service.Holdings) (bytes float64) {
	for inode, m := range manager.Memories {
		if _, handed := driver.Memories[inode]; m.Name == zeroedName && !handed {
			bytes += float64(m.Allocated)
			delete(manager.Memories, inode)
		}
	}
	return bytes
}

// dma counts the pieces of DMA memory, and the bytes of them that have pages.
func dma(h service.Holdings) (pieces int, allocated float64) {
	for _, m := range h.Memories {
		if strings.HasPrefix(m.Name, dmaName) {
			pieces++
			allocated += float64(m.Allocated)
		}
	}
	return pieces, allocated
}

func (b *book) kernel() (service.Holdings, error) {
	pid, err := b.svc.DriverPID()
	if err != nil {
		return service.Holdings{}, err
	}
	return service.HoldingsOf(pid)
}

// ledger is the device memory that all tenants are charged.
func (b *book) ledger(ctx context.Context) (bytes float64, err error) {
	text, err := b.svc.Status(ctx)
	if err != nil {
		return 0, err
	}

	var status struct {
		Tenants []struct {
			Budget []struct {
				Class          string
				Reserved, Used uint64
			}
		}
	}

	if err := json.Unmarshal(text, &status); err != nil {
		return 0, err
	}

	for _, t := range status.Tenants {
		for _, entry := range t.Budget {
			if entry.Class == "deviceMemory" {
				bytes += float64(entry.Reserved + entry.Used)
			}
		}
	}

	return bytes, nil
}

// finish makes every worker close everything: then nothing may remain.
func (b *book) finish(ctx context.Context) error {
	for i, w := range b.workers {
		if _, err := w.End(); err != nil {
			return err
		}
		b.workers[i] = nil
	}
	return b.look(ctx, churn.Holds{})
}

func (b *book) killAll() {
	for _, w := range b.workers {
		if w != nil {
			w.Kill()
		}
	}
}
