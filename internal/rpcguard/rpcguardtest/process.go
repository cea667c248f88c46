package rpcguardtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// patience bounds every wait for the other process.
	patience = 20 * time.Second
	workers  = 16
	// quietTime without a word from the server: it has answered what it will.
	quietTime = 60 * time.Millisecond
)

// Process is the server's process.
type Process struct {
	t     *testing.T
	path  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *os.File
	lines *bufio.Reader
	done  bool
}

// Start starts the test binary again, for t alone, which calls Serve there.
func Start(t *testing.T) *Process {
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &Process{t: t, path: filepath.Join(t.TempDir(), "s")}
	p.cmd = exec.Command(exe, "-test.run=^"+regexp.QuoteMeta(t.Name())+"$")
	p.cmd.Env = append(os.Environ(), socketEnv+"="+p.path)
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = out.(*os.File)
	p.lines = bufio.NewReader(p.out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if !p.done {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", p.path)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, patience, 10*time.Millisecond, "the server does not start")
	return p
}

// Dial connects to the service.
func (p *Process) Dial() *net.UnixConn {
	c, err := net.Dial("unix", p.path)
	require.NoError(p.t, err, "the server does not accept")
	return c.(*net.UnixConn)
}

func (p *Process) ask(what string) Stats {
	p.t.Helper()
	_, err := io.WriteString(p.in, what+"\n")
	require.NoError(p.t, err, "the server is gone")
	require.NoError(p.t, p.out.SetReadDeadline(time.Now().Add(patience)))
	line, err := p.lines.ReadBytes('\n')
	require.NoError(p.t, err, "the server is gone, or hangs; it said %q", line)
	var stats Stats
	require.NoError(p.t, json.Unmarshal(line, &stats), "%s", line)
	return stats
}

// await asks until ok.
func (p *Process) await(what string, ok func(Stats) bool) Stats {
	p.t.Helper()
	var stats Stats
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if stats = p.ask("stats"); ok(stats) {
			return stats
		}
	}
	p.t.Fatalf("%s: %+v\n%s", what, stats, p.ask("stacks").Stacks)
	return stats
}

// Stop ends the process, which must find itself in order.
func (p *Process) Stop() {
	p.t.Helper()
	require.NoError(p.t, p.in.Close())
	require.NoError(p.t, p.out.SetReadDeadline(time.Now().Add(2*patience)))
	said, err := io.ReadAll(p.lines)
	require.NoError(p.t, err, "the server does not exit")
	p.done = true
	require.NoError(p.t, p.cmd.Wait(), "the server failed:\n%s", said)
}

// Duration is CAPGPU_FUZZ_SECONDS, 3 s if that is not set.
func Duration(t *testing.T) time.Duration {
	v := os.Getenv("CAPGPU_FUZZ_SECONDS")
	if v == "" {
		return 3 * time.Second
	}
	seconds, err := strconv.ParseUint(v, 10, 16)
	require.NoError(t, err, "CAPGPU_FUZZ_SECONDS")
	return time.Duration(seconds) * time.Second
}

// Fuzz attacks the service of t in its process. No attack may crash it, stop it, or leave
// objects in it, and client, an ordinary client, must be served afterwards. client closes its
// connection.
func Fuzz(t *testing.T, c Config, client func(conn *net.UnixConn)) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	p := Start(t)

	// The first few make the objects that a service makes once and keeps.
	p.play(c, seed, 200*time.Millisecond)
	client(p.Dial())
	before := p.await("not idle before the attack", Stats.idle)
	streams, sound := p.play(c, seed+1, Duration(t))
	attacked := p.await("left behind by the attack", Stats.idle)
	client(p.Dial())
	after := p.await("left behind, beyond what was there before", func(s Stats) bool { return s.idle() && s.within(before) })
	t.Logf("%d streams executed, %d of them damaged; %d got through; goroutines %d -> %d, descriptors %d -> %d, mappings %d -> %d",
		streams, streams-sound, attacked.Count-before.Count, before.Goroutines, after.Goroutines, before.FDs, after.FDs, before.Mappings, after.Mappings)
	require.NotZero(t, sound)
	require.NotZero(t, streams-sound)
	require.Greater(t, attacked.Count-before.Count, streams/50, "the generator does not reach the service")
	p.Stop()
}

// play attacks for a time and counts conversations.
func (p *Process) play(c Config, seed uint64, duration time.Duration) (streams, sound int64) {
	end := time.Now().Add(duration)
	var all, undamaged atomic.Int64
	var wg sync.WaitGroup
	for w := range uint64(workers) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, w))
			g := NewGenerator(c, rng)
			for time.Now().Before(end) {
				stream, ok := g.Stream()
				if err := p.converse(stream, rng); err != nil {
					p.t.Errorf("%v; seed %d, worker %d; the last conversation was\n%x", err, seed, w, stream)
					return
				}
				all.Add(1)
				if ok {
					undamaged.Add(1)
				}
			}
		})
	}

	wg.Wait()
	if p.t.Failed() {
		p.t.FailNow()
	}

	return all.Load(), undamaged.Load()
}

// converse plays one stream, and often reads some of the answers.
func (p *Process) converse(stream []byte, rng *rand.Rand) error {
	c, err := net.Dial("unix", p.path)
	if err != nil {
		return err
	}

	defer c.Close()
	began := time.Now()
	_ = c.SetDeadline(began.Add(patience))
	if _, err := c.Write(stream); errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the server stopped reading")
	} else if err != nil {
		return nil // it ended the conversation
	}

	switch rng.IntN(6) {
	case 0:
	case 1:
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(rng.IntN(20)) * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
	default: // until the server has nothing more to say
		buf := make([]byte, 4096)
		for err == nil && time.Now().Before(began.Add(time.Second)) {
			_ = c.SetReadDeadline(time.Now().Add(quietTime))
			_, err = c.Read(buf)
		}
	}

	return nil
}
