// Package peerstest has a crowd: a process of another user, with many connections
// to a socket of a model server, that tries to take the server from its other
// users.
package peerstest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/rpc"
)

// UID is the user of a crowd.
const UID = 60001

const hidden = "capgpu-crowd"

// Order is the command to a crowd.
type Order struct {
	Kind   string // Names, Bodies, Silence or Calls
	Socket string // reachable for user UID: HTTP, or for Calls Cap'n Proto
	Many   int    // connections
}

// The kinds of crowds.
const (
	Names   = "names"   // each request has a name of its own
	Bodies  = "bodies"  // large bodies that stop coming
	Silence = "silence" // nothing, half a header, or half a body
	Calls   = "calls"   // many answers on each connection at a time
)

// Tally counts requests by the HTTP status of their answer, or that of their code;
// 0 counts requests without an answer.
type Tally map[int]int

// Crowd is a running crowd.
type Crowd struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// Start runs this program again as a crowd; that program's main must begin with
// RunIfCrowd. Start returns when each connection of the crowd has sent something,
// or has been refused. It needs root.
func Start(o Order) (*Crowd, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}

	c := &Crowd{cmd: exec.Command("/proc/self/exe", hidden, string(order))} // the crowd's user may have no access to the file's path
	c.cmd.Stderr = os.Stderr
	c.cmd.Dir = "/"
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: UID, Gid: UID}, Pdeathsig: syscall.SIGKILL}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := c.out.ReadString('\n'); err != nil || line != begun {
		return nil, errors.Join(fmt.Errorf("the crowd said %q: %w", line, err), c.Kill())
	}

	return c, nil
}

const begun = "begun\n"

// PID is the crowd's process.
func (c *Crowd) PID() int { return c.cmd.Process.Pid }

// Stop ends the crowd and returns its tally.
func (c *Crowd) Stop() (t Tally, err error) {
	err = errors.Join(c.in.Close(), json.NewDecoder(c.out).Decode(&t))
	return t, errors.Join(err, c.cmd.Wait())
}

// Kill ends it at once. After Stop it has no effect.
func (c *Crowd) Kill() error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // the error only reports the kill
	return nil
}

// RunIfCrowd makes this process a crowd if Start started it, and then never
// returns.
func RunIfCrowd() {
	if len(os.Args) != 3 || os.Args[1] != hidden {
		return
	}
	var o Order
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		fmt.Fprintln(os.Stderr, "crowd:", err)
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(run(o)); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// again is the delay between the end of a connection and its successor.
const again = 50 * time.Millisecond

func run(o Order) Tally {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	var mu sync.Mutex
	tally := Tally{}
	var beginning, all sync.WaitGroup
	beginning.Add(o.Many)
	for i := range o.Many {
		all.Go(func() {
			first := sync.OnceFunc(beginning.Done)
			defer first()
			for n := 0; ctx.Err() == nil; n++ {
				status := kinds[o.Kind](ctx, o.Socket, i, n, first)
				if ctx.Err() != nil && status == 0 {
					return // nobody waits for it
				}
				first()
				mu.Lock()
				tally[status]++
				mu.Unlock()
				if status != http.StatusOK {
					select {
					case <-ctx.Done():
					case <-time.After(again):
					}
				}
			}
		})
	}

	beginning.Wait()
	fmt.Print(begun)
	all.Wait()
	return tally
}

// kinds are the actions of a crowd's connections. Each performs one exchange and
// returns the status of the answer. It calls sent when it has sent everything.
var kinds = map[string]func(ctx context.Context, socket string, i, n int, sent func()) (status int){
	Names: func(ctx context.Context, socket string, i, n int, sent func()) int {
		body := fmt.Sprintf(`{"prompt":"Question","max_tokens":40,"ignore_eos":true,"user":"%d of %d"}`, i, n)
		return ask(ctx, socket, posted(len(body), body), sent)
	},
	Bodies: func(ctx context.Context, socket string, _, _ int, sent func()) int {
		return ask(ctx, socket, posted(4<<20, `{"prompt":"`+strings.Repeat("a ", 40<<10)), sent)
	},
	Calls: func(ctx context.Context, socket string, _, _ int, sent func()) int {
		return call(ctx, socket, sent)
	},
	Silence: func(ctx context.Context, socket string, i, _ int, sent func()) int {
		return ask(ctx, socket, []string{"", "POST /v1/completions HTTP/1.1\r\nHo", posted(9, "{")}[i%3], sent)
	},
}

// atOnce is the number of unfinished answers of one connection.
const atOnce = 16

// call requests answers until one fails, and waits for all of them.
func call(ctx context.Context, socket string, sent func()) (status int) {
	c, err := rpc.Dial(ctx, socket)
	if err != nil {
		return statusOf(err)
	}
	defer c.Close()

	first := make([]error, atOnce)
	var calling sync.WaitGroup
	for i := range atOnce {
		calling.Go(func() {
			s, err := c.Generate(ctx, lm.Request{Prompt: "Question", MaxTokens: 40, IgnoreEnd: true, LogProbs: -1})
			sent()
			if first[i] = err; err != nil {
				return
			}
			defer s.Close()
			out := make([]lm.Token, 40)
			for err == nil {
				_, err = s.Next(ctx, out)
			}
			if !errors.Is(err, io.EOF) {
				first[i] = err
			}
		})
	}

	calling.Wait()
	for _, err := range first {
		if err != nil {
			return statusOf(err)
		}
	}

	return http.StatusOK
}

func statusOf(err error) int {
	if errors.Is(err, gpuerr.Busy) {
		return http.StatusTooManyRequests
	}
	return 0
}

// posted is a request that announces a body of this length.
func posted(length int, body string) string {
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", length, body)
}

// ask sends a text, and waits for its answer.
func ask(ctx context.Context, socket, text string, sent func()) (status int) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()

	sending := make(chan struct{})
	go func() {
		defer close(sending)
		_, _ = io.WriteString(c, text)
		sent()
	}()

	defer func() { c.Close(); <-sending }()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return 0
	}

	return r.StatusCode
}
