package manager

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/audit"
	"capgpu/client"
	"capgpu/ddf"
	"capgpu/internal/benchtest"
	"capgpu/iommu"
	"capgpu/iommu/iommutest"
	"capgpu/iommu/trace"
	"capgpu/ledger"
)

// The benchmarks of this file are what "make bench-hw" runs in a guest (docs/bench-hw.md
// tells what each side does). They report ratios; a run has as many pairs as
// -test.benchtime says, as in 200x.

// report is one line that qemu/cmd/bench-hw reads.
func report(b *testing.B, f benchtest.Figure) {
	b.ReportMetric(f.Ratio, "ratio")
	b.ReportMetric(float64(f.Ours), "ours-ns")
	b.ReportMetric(float64(f.Peer), "peer-ns")
}

// All threads of a round trip run on benchCPU: if a wake-up goes to another CPU, the
// benchmark measures that CPU's sleep.
const benchCPU = 1

// BenchmarkHardwareInterrupt measures from the driver's write of a register, which makes the
// device interrupt, through vfio and the vector's eventfd to the first instruction of the
// driver's handler, against a round trip of two threads with an eventfd each. It also reports
// the time until the handler has acknowledged and woken the writer (answered), and the same
// with another handler (bare).
func BenchmarkHardwareInterrupt(b *testing.B) {
	f := hardware(b, []ddf.WindowSpec{{Bytes: ddf.PageBytes, Writable: true}})
	_, err := f.Begin()
	require.NoError(b, err)
	g := grantOf(b, grantTestLimits(), f, iommu.NewSpace(f.Domain().Ranges()))
	set := dialGrants(b, g).GrantSet()
	cpu := min(benchCPU, runtime.NumCPU()-1)
	undo, err := benchtest.Pin(cpu)
	require.NoError(b, err)
	defer func() { require.NoError(b, undo()) }()
	require.NoError(b, benchtest.PinInterrupts(f.Identity().PCIAddress, cpu))
	fd, err := f.EventFD(0)
	require.NoError(b, err)
	vector := benchtest.Counter(fd)
	defer vector.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	peer, err := benchtest.NewPingPong()
	require.NoError(b, err)
	pong := benchtest.Side{Do: peer.Round}
	ctx, cancel := context.WithCancel(context.Background())
	h, err1 := newHandler(set.Mmio[0], func() error { _, err := set.Interrupts[0].Wait(ctx); return err })
	measured, err2 := benchtest.Compare(b.N, benchtest.Side{Timed: h.oneWay}, pong)
	answered, err3 := benchtest.Compare(b.N, benchtest.Side{Do: h.round}, pong)
	cancel()
	err4 := h.close()
	// The link has made the eventfd one that blocks.
	h, err5 := newHandler(set.Mmio[0], func() error { _, err := vector.Take(); return err })
	bare, err6 := benchtest.Compare(b.N, benchtest.Side{Do: h.round}, pong)
	h.ending.Store(true)
	err7 := vector.Add(1)
	require.NoError(b, errors.Join(err1, err2, err3, err4, err5, err6, err7, h.close(), peer.Close()))
	report(b, measured)
	b.ReportMetric(answered.Ratio, "answered-ratio")
	b.ReportMetric(bare.Ratio, "bare-ratio")
}

// handler handles interrupts as a driver does.
type handler struct {
	regs   ddf.DeviceMmio
	wait   func() error
	answer benchtest.Counter
	ending atomic.Bool
	ended  sync.WaitGroup
	err    error     // read after ended
	woken  time.Time // in the last round
}

func newHandler(regs ddf.DeviceMmio, wait func() error) (*handler, error) {
	answer, err := benchtest.NewCounter()
	h := &handler{regs: regs, wait: wait, answer: answer}
	h.ended.Go(func() { h.err = h.run() })
	return h, err
}

