package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A user of a server, as a process of another uid than the test's, that means harm to the
// others.

// crowdUID is its user.
const crowdUID = 1001

const hiddenCrowd = "capgpu-crowd"

// crowdOrder is what it is told.
type crowdOrder struct {
	Kind   string // of crowdKinds
	Socket string
	Many   int // connections
}

// crowdTally is what became of its requests: how many had which status; 0 is of those that
// had none.
type crowdTally map[int]int

// runIfCrowd makes this process a crowd if it was started as one, and then never returns.
func runIfCrowd() {
	if len(os.Args) != 3 || os.Args[1] != hiddenCrowd {
		return
	}
	var o crowdOrder
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var mu sync.Mutex
	tally := crowdTally{}
	var begun, all sync.WaitGroup
	begun.Add(o.Many)
	for i := range o.Many {
		all.Go(func() {
			first := sync.OnceFunc(begun.Done)
			for n := 0; ctx.Err() == nil; n++ {
				status := crowdKinds[o.Kind](ctx, o.Socket, i, n, first)
				if ctx.Err() != nil && status == 0 {
					break // it was not waited for
				}
				mu.Lock()
				tally[status]++
				mu.Unlock()
				first()
				if status != http.StatusOK {
					select { // it asks again soon
					case <-ctx.Done():
					case <-time.After(50 * time.Millisecond):
					}
				}
			}
			first()
		})
	}
	begun.Wait()
	fmt.Println("begun")
	all.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(tally); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// crowdKinds are what one connection of a crowd does once: an answer has a status. begun is
// called when all is sent that is.
var crowdKinds = map[string]func(ctx context.Context, socket string, i, n int, begun func()) (status int){
	// Each request has a name of its own.
	"names": func(ctx context.Context, socket string, i, n int, begun func()) int {
		body := fmt.Sprintf(`{"prompt":"Question","max_tokens":40,"ignore_eos":true,"user":"%d of %d"}`, i, n)
		return send(ctx, socket, len(body), body, begun)
	},
	// Each says to be large, sends its beginning, and waits.
	"bodies": func(ctx context.Context, socket string, _, _ int, begun func()) int {
		return send(ctx, socket, 4<<20, `{"prompt":"`+strings.Repeat("a ", 40<<10), begun)
	},
	// Some say nothing, some half a header, some half a body.
	"silent": func(ctx context.Context, socket string, i, _ int, begun func()) int {
		c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return 0
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		_, _ = io.WriteString(c, []string{"", "POST /v1/completions HTTP/1.1\r\nHo", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"}[i%3])
		begun()
		if r, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
			return r.StatusCode
		}
		return 0
	},
}

// send sends a request that says to have a body of so many bytes, and waits for its answer.
func send(ctx context.Context, socket string, length int, body string, begun func()) (status int) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", length, body)
		begun()
	}()
	defer func() { c.Close(); <-sent }()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return 0
	}
	return r.StatusCode
}

// crowd is a running crowd.
type crowd struct {
	t      *testing.T
	socket string
	cmd    *exec.Cmd
	in     io.Closer
	out    *bufio.Reader
}

// besideACrowd starts a server that serves every user, and a crowd of another one.
func besideACrowd(t *testing.T, kind string, many int, args ...string) (*instance, *crowd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED without root: another user beside this one")
	}
	dir := runDir(t)
	require.NoError(t, os.Chmod(dir, 0o711))
	startManager(t, dir)
	s := startServer(t, dir, "a", smallModel(t), args...).ready()
	socket := filepath.Join(dir, "a.h")
	require.NoError(t, os.Chmod(socket, 0o666))
	order, err := json.Marshal(crowdOrder{Kind: kind, Socket: socket, Many: many})
	require.NoError(t, err)
	c := &crowd{t: t, socket: socket, cmd: exec.Command("/proc/self/exe", hiddenCrowd, string(order))} // by a path, its user could not reach it
	c.cmd.Stderr = os.Stderr
	c.cmd.Dir = "/"
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: crowdUID, Gid: crowdUID}, Pdeathsig: syscall.SIGKILL}
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.out = bufio.NewReader(out)
	return s, c
}

// start has the crowd begin, and returns when all of it has.
func (c *crowd) start() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Start())
	c.t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	line, err := c.out.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, "begun\n", line)
}

