// Package peerstest has a crowd: a process of another user, with many connections to a
// socket of a model server, that means to take it from its other users.
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

// UID is the user that a crowd is of.
const UID = 60001

const hidden = "capgpu-crowd"

// Order is what a crowd is told.
type Order struct {
	Kind   string // Names, Bodies, Silence or Calls
	Socket string // which user UID can reach: of HTTP, for Calls of Cap'n Proto
	Many   int    // connections
}

// The kinds of crowds.
const (
	Names   = "names"   // each request has a name of its own
	Bodies  = "bodies"  // large bodies that stop coming
	Silence = "silence" // nothing, half a header, or half a body
	Calls   = "calls"   // many answers on each connection at a time
)

// Tally is how many requests had which status of HTTP, or that of their code; 0 is of those
// that had none.
type Tally map[int]int

// Crowd is a running one.
type Crowd struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// Start starts a crowd as this program again, which begins with RunIfCrowd, and returns when
// each of its connections has sent something, or has been refused. It needs root.
func Start(o Order) (*Crowd, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := &Crowd{cmd: exec.Command("/proc/self/exe", hidden, string(order))} // by a path, its user may not reach it
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

// PID is that of its process.
func (c *Crowd) PID() int { return c.cmd.Process.Pid }

// Stop has the crowd end.
func (c *Crowd) Stop() (t Tally, err error) {
	err = errors.Join(c.in.Close(), json.NewDecoder(c.out).Decode(&t))
	return t, errors.Join(err, c.cmd.Wait())
}

// Kill ends it at once. It is of no effect behind Stop.
func (c *Crowd) Kill() error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // says that it was killed
	return nil
}

// RunIfCrowd makes this process a crowd if it was started as one, and then never returns.
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

// again is how soon a connection that was refused, or has ended, is followed by another.
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
					return // it was not waited for
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

// kinds are what one connection of a crowd does once, and the status of the answer. sent is
// called when all is sent that is.
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

// atOnce is how many answers of one connection are on their way.
const atOnce = 16

// call has answers made until one fails, and waits for all of them.
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

// posted is a request that says to have a body of so many bytes.
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
