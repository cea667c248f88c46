package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/model/gguf"
	"capgpu/model/synth"
)

// The whole stack as processes: device-manager, its driver, and model servers.

// smallModel writes a generated model.
func smallModel(t testing.TB) string {
	t.Helper()
	o, err := synth.Shape("tiny")
	require.NoError(t, err)
	o.Seed = 1
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, gguf.Write(&b, f, nil))
	path := filepath.Join(t.TempDir(), "small.gguf")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// process is a process that the test started, with its output.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	mu   sync.Mutex
	said bytes.Buffer
	news chan struct{}
	over chan struct{}
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said.Write(b)
	select {
	case p.news <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// runDir is for the sockets of a test: its path is short.
func runDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t testing.TB, dir, name string, args ...string) *process {
	t.Helper()
	bin, err := built()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(filepath.Join(bin, name), args...), news: make(chan struct{}, 1), over: make(chan struct{})}
	p.cmd.Stderr = p
	p.cmd.Env = []string{"XDG_RUNTIME_DIR=" + dir}
	require.NoError(t, p.cmd.Start())
	go func() { _ = p.cmd.Wait(); close(p.over) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.over
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.text())
		}
	})

	return p
}

// until waits until the process has printed something this many times.
func (p *process) until(want string, times int) {
	p.t.Helper()
	late := time.After(30 * time.Second)
	for strings.Count(p.text(), want) < times {
		select {
		case <-p.news:
		case <-p.over:
			if strings.Count(p.text(), want) < times {
				p.t.Fatalf("it ended without %q %d times", want, times)
			}
		case <-late:
			p.t.Fatalf("no %q %d times", want, times)
		}
	}
}

// end waits for the end and returns the exit status.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(30 * time.Second):
		p.t.Fatal("it does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

var readyLine = regexp.MustCompile(`ready \(epoch \d+, driver pid (\d+)\)`)

// driver is the process of the present driver.
func (p *process) driver() int {
	all := readyLine.FindAllStringSubmatch(p.text(), -1)
	require.NotEmpty(p.t, all)
	pid, err := strconv.Atoi(all[len(all)-1][1])
	require.NoError(p.t, err)
	return pid
}

func startManager(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	m := start(t, dir, "device-manager", append([]string{"--dev"}, args...)...)
	m.until("ready (epoch 1, ", 1)
	return m
}

// instance is one model server as a process, and a client of its HTTP socket.
type instance struct {
	*process
	http http.Client
}

func startServer(t testing.TB, dir, name, modelPath string, args ...string) *instance {
	t.Helper()
	path := filepath.Join(dir, name+".h")
	s := &instance{process: start(t, dir, "model-server", append([]string{"--model", modelPath, "--listen", "unix:" + path}, args...)...)}
	s.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

func (s *instance) ready() *instance {
	s.t.Helper()
	s.until("msg=serving", 1)
	return s
}

// answer is the end of a request: finish is "" for an error.
type answer struct {
	text, finish, code string
}

// question is a prompt of the tests: every second one samples its tokens.
func question(i, most int) string {
	temperature := i % 2
	return fmt.Sprintf(`{"prompt": "Question %d.", "max_tokens": %d, "temperature": %d, "seed": %d, "stream": true}`, i, most, temperature, i)
}

// ask streams a completion.
func (s *instance) ask(body string) (a answer, err error) {
	r, err := s.http.Post("http://x/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return a, err
	}
	defer r.Body.Close()

	all, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return a, err
	}

	for _, line := range strings.Split(string(all), "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok && strings.HasPrefix(line, "{") {
			data, ok = line, true
		}
		if !ok || data == "[DONE]" {
			continue
		}

		var event struct {
			Choices []struct {
				Text         string
				FinishReason string `json:"finish_reason"`
			}
			Error struct{ Code string }
		}

		if err := json.Unmarshal([]byte(data), &event); err != nil {
			return a, fmt.Errorf("%w: %s", err, data)
		}

		a.code = event.Error.Code
		for _, c := range event.Choices {
			a.text += c.Text
			a.finish += c.FinishReason
		}
	}

	if a.finish == "" && a.code == "" {
		return a, errors.New("the answer breaks off: " + string(all))
	}

	return a, nil
}

func (s *instance) must(body string) answer {
	s.t.Helper()
	a, err := s.ask(body)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, a.finish, "%+v", a)
	return a
}

// untilWaiting waits until this many requests wait for their turn.
func (s *instance) untilWaiting(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		r, err := s.http.Get("http://x/v1/status")
		require.NoError(s.t, err)
		defer r.Body.Close()
		var st struct{ Requests struct{ Waiting int } }
		require.NoError(s.t, json.NewDecoder(r.Body).Decode(&st))
		return st.Requests.Waiting >= n
	}, 20*time.Second, time.Millisecond)
}

// fds counts the descriptors of the process.
func (p *process) fds() int {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	return len(all)
}

// used is the amount of a resource that a tenant's sessions use on the device.
func used(t testing.TB, socket, resource string) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	c, err := client.Dial(ctx, socket)
	require.NoError(t, err)
	defer c.Close()
	text, err := c.Status(ctx, 0)
	require.NoError(t, err)
	var st struct {
		Tenants []struct {
			Tenant string
			Budget []struct {
				Class string
				Used  uint64
			}
		}
	}

	require.NoError(t, json.Unmarshal(text, &st))
	for _, tenant := range st.Tenants {
		if tenant.Tenant == c.Tenant() {
			for _, b := range tenant.Budget {
				if b.Class == resource {
					return b.Used
				}
			}
		}
	}

	return 0
}

func kill(t testing.TB, pid int, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, s))
}
