package manager_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/ddf"
	"capgpu/internal/leakcheck"
	"capgpu/ledger"
	"capgpu/manager"
)

// programs is the folder of the programs that the tests start.
var programs string

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		os.Exit(hold(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "lie" {
		os.Exit(lie(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "visit" {
		os.Exit(visit(os.Args[2]))
	}
	os.Exit(runTests(m))
}

// runTests is leakcheck.Main with programs to build first and remove at the end.
func runTests(m *testing.M) int {
	if programs = os.Getenv("CAPGPU_TEST_PROGRAMS"); programs == "" {
		dir, err := os.MkdirTemp("", "capgpu-test")
		if err == nil {
			defer os.RemoveAll(dir)
			programs = dir
			err = build("gpu-mock", "gpu-gate")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return leakcheck.Run(m, nil)
}

func build(names ...string) error {
	for _, name := range names {
		cmd := exec.Command("go", "build", "-o", program(name), "capgpu/cmd/"+name)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as installed, and as sandbox.Enter needs it
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

func program(name string) string { return filepath.Join(programs, name) }

// memoryLog is an audit log in memory.
type memoryLog struct {
	mu      sync.Mutex
	records []ddf.AuditRecord
	refuse  error
	closed  bool
}

func (l *memoryLog) Append(kind, tenant, detail string) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return 0, l.refuse
	}
	index := uint64(len(l.records))
	l.records = append(l.records, ddf.AuditRecord{Index: index, Time: time.Now(), Kind: kind, Tenant: tenant, Detail: detail})
	return index, nil
}

func (l *memoryLog) setRefuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = err
}

func (l *memoryLog) Snapshot(from uint64, max int) ([]ddf.AuditRecord, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = min(from, uint64(len(l.records)))
	to := min(uint64(len(l.records)), from+uint64(max))
	return append([]ddf.AuditRecord(nil), l.records[from:to]...), nil
}

func (l *memoryLog) Head() (ddf.AuditHead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ddf.AuditHead{Size: uint64(len(l.records))}, nil
}

func (l *memoryLog) Sync() error { return nil }

func (l *memoryLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

func (l *memoryLog) kinds() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, r := range l.records {
		n[r.Kind]++
	}
	return n
}

// texts returns the details of all records.
func (l *memoryLog) texts() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		all = append(all, r.Detail)
	}
	return all
}

// patience is how long a test waits for an event.
const patience = 20 * time.Second

// world is a running manager.
type world struct {
	*manager.Manager
	t      *testing.T
	log    *memoryLog      // unless Config.Audit was changed
	policy *manager.Policy // that was set last

	expectRemains string // text of the remains that Close reports

	mu    sync.Mutex
	lines []string
}

// start runs a manager for the test; change may alter its configuration.
func start(t *testing.T, change func(*manager.Config)) *world {
	t.Helper()
	leakcheck.Check(t)
	w := &world{t: t, log: &memoryLog{}}
	p := manager.DevPolicy()
	p.Device.Respawn = manager.RespawnPolicy{Budget: 1000, Window: time.Minute, FirstDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}
	cfg := manager.Config{
		Policy: p, RunDir: filepath.Join(shortDir(t), "run"), Audit: w.log,
		DriverPath: program("gpu-mock"), GatePath: program("gpu-gate"), Say: w.say,
		Log: slog.New(&strictHandler{Handler: slog.NewTextHandler(t.Output(), nil), t: t}),
	}
	if change != nil {
		change(&cfg)
	}
	w.log.closed = cfg.Audit != manager.AuditLog(w.log)
	m, err := manager.Start(cfg)
	require.NoError(t, err)
	w.Manager, w.policy = m, cfg.Policy
	t.Cleanup(w.stop)
	return w
}

// strictHandler fails the test when the manager logs an error. Messages to a person are at
// most warnings.
type strictHandler struct {
	slog.Handler
	t *testing.T
}

func (h *strictHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.t.Errorf("the manager logged an error: %s", r.Message)
	}
	return h.Handler.Handle(ctx, r)
}

func (h *strictHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return &strictHandler{Handler: h.Handler.WithAttrs(a), t: h.t}
}

// shortDir returns a folder with a path short enough for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w *world) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.Close(ctx); w.expectRemains != "" {
		require.ErrorContains(w.t, err, w.expectRemains)
	} else {
		require.NoError(w.t, err)
	}
	require.True(w.t, w.log.closed)
}

func (w *world) say(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

// within returns a context that ends long after every expected event.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// dial connects a client, which is closed at the end of the test.
func (w *world) dial(tenant string) *client.Conn {
	w.t.Helper()
	c, err := client.Dial(within(w.t), w.SocketPath(tenant))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { c.Close() })
	return c
}

// driver waits for a ready device of at least this epoch, and returns its
// epoch and the process of its driver.
func (w *world) driver(least uint64) (epoch uint64, pid int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := len(w.lines) - 1; i >= 0; i-- {
			if n, _ := fmt.Sscanf(w.lines[i], "capgpu: device mock0 ready (epoch %d, driver pid %d)", &epoch, &pid); n == 2 {
				return epoch >= least
			}
		}
		return false
	}, patience, time.Millisecond)
	return epoch, pid
}

// held returns the current charge of a class.
func (w *world) held(c ledger.Class) uint64 {
	for _, e := range w.Usage() {
		if e.Class == c {
			return e.Reserved + e.Used
		}
	}
	return 0
}