func (h *handler) run() error {
	for {
		err := h.wait()
		h.woken = time.Now()
		if errors.Is(err, context.Canceled) || h.ending.Load() {
			return nil
		}
		if err == nil {
			err = h.regs.Write32(eduAcknowledge, 1)
		}
		if err = errors.Join(err, h.answer.Add(1)); err != nil {
			return err
		}
	}
}

// round makes the device interrupt and waits for the handler's answer.
func (h *handler) round() error {
	if err := h.regs.Write32(eduRaise, 1); err != nil {
		return err
	}
	_, err := h.answer.Take()
	return err
}

// oneWay returns the time from the write to the handler's first instruction.
func (h *handler) oneWay() (time.Duration, error) {
	start := time.Now()
	err := h.round()
	return h.woken.Sub(start), err
}

func (h *handler) close() error {
	h.ended.Wait()
	return errors.Join(h.err, h.answer.Close())
}

// oneDomain is a function with nothing but a domain.
type oneDomain struct {
	Function
	domain iommu.Domain
}

func (o oneDomain) Domain() iommu.Domain { return o.domain }

// BenchmarkHardwareMap maps and unmaps a buffer of 2 MiB that has its pages: charges, an
// address, the domain's map, its unmap, and the release of all, each operation noted for the
// comparison with the kernel. It compares that with the two ioctls. The kernel's programs
// trace both sides, as they trace device-manager. It also reports the domain, an address and
// the notes alone (domain); everything that the manager does for a driver's buffer, with its
// records, against ioctls that no program traces (recorded); and the programs' own part
// (watched).
func BenchmarkHardwareMap(b *testing.B) {
	const pool = "/proc/sys/vm/nr_hugepages"
	address := hardwareAddress(b)
	before, err := os.ReadFile(pool)
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(pool, []byte("8"), 0))
	defer func() { require.NoError(b, os.WriteFile(pool, before, 0)) }()

	claimed := hardware(b, nil) // bound to vfio-pci; its group is free again once it is closed
	require.NoError(b, claimed.(*claimedFunction).Function.Close())
	link, err := os.Readlink(filepath.Join("/sys/bus/pci/devices", address, "iommu_group"))
	require.NoError(b, err)
	group, err := strconv.Atoi(filepath.Base(link))
	require.NoError(b, err)

	kernel, err := trace.Open(trace.Options{})
	require.NoError(b, err)
	defer kernel.Close()
	recorder, peer := &opRecorder{name: "edu0"}, &iommutest.Ioctls{}
	domain, err := iommu.OpenType1(group, iommu.Options{Kernel: peer, Observer: recorder})
	require.NoError(b, err)
	defer domain.Close()
	require.NoError(b, kernel.FindVFIO())
	host, huge, free, err := iommutest.Buffer()
	require.NoError(b, err)
	defer free()
	require.True(b, huge, "no huge page is free")

	log, err := audit.Open(filepath.Join(b.TempDir(), "audit.log"), audit.Options{})
	require.NoError(b, err)
	defer log.Close()
	account, err := ledger.New("bench", ledger.NoLimits()).Root().Child("epoch-1", grantTestLimits())
	require.NoError(b, err)
	fake, err := newFakeFunction(fakeWindows, fakeVectors)
	require.NoError(b, err)
	defer fake.Close()
	g, err := newGrants(grantsOf{
		info: ddf.DeviceInfo{Name: "edu0", Epoch: 1}, function: oneDomain{fake, domain}, space: iommu.NewSpace(domain.Ranges()),
		account: account, audit: log, own: log, shares: newAuditShares(fakeName, 1<<20, log, nil, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	defer func() { require.NoError(b, g.revoke(false, nil).err) }()

	// The manager does the same at each of its ticks, beside the maps.
	drop := func() error {
		recorder.take()
		return kernel.Read(time.Now(), func(trace.Event) {})
	}
	watched := func() error { return errors.Join(drop(), kernel.Watch(os.Getpid())) }
	unwatched := func() error { return errors.Join(drop(), kernel.Unwatch(os.Getpid())) }
	ioctls := func() error { return peer.MapUnmap(host) }
	recorded := func() error { return g.mapAndFree(host, true) }
	for range recordBurst { // further maps are counted, and not recorded one by one
		require.NoError(b, recorded())
	}
	measured, err := benchtest.Compare(b.N,
		benchtest.Side{Prepare: watched, Do: func() error { return g.mapAndFree(host, false) }},
		benchtest.Side{Prepare: watched, Do: ioctls})
	require.NoError(b, err)
	space := iommu.NewSpace(domain.Ranges())
	alone, err := benchtest.Compare(b.N, benchtest.Side{Prepare: watched, Do: func() error {
		at, ok := space.Take(iommutest.BufferBytes)
		if !ok {
			return errors.New("no address is free")
		}
		defer space.Give(at)
		if err := domain.Map(at, host, iommu.ReadWrite); err != nil {
			return err
		}
		return domain.Unmap(at, iommutest.BufferBytes)
	}}, benchtest.Side{Prepare: watched, Do: ioctls})
	require.NoError(b, err)
	bare := benchtest.Side{Prepare: unwatched, Do: ioctls}
	whole, err := benchtest.Compare(b.N, benchtest.Side{Prepare: watched, Do: recorded}, bare)
	require.NoError(b, err)
	programs, err := benchtest.Compare(b.N, benchtest.Side{Prepare: watched, Do: ioctls}, bare)
	require.NoError(b, err)
	memory, err := benchtest.Median(max(b.N/4, 1), benchtest.Side{Prepare: watched, Do: func() error {
		d, err := g.alloc(iommutest.BufferBytes)
		if err != nil {
			return err
		}
		return g.free(d)
	}})
	require.NoError(b, err)
	report(b, measured)
	b.ReportMetric(alone.Ratio, "domain-ratio")
	b.ReportMetric(whole.Ratio, "recorded-ratio")
	b.ReportMetric(programs.Ratio, "watched-ratio")
	b.ReportMetric(float64(memory), "withmemory-ns")
}

// mapAndFree is alloc and free without the memory, and without the records if record is
// false.
func (g *grants) mapAndFree(host []byte, record bool) (err error) {
	d := &dmaMemory{bytes: uint64(len(host)), host: host}
	if d.bytesCharge, err = g.account.Reserve(ledger.DeviceMemory, d.bytes); err != nil {
		return err
	}
	if d.entryCharge, err = g.account.Reserve(ledger.IOVAEntries, 1); err != nil {
		return err
	}
	if err := g.mapMemory(d); err != nil {
		return err
	}
	if record {
		if err := g.logs.journal.mapped(d); err != nil {
			return err
		}
		d.recorded.Store(true)
	}
	d.bytesCharge.Commit()
	d.entryCharge.Commit()
	if record {
		return g.free(d) // without memory of its own it scrubs and closes nothing
	}
	if err := g.function.Domain().Unmap(d.iova, d.bytes); err != nil {
		return err
	}
	g.giveBack(d.iova)
	g.forget(d)
	return g.dispose(d)
}

// BenchmarkHardwareIoctls runs a client's session through device-manager and gpu-service, and
// counts the kernel's maps and unmaps of both while launches and copies run.
func BenchmarkHardwareIoctls(b *testing.B) {
	address := hardwareAddress(b)
	kernel, err := trace.Open(trace.Options{})
	require.NoError(b, err)
	defer kernel.Close()
	run, err := os.MkdirTemp("", "cg")
	require.NoError(b, err)
	defer os.RemoveAll(run)
	policy := DevPolicy()
	function := policy.Device.functionOf("edu0", address)
	policy.Functions = []FunctionPolicy{function}
	programs := os.Getenv("CAPGPU_TEST_PROGRAMS")
	log, records := slog.New(slog.NewTextHandler(b.Output(), nil)), &testLog{}
	m, err := Start(Config{
		Policy: policy, RunDir: filepath.Join(run, "run"), Audit: records, Hardware: NewHardware(b.TempDir(), log), Log: log,
		DriverPath: filepath.Join(programs, "gpu-mock"), ServicePath: filepath.Join(programs, "gpu-service"), GatePath: filepath.Join(programs, "gpu-gate"),
	})
	require.NoError(b, err)
	defer func() { require.NoError(b, m.Close(context.WithoutCancel(b.Context()))) }()
	require.NoError(b, kernel.FindVFIO())

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, filepath.Join(run, "run", "default.sock"))
	require.NoError(b, err)
	defer c.Close()
	for epoch := uint64(0); ; {
		st, err := c.NextState(ctx, 0, epoch)
		require.NoError(b, err)
		if st.State == client.Ready {
			break
		}
		epoch = st.Epoch
	}
	require.NoError(b, kernel.Watch(driverPID(b, records)))
	s, err := c.Open(ctx, 0)
	require.NoError(b, err)
	defer s.Close(ctx)
	in, err := s.CreateBuffer(ctx, 2<<20, client.Storage)
	require.NoError(b, err)
	out, err := s.CreateBuffer(ctx, 2<<20, client.Storage)
	require.NoError(b, err)
	factorial, err := s.OpenProgram(ctx, "edu.factorial")
	require.NoError(b, err)
	queue, err := s.CreateQueue(ctx, client.QueueOptions{})
	require.NoError(b, err)
	_, err = in.WriteAt(binary.LittleEndian.AppendUint32(nil, 10), 0)
	require.NoError(b, err)
	work := func() {
		require.NoError(b, queue.Run(ctx,
			&client.Launch{Program: factorial, Bindings: []client.Binding{{Buffer: in, Len: 4}, {Buffer: out, Len: 4}}},
			&client.Copy{Dst: in, DstOff: 4096, Src: out, Bytes: 64}))
	}
	count := func() (n int) {
		require.NoError(b, kernel.Read(time.Now(), func(trace.Event) { n++ }))
		return n
	}
	work()
	setUp := count()
	require.NotZero(b, setUp, "the kernel tells of nothing")
	launches := min(b.N, 20) // 200 ms each
	for range launches {
		work()
	}
	steady := count()
	var result [4]byte
	_, err = in.ReadAt(result[:], 4096)
	require.NoError(b, err)
	require.EqualValues(b, 3628800, binary.LittleEndian.Uint32(result[:]), "10!")
	counts, err := kernel.Counts()
	require.NoError(b, err)
	require.Zero(b, counts.Lost)
	b.ReportMetric(float64(steady)/float64(launches), "ratio")
	b.ReportMetric(float64(steady), "events")
	b.ReportMetric(float64(setUp), "setup-events")
}

// driverPID returns the process that is ready according to the log, which is written soon
// after the clients know.
func driverPID(b *testing.B, log *testLog) (pid int) {
	b.Helper()
	for deadline := time.Now().Add(30 * time.Second); pid == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		records, err := log.Snapshot(0, 1000)
		require.NoError(b, err)
		for _, r := range records {
			if r.Kind == "driver.ready" {
				_, err := fmt.Sscanf(r.Detail, "edu0 epoch=1 pid=%d", &pid)
				require.NoError(b, err)
			}
		}
	}
	require.NotZero(b, pid, "no record of the driver")
	return pid
}

// hardwareAddress returns the first address of CAPGPU_HW.
func hardwareAddress(b *testing.B) string {
	b.Helper()
	address, _, _ := strings.Cut(os.Getenv("CAPGPU_HW"), ",")
	if address == "" {
		b.Skip("CAPGPU_HW names no function: make bench-hw runs this in a guest that has some")
	}
	return address
}
