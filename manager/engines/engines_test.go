package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/control"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/program"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// scripted is an engine that is a goroutine.
type scripted struct {
	pid     int
	exited  chan struct{}
	reason  error
	conn    *net.UnixConn
	link    int
	once    sync.Once
	killed  atomic.Bool
	deathly bool // it does not die
}

func (s *scripted) PID() int                { return s.pid }
func (s *scripted) Exited() <-chan struct{} { return s.exited }
func (s *scripted) Reason() error           { return s.reason }
func (s *scripted) Check() error            { return nil }

func (s *scripted) Kill() {
	s.killed.Store(true)
	if !s.deathly {
		s.exit(errors.New("killed"))
	}
}

func (s *scripted) exit(reason error) {
	s.once.Do(func() {
		s.reason = reason
		s.conn.Close()
		unix.Close(s.link)
		close(s.exited)
	})
}

// device is a device with engines that act as the script says.
type device struct {
	t *testing.T
	// ready is the first word of engine n, from 1; nil: ready. A word "" is never said.
	ready func(n int) string
	// answer is the word to a test; nil: the right one.
	answer func(n int, test uint64) string
	// immortal engines are not dead when they are killed.
	immortal func(n int) bool
	spawnErr error

	mu      sync.Mutex
	all     []*scripted
	records []string
	refuse  error
}

func (d *device) spawn(link, ctl *os.File) (Process, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.spawnErr != nil {
		return nil, d.spawnErr
	}
	c, err := net.FileConn(ctl)
	require.NoError(d.t, err)
	fd, err := unix.Dup(int(link.Fd()))
	require.NoError(d.t, err)
	n := len(d.all) + 1
	s := &scripted{pid: 1<<22 + n, exited: make(chan struct{}), conn: c.(*net.UnixConn), link: fd, deathly: d.immortal != nil && d.immortal(n)}
	d.all = append(d.all, s)
	go d.run(n, s)
	return s, nil
}

func (d *device) run(n int, s *scripted) {
	say := func(word string) {
		if word != "" {
			_, _ = s.conn.Write([]byte(word))
		}
	}
	word := string(control.FromEngine{Ready: described()}.Bytes())
	if d.ready != nil {
		word = d.ready(n)
	}
	say(word)
	b := make([]byte, control.MaxBytes)
	for {
		k, err := s.conn.Read(b)
		if err != nil {
			return
		}
		m, err := control.ParseToEngine(b[:k])
		if err != nil {
			return
		}
		word := string(control.FromEngine{Tested: m.Test}.Bytes())
		if d.answer != nil {
			word = d.answer(n, *m.Test)
		}
		say(word)
	}
}

func described() *wire.Device {
	return &wire.Device{
		Name: "a card", Driver: "vendor 1.2", PCIAddress: "0000:01:00.0", OffsetAlign: 16, SubgroupSize: 32, MaxThreadsPerBlock: 1024,
		MaxBlock: program.Dim3{X: 1024, Y: 1024, Z: 64}, MaxGrid: program.Dim3{X: 65535, Y: 65535, Z: 65535},
		MaxBindings: 33, MaxPushBytes: 256, MaxBindingBytes: 1 << 27,
	}
}

func (d *device) record(kind, detail string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refuse != nil {
		return d.refuse
	}
	d.records = append(d.records, kind+" "+detail)
	return nil
}

// said returns the records of a kind.
func (d *device) said(kind string) (found []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.records {
		if strings.HasPrefix(r, kind+" ") {
			found = append(found, r)
		}
	}
	return found
}

func (d *device) spawned() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

func (d *device) engine(n int) *scripted {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all[n-1]
}

// patience bounds waits for events that come at once on an idle machine.
const patience = 20 * time.Second