// stop has it end.
func (c *crowd) stop() (tally crowdTally) {
	c.t.Helper()
	require.NoError(c.t, c.in.Close())
	require.NoError(c.t, json.NewDecoder(c.out).Decode(&tally))
	require.NoError(c.t, c.cmd.Wait())
	return tally
}

// finished is how many requests the server has answered.
func (s *instance) finished() uint64 {
	s.t.Helper()
	r, err := s.http.Get("http://x/v1/status")
	require.NoError(s.t, err)
	defer r.Body.Close()
	var st struct{ Totals struct{ Finished uint64 } }
	require.NoError(s.t, json.NewDecoder(r.Body).Decode(&st))
	return st.Totals.Finished
}

// untilAlone waits until the server has no more descriptors than before.
func (s *instance) untilAlone(before int) {
	s.t.Helper()
	s.http.CloseIdleConnections()
	require.Eventually(s.t, func() bool { return s.fds() <= before }, 20*time.Second, 10*time.Millisecond)
}

// A user that has hundreds of requests, each of another name, has no more of the model than
// one that asks for one thing after the other, and takes none of its places to wait.
func TestNamesDoNotCrowdOut(t *testing.T) {
	s, c := besideACrowd(t, "names", 300, "--sequences", "2")
	want := s.must(question(1, 40))
	s.http.CloseIdleConnections()
	before := s.fds()
	c.start()
	s.untilWaiting(100)
	const asked = 30
	begun := s.finished()
	for range asked {
		a, err := s.ask(question(1, 40))
		require.NoError(t, err)
		require.Equal(t, want, a, "never busy, and right")
	}
	others := s.finished() - begun - asked
	tally := c.stop()
	t.Logf("%d answers of ours, %d of the crowd meanwhile; its statuses: %v", asked, others, tally)
	// The crowd has one of two places all the time, the other while we do not ask.
	require.LessOrEqual(t, others, uint64(4*asked))
	require.Positive(t, tally[http.StatusOK], "it has its own share")
	require.Positive(t, tally[http.StatusTooManyRequests], "and no more")
	s.untilAlone(before)
}

// Large bodies that stop coming take a user's own share of the memory for those, and end.
func TestStalledBodiesDoNotCrowdOut(t *testing.T) {
	s, c := besideACrowd(t, "bodies", 40)
	s.http.CloseIdleConnections()
	before := s.fds()
	long := strings.Replace(question(1, 4), "{", `{"metadata": "`+strings.Repeat("m", 1<<20)+`", `, 1)
	want := s.must(long)
	c.start()
	begun := time.Now()
	for time.Since(begun) < 7*time.Second { // so the first of them have ended
		a, err := s.ask(long)
		require.NoError(t, err)
		require.Equal(t, want, a)
	}
	tally := c.stop()
	t.Logf("statuses: %v", tally)
	require.GreaterOrEqual(t, tally[http.StatusRequestTimeout], 12)
	require.Positive(t, tally[http.StatusTooManyRequests])
	s.untilAlone(before)
}

// Connections that say nothing, or not all, take no other user's, also not one that is in the
// middle of a request; and they end.
func TestSilenceDoesNotCrowdOut(t *testing.T) {
	s, c := besideACrowd(t, "silent", 900)
	before := s.fds()
	slow, err := net.Dial("unix", c.socket)
	require.NoError(t, err)
	defer slow.Close()
	body := question(1, 40)
	_, err = fmt.Fprintf(slow, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body[:9])
	require.NoError(t, err)
	c.start()
	_, err = io.WriteString(slow, body[9:])
	require.NoError(t, err)
	r, err := http.ReadResponse(bufio.NewReader(slow), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode)
	require.NoError(t, r.Body.Close())
	slow.Close()

	s.must(question(1, 4))
	require.NoError(t, syscall.Kill(c.cmd.Process.Pid, syscall.SIGSTOP)) // what ends from now on stays so
	s.untilAlone(before)
	require.NoError(t, syscall.Kill(c.cmd.Process.Pid, syscall.SIGCONT))
	tally := c.stop()
	t.Logf("statuses: %v", tally)
	require.Positive(t, tally[http.StatusRequestTimeout])
}
