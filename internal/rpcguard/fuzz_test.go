package rpcguard

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"github.com/stretchr/testify/require"
)

// generator makes streams of messages that mean something: ids, promises and
// capabilities refer to each other, rightly most of the time.
type generator struct {
	t    testing.TB
	rng  *rand.Rand
	open []uint32 // questions asked and not finished; nil: any number will do
}

// id names a question or a capability, mostly one that is there.
func (g *generator) id() uint32 {
	if len(g.open) > 0 && g.rng.IntN(50) > 0 {
		return g.open[g.rng.IntN(len(g.open))]
	}
	return uint32(g.rng.IntN(6))
}

// capability names an export: the first is the bootstrap's.
func (g *generator) capability() uint32 {
	if g.open != nil && g.rng.IntN(50) > 0 {
		return 0
	}
	return uint32(g.rng.IntN(6))
}

// finish takes a question off the list.
func (g *generator) finish() uint32 {
	id := g.id()
	for i, o := range g.open {
		if o == id {
			g.open = append(g.open[:i], g.open[i+1:]...)
			break
		}
	}
	return id
}

func (g *generator) path() []uint16 {
	path := make([]uint16, g.rng.IntN(3))
	for i := range path {
		path[i] = uint16(g.rng.IntN(3))
	}
	return path
}

var generatedMethods = []struct {
	iface   uint64
	methods int
}{{managerInterface, 4}, {sessionInterface, 10}, {bufferInterface, 8}, {0xdead, 2}}

func (g *generator) call(id uint32) []byte {
	m := generatedMethods[g.rng.IntN(len(generatedMethods))]
	s := callSpec{
		id: id, iface: m.iface, method: uint16(g.rng.IntN(m.methods)),
		arg: uint64(g.rng.IntN(openForeignError + 1)), arg2: uint64(g.rng.IntN(70_000)),
	}
	if g.rng.IntN(2) == 0 {
		p := g.id()
		s.promise, s.path = &p, g.path()
	} else {
		s.export = g.capability()
	}
	if g.rng.IntN(3) == 0 {
		s.capsCount = int32(1 + g.rng.IntN(3))
		s.caps = g.caps
	}
	s.yourself = g.rng.IntN(200) == 0
	return callBytes(g.t, s)
}

func (g *generator) caps(l rpccp.CapDescriptor_List) error {
	for i := range l.Len() {
		d := l.At(i)
		switch g.rng.IntN(8) {
		case 0:
			d.SetNone()
		case 1:
			d.SetSenderHosted(g.id())
		case 2:
			d.SetSenderPromise(g.id())
		case 3, 4:
			d.SetReceiverHosted(g.capability())
		case 5, 6:
			if err := setPromise(d.NewReceiverAnswer, g.id(), g.path()); err != nil {
				return err
			}
		case 7:
			if _, err := d.NewThirdPartyHosted(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *generator) message(id uint32) []byte {
	switch g.rng.IntN(16) {
	case 0:
		if g.open != nil {
			g.open = append(g.open, id)
		}
		return bootstrapBytes(g.t, id)
	case 1, 2, 3:
		return finishBytes(g.t, g.finish(), g.rng.IntN(2) == 0)
	case 4:
		return releaseBytes(g.t, g.capability(), uint32(g.rng.IntN(2)))
	case 5:
		return build(g.t, func(m rpccp.Message) error {
			d, err := m.NewDisembargo()
			if err != nil {
				return err
			}
			d.Context().SetSenderLoopback(g.id())
			tgt, err := d.NewTarget()
			if err != nil {
				return err
			}
			return setPromise(tgt.NewPromisedAnswer, g.id(), g.path())
		})
	default:
		call := g.call(id)
		if g.open != nil {
			g.open = append(g.open, id)
		}
		return call
	}
}

// stream is a whole conversation. Its first messages make a session and a buffer
// without waiting for an answer.
func (g *generator) stream() []byte {
	zero, one := uint32(0), uint32(1)
	messages := [][]byte{
		bootstrapBytes(g.t, 0),
		callBytes(g.t, callSpec{id: 1, iface: managerInterface, method: 1, promise: &zero, arg: uint64(openBlockThenSession * g.rng.IntN(2))}),
		callBytes(g.t, callSpec{id: 2, iface: sessionInterface, method: 0, promise: &one, path: []uint16{0}, arg: 1}),
	}
	g.open = nil
	wellFormed := g.rng.IntN(2) == 0
	if wellFormed {
		g.open = []uint32{0, 1, 2}
	}
	for i := range g.rng.IntN(40) {
		id := uint32(3 + i)
		if g.rng.IntN(20) == 0 && !wellFormed {
			id = g.id()
		}
		messages = append(messages, g.message(id))
	}
	if g.rng.IntN(3) == 0 && !wellFormed {
		g.rng.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	}
	var all []byte
	for _, m := range messages {
		if g.rng.IntN(12) == 0 && !wellFormed {
			m = g.mutate(m)
		}
		all = append(all, m...)
	}
	if wellFormed {
		return all
	}
	switch g.rng.IntN(10) {
	case 0:
		all = g.mutate(all)
	case 1:
		all = all[:g.rng.IntN(len(all))]
	}
	return all
}

func (g *generator) mutate(b []byte) []byte {
	b = append([]byte(nil), b...)
	for range 1 + g.rng.IntN(4) {
		at := g.rng.IntN(len(b))
		word := at &^ 7
		switch g.rng.IntN(6) {
		case 0:
			b[at] ^= 1 << g.rng.IntN(8)
		case 1:
			b[at] = byte(g.rng.Uint32())
		case 2: // a pointer to somewhere else
			if word+8 <= len(b) {
				binary.LittleEndian.PutUint32(b[word:], uint32(int32(g.rng.IntN(64)-32)<<2)|uint32(g.rng.IntN(4)))
			}
		case 3:
			if word+8 <= len(b) {
				binary.LittleEndian.PutUint64(b[word:], g.rng.Uint64())
			}
		case 4: // one word in place of another
			if from := g.rng.IntN(len(b)) &^ 7; word+8 <= len(b) && from+8 <= len(b) {
				copy(b[word:word+8], b[from:from+8])
			}
		case 5:
			b = append(b[:at], append(make([]byte, 8), b[at:]...)...)
		}
	}
	return b
}

// fuzzServer is the other process.
type fuzzServer struct {
	t    *testing.T
	path string
	in   io.WriteCloser
	out  *bufio.Reader
	wait chan error
}

func startFuzzServer(t *testing.T) *fuzzServer {
	exe, err := os.Executable()
	require.NoError(t, err)
	s := &fuzzServer{t: t, path: filepath.Join(t.TempDir(), "s"), wait: make(chan error, 1)}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), fuzzServerEnv+"="+s.path)
	cmd.Stderr = os.Stderr
	s.in, err = cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	s.out = bufio.NewReader(out)
	require.NoError(t, cmd.Start())
	go func() { s.wait <- cmd.Wait() }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", s.path)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, 10*time.Second, 10*time.Millisecond)
	return s
}

func (s *fuzzServer) ask(what string) fuzzStats {
	s.t.Helper()
	_, err := io.WriteString(s.in, what+"\n")
	require.NoError(s.t, err, "the server is gone")
	line, err := s.out.ReadBytes('\n')
	require.NoError(s.t, err, "the server is gone")
	var stats fuzzStats
	require.NoError(s.t, json.Unmarshal(line, &stats))
	return stats
}

// quiet waits until the server holds no connection and no object.
func (s *fuzzServer) quiet() fuzzStats {
	s.t.Helper()
	var stats fuzzStats
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if stats = s.ask("stats"); stats.Conns == 0 && stats.Objects == 0 {
			return stats
		}
	}
	s.t.Fatalf("left behind: %d connections, %d objects\n%s", stats.Conns, stats.Objects, s.ask("stacks").Stacks)
	return stats
}