func pool(t *testing.T, d *device, most int, times Times) *Pool {
	t.Helper()
	leakcheck.Check(t)
	d.t = t
	if times == (Times{}) {
		times = Times{Ready: patience, Test: patience, Death: patience}
	}
	p := New(Config{Device: "gpu0", Most: most, Spawn: d.spawn, Record: d.record, Times: times})
	t.Cleanup(func() {
		d.mu.Lock()
		for _, s := range d.all {
			s.exit(errors.New("the test is over"))
		}
		d.mu.Unlock()
		_ = p.Close()
		p.running.Wait()
	})
	return p
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func TestEngines(t *testing.T) {
	d := &device{}
	p := pool(t, d, 2, Times{})
	_, err := p.Open(within(t), 1)
	require.ErrorIs(t, err, gpuerr.Revoked, "no driver lives")

	require.NoError(t, p.Begin())
	a, err := p.Open(within(t), 1)
	require.NoError(t, err)
	_, err = p.Open(within(t), 1)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "group 1 has an engine")
	b, err := p.Open(within(t), 2)
	require.NoError(t, err)
	_, err = p.Open(within(t), 3)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "functions[].engines.most")
	require.Len(t, d.said("engine.open"), 2)
	require.Contains(t, d.said("engine.open")[0], `group=1 driver="vendor 1.2"`)
	require.Contains(t, d.said("engine.ready")[0], `device="a card" driver="vendor 1.2" address="0000:01:00.0"`)

	link, ended, err := a.TakeLink()
	require.NoError(t, err)
	defer unix.Close(link)
	kind, err := unix.GetsockoptInt(link, unix.SOL_SOCKET, unix.SO_TYPE)
	require.NoError(t, err)
	require.Equal(t, unix.SOCK_SEQPACKET, kind)
	_, _, err = a.TakeLink()
	require.Error(t, err, "once only")

	// The kill ends when the next engine has answered.
	require.NoError(t, a.Kill(within(t)))
	require.NoError(t, a.Kill(within(t)), "idempotent")
	require.True(t, isDone(a.Done()))
	end := os.NewFile(uintptr(ended), "end")
	defer end.Close()
	_, err = end.Read(make([]byte, 1))
	require.Error(t, err, "the driver sees the end")
	require.Contains(t, d.said("engine.kill")[0], `group=1 why="its driver asked"`)
	require.False(t, isDone(b.Done()), "others go on")

	c, err := p.Open(within(t), 3)
	require.NoError(t, err)
	require.NoError(t, p.End())
	for _, s := range []*Engine{b, c} {
		require.True(t, isDone(s.Done()))
	}
	require.ErrorIs(t, b.Kill(within(t)), gpuerr.Revoked)
	require.NoError(t, p.Begin(), "of the next driver")
	_, err = p.Open(within(t), 2)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Begin(), gpuerr.Closed)
	require.Len(t, d.said("engine.start"), d.spawned())
	require.Len(t, d.said("engine.end"), d.spawned())
}

// An engine that dies by itself leaves its place, and its Kill asks the device.
func TestDeathByItself(t *testing.T) {
	d := &device{}
	p := pool(t, d, 1, Times{})
	require.NoError(t, p.Begin())
	e, err := p.Open(within(t), 7)
	require.NoError(t, err)
	d.engine(1).exit(errors.New("signal: segmentation fault"))
	<-e.Done()
	_, _, err = e.TakeLink()
	require.ErrorContains(t, err, "dead already")
	require.NoError(t, e.Kill(within(t)))
	require.Empty(t, d.said("engine.kill"))
	_, err = p.Open(within(t), 8)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(d.said("engine.end")) > 0 }, patience, time.Millisecond)
	require.Contains(t, d.said("engine.end")[0], `group=7`)
	require.Contains(t, d.said("engine.end")[0], `why="by itself" how="signal: segmentation fault"`)
}

// An engine that the kernel's driver names for a fault is ended, and no other.
func TestBlame(t *testing.T) {
	d := &device{}
	p := pool(t, d, 2, Times{})
	require.NoError(t, p.Begin())
	a, err := p.Open(within(t), 1)
	require.NoError(t, err)
	b, err := p.Open(within(t), 2)
	require.NoError(t, err)
	_, ours := p.Find(1)
	require.False(t, ours)
	named, ours := p.Find(d.engine(1).pid)
	require.True(t, ours)
	require.Equal(t, Named{Engine: 1, Group: 1, Open: true}, named)
	p.Blame(1, "nobody")
	p.Blame(d.engine(1).pid, "xid 31")
	<-a.Done()
	require.False(t, isDone(b.Done()))
	require.Eventually(t, func() bool { return len(d.said("engine.end")) == 1 }, patience, time.Millisecond)
	require.Contains(t, d.said("engine.end")[0], `group=1`)
	require.Contains(t, d.said("engine.end")[0], `why="xid 31"`)
}

// A test that is not answered, or wrongly, ends all engines; the next one decides.
func TestAnswers(t *testing.T) {
	for name, bad := range map[string]string{
		"silence": "", "failure": `{"failed":"the sum is 3"}`, "another test": `{"tested":99}`, "noise": "\x00", "ready again": string(control.FromEngine{Ready: described()}.Bytes()),
		"too long": strings.Repeat(" ", control.MaxBytes+1),
	} {
		for _, cured := range []bool{true, false} {
			t.Run(fmt.Sprint(name, "/cured=", cured), func(t *testing.T) {
				var tests atomic.Int64
				d := &device{answer: func(_ int, test uint64) string {
					if tests.Add(1) == 1 || !cured {
						return bad
					}
					return string(control.FromEngine{Tested: &test}.Bytes())
				}}
				p := pool(t, d, 4, Times{Ready: patience, Test: 30 * time.Millisecond, Death: patience})
				require.NoError(t, p.Begin())
				a, err := p.Open(within(t), 1)
				require.NoError(t, err)
				b, err := p.Open(within(t), 2)
				require.NoError(t, err)
				err = a.Kill(within(t))
				require.True(t, isDone(b.Done()), "all engines were killed")
				require.Len(t, d.said("engine.test"), 1)
				require.EqualValues(t, 2, tests.Load())
				if cured {
					require.NoError(t, err)
					require.NoError(t, p.End())
					return
				}
				require.ErrorIs(t, err, gpuerr.IO)
				require.ErrorContains(t, err, "reset the GPU")
				require.ErrorContains(t, <-p.Trouble(), "reset the GPU")
				require.Len(t, d.said("engine.lost"), 1)
				_, err = p.Open(within(t), 3)
				require.ErrorContains(t, err, "reset the GPU")
				require.ErrorContains(t, p.End(), "reset the GPU", "the function is not known to have stopped")
				require.ErrorContains(t, p.Begin(), "reset the GPU")
			})
		}
	}
}