// converse plays one stream and reads some of the answers.
func (s *fuzzServer) converse(stream []byte, rng *rand.Rand) error {
	c, err := net.Dial("unix", s.path)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write(stream); err != nil {
		return nil // refused half-way
	}
	if rng.IntN(3) > 0 {
		_ = c.SetReadDeadline(time.Now().Add(time.Duration(rng.IntN(60)) * time.Millisecond))
		_, _ = io.Copy(io.Discard, c)
	}
	return nil
}

// TestFuzzSemantic drives a server process with conversations that are almost
// right, for CAPGPU_FUZZ_SECONDS (3 by default). Nothing may crash it, stop it,
// or stay behind in it.
func TestFuzzSemantic(t *testing.T) {
	duration := 3 * time.Second
	if v := os.Getenv("CAPGPU_FUZZ_SECONDS"); v != "" {
		seconds, err := strconv.ParseUint(v, 10, 16)
		require.NoError(t, err, "CAPGPU_FUZZ_SECONDS")
		duration = time.Duration(seconds) * time.Second
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := startFuzzServer(t)
	before := s.quiet()
	var streams atomic.Int64
	end := time.Now().Add(duration)
	var wg sync.WaitGroup
	for w := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, w))
			g := &generator{t: t, rng: rng}
			for time.Now().Before(end) {
				stream := g.stream()
				if err := s.converse(stream, rng); err != nil {
					t.Errorf("the server does not accept: %v; worker %d after %d streams; the last was\n%x", err, w, streams.Load(), stream)
					return
				}
				streams.Add(1)
			}
		})
	}
	wg.Wait()
	after := s.quiet()
	require.Eventually(t, func() bool {
		after = s.ask("stats")
		return after.Goroutines <= before.Goroutines+2 && after.FDs <= before.FDs
	}, 10*time.Second, 20*time.Millisecond, "goroutines or descriptors left behind")
	t.Logf("%d streams; goroutines %d -> %d, descriptors %d -> %d", streams.Load(), before.Goroutines, after.Goroutines, before.FDs, after.FDs)
	require.NoError(t, s.in.Close())
	select {
	case err := <-s.wait:
		require.NoError(t, err, "the server crashed")
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not exit")
	}
}

// FuzzStream feeds bytes to a server in this process.
func FuzzStream(f *testing.F) {
	for _, poc := range []string{pocSelfTarget, pocCyclicList, pocDisembargo} {
		f.Add(fromHex(f, poc))
	}
	g := &generator{t: f, rng: rand.New(rand.NewPCG(1, 2))}
	for range 20 {
		f.Add(g.stream())
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) > 32<<10 {
			return // more than a socket takes without a reader
		}
		s := newService()
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-s.order:
				case <-stop:
					return
				}
			}
		}()
		server, peer := socketpair(t)
		_, err := peer.Write(stream)
		require.NoError(t, err)
		require.NoError(t, peer.Close())
		ended := make(chan error, 1)
		go func() { ended <- Serve(context.Background(), server, s.bootstrap(), Limits{}) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("Serve does not return")
		}
		require.Eventually(t, func() bool { return s.live.Load() == 0 }, 5*time.Second, time.Millisecond)
		close(stop)
		s.gate.Revoke(nil)
	})
}