// A process that the kernel keeps makes the function's state unknown.
func TestProcessThatDoesNotDie(t *testing.T) {
	d := &device{immortal: func(n int) bool { return n == 1 }}
	p := pool(t, d, 1, Times{Ready: patience, Test: patience, Death: 30 * time.Millisecond})
	require.NoError(t, p.Begin())
	e, err := p.Open(within(t), 1)
	require.NoError(t, err)
	require.ErrorContains(t, e.Kill(within(t)), "is not dead after 30ms")
	require.True(t, d.engine(1).killed.Load())
	require.ErrorContains(t, p.End(), "is not dead")
}

func TestEnginesThatDoNotStart(t *testing.T) {
	for name, x := range map[string]struct{ word, want string }{
		"failed":  {`{"failed":"no device"}`, "it failed: no device"},
		"noise":   {`{"ready":{}}`, "E_PROTOCOL"},
		"tested":  {`{"tested":1}`, "neither ready nor failed"},
		"silence": {"", "said nothing for 20ms"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &device{ready: func(n int) string {
				if n == 1 {
					return x.word
				}
				return string(control.FromEngine{Ready: described()}.Bytes())
			}}
			p := pool(t, d, 1, Times{Ready: 20 * time.Millisecond, Test: patience, Death: patience})
			require.NoError(t, p.Begin())
			_, err := p.Open(within(t), 1)
			require.ErrorContains(t, err, x.want)
			if x.word == "" {
				return // the next one is as fast as the machine
			}
			_, err = p.Open(within(t), 1)
			require.NoError(t, err, "the next one starts")
		})
	}

	t.Run("no process", func(t *testing.T) {
		d := &device{spawnErr: errors.New("no such program")}
		p := pool(t, d, 1, Times{})
		require.NoError(t, p.Begin())
		_, err := p.Open(within(t), 1)
		require.ErrorContains(t, err, "no such program")
		require.NoError(t, p.End())
	})

	t.Run("no record", func(t *testing.T) {
		d := &device{refuse: errors.New("disk full")}
		p := pool(t, d, 1, Times{})
		require.NoError(t, p.Begin())
		_, err := p.Open(within(t), 1)
		require.ErrorContains(t, err, "no engine is granted")
	})
}

// A driver that gives up a call leaves nothing half done.
func TestContexts(t *testing.T) {
	d := &device{ready: func(int) string { return "" }}
	p := pool(t, d, 1, Times{})
	require.NoError(t, p.Begin())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Open(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, p.End(), "also with an engine that is starting")
}

// Many drivers' calls at once, and the ends of periods between them.
func TestManyAtOnce(t *testing.T) {
	d := &device{}
	p := pool(t, d, 3, Times{})
	for range 3 {
		require.NoError(t, p.Begin())
		var calls sync.WaitGroup
		for group := range uint32(6) {
			calls.Go(func() {
				for range 4 {
					e, err := p.Open(within(t), group)
					if err != nil {
						continue
					}
					_ = e.Kill(within(t))
				}
			})
		}
		calls.Wait()
		require.NoError(t, p.End())
		p.mu.Lock()
		require.Empty(t, p.alive)
		require.Empty(t, p.groups)
		require.Nil(t, p.waiting)
		p.mu.Unlock()
	}
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engines")
	j, err := OpenJournal(path, 0)
	require.NoError(t, err)
	left, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{})
	require.NoError(t, err)
	require.NoError(t, j.add(left.Pid))
	require.NoError(t, j.add(os.Getpid()))
	j.remove(os.Getpid())

	_, err = OpenJournal(path, patience) // as the next manager does
	require.NoError(t, err)
	state, err := left.Wait()
	require.NoError(t, err)
	require.Equal(t, "signal: killed", state.String())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Empty(t, text)

	// Another process with the number is left alone.
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "%d.1\nx\n1.1\n", os.Getpid()), 0o600))
	_, err = OpenJournal(path, patience)
	require.NoError(t, err)
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("12.34\n5.6"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, id := range parseJournal(text) {
			var pid, start int
			_, err := fmt.Sscanf(strings.ReplaceAll(id, ".", " "), "%d %d", &pid, &start)
			require.Greater(t, pid, 1)
			_ = err // the start may be longer than a number; it is compared as text
		}
	})
}
