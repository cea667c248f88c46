package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/model/llama"
	"capgpu/model/lm"
	"capgpu/model/load"
	"capgpu/model/rpc"
	"capgpu/model/sample"
)

const policyOfTwo = `{"device": {"respawn": {"budget": 100}}, "tenants": [
 {"name": "one", "allowedUids": "any", "facet": "full", "limits": {"deviceMemory": %d}},
 {"name": "two", "allowedUids": "any", "facet": "full", "limits": {"deviceMemory": %d}},
 {"name": "small", "allowedUids": "any", "facet": "full", "limits": {"deviceMemory": 65536}}]}`

// The driver is killed again and again while texts are generated. Every finished
// text equals the earlier one, every interrupted text is a prefix of it and ends
// with a reason, and the same process continues to serve.
func TestDriverIsKilled(t *testing.T) {
	dir := runDir(t)
	manager := startManager(t, dir)
	s := startServer(t, dir, "a", smallModel(t), "--sequences", "3", "--patience", "20s").ready()
	const questions, most = 8, 60
	want := map[int]answer{}
	for i := range questions {
		want[i] = s.must(question(i, most))
		require.NotEmpty(t, want[i].text)
	}

	before := s.fds()

	var whole, broken atomic.Int64
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for k := range 5 {
		asking.Go(func() {
			for i := k; ; i++ {
				select {
				case <-stop:
					return
				default:
				}

				a, err := s.ask(question(i%questions, most))
				w := want[i%questions]
				switch {
				case err != nil:
					t.Errorf("question %d: %v", i%questions, err)
					return

				case a.finish != "":
					whole.Add(1)
					if a != w {
						t.Errorf("question %d: %+v, and before %+v", i%questions, a, w)
					}

				default:
					broken.Add(1)
					if !strings.HasPrefix(w.text, a.text) {
						t.Errorf("question %d: %q is no beginning of %q", i%questions, a.text, w.text)
					}
					if a.code != "E_DISCONNECTED" && a.code != "E_DEVICE_LOST" {
						t.Errorf("question %d ended with %s", i%questions, a.code)
					}
				}
			}
		})
	}

	x := rand.New(rand.NewPCG(1, 2))
	const kills = 6
	for n := range kills {
		time.Sleep(time.Duration(50+x.IntN(300)) * time.Millisecond)
		kill(t, manager.driver(), syscall.SIGKILL)
		manager.until(fmt.Sprintf("ready (epoch %d, ", n+2), 1)
		s.until("msg=serving", n+2)
	}

	close(stop)
	asking.Wait()
	require.Positive(t, whole.Load())
	require.Positive(t, broken.Load())
	t.Logf("%d whole, %d broken off by %d kills", whole.Load(), broken.Load(), kills)
	for i := range questions {
		require.Equal(t, want[i], s.must(question(i, most)))
	}

	s.http.CloseIdleConnections()
	require.Eventually(t, func() bool { return s.fds() <= before }, 10*time.Second, 10*time.Millisecond, "descriptors: %d, and before %d", s.fds(), before)

	kill(t, s.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, s.end())
	kill(t, manager.cmd.Process.Pid, syscall.SIGTERM)
	require.Zero(t, manager.end())
}

// The manager is killed and another is started: the server finds it.
func TestManagerIsKilled(t *testing.T) {
	dir := runDir(t)
	manager := startManager(t, dir)
	s := startServer(t, dir, "a", smallModel(t)).ready()
	want := s.must(question(1, 40))
	kill(t, manager.cmd.Process.Pid, syscall.SIGKILL)
	manager.end()
	s.until("the session is over", 1)
	startManager(t, dir)
	require.Equal(t, want, s.must(question(1, 40)), "who asks meanwhile waits")
}

// After SIGTERM the current requests end as they would have. If the time does not
// suffice, they end with an error. Everything is given back.
func TestDrain(t *testing.T) {
	dir := runDir(t)
	startManager(t, dir)
	path := smallModel(t)
	for name, patience := range map[string]string{"time": "20s", "none": "0s"} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, dir, name, path, "--rpc", filepath.Join(dir, name+".rpc"), "--sequences", "1", "--drain", patience).ready()
			const many, most = 12, 230
			var want []answer
			for i := range many {
				want = append(want, s.must(question(2*i+1, most)))
			}

			var whole, told atomic.Int64
			var asking sync.WaitGroup
			for i := range many {
				asking.Go(func() {
					switch a, err := s.ask(question(2*i+1, most)); {
					case err == nil && a.finish != "":
						whole.Add(1)
						if a != want[i] {
							t.Errorf("%+v, and before %+v", a, want[i])
						}
					case err == nil:
						told.Add(1)
						if a.code != "E_CLOSED" || !strings.HasPrefix(want[i].text, a.text) {
							t.Errorf("%+v, and before %+v", a, want[i])
						}
					}
				})
			}

			s.untilWaiting(many / 2)
			kill(t, s.cmd.Process.Pid, syscall.SIGTERM)
			require.Zero(t, s.end())
			asking.Wait()
			t.Logf("%d whole, %d told", whole.Load(), told.Load())
			if name == "time" {
				require.Positive(t, whole.Load())
			} else {
				require.Positive(t, told.Load())
			}

			require.NoFileExists(t, filepath.Join(dir, name+".rpc"))
			require.NoFileExists(t, filepath.Join(dir, name+".h"))
			require.Zero(t, used(t, filepath.Join(dir, "capgpu", "default.sock"), "deviceMemory"), "all is given back")
		})
	}
}

// All protocols give the same text, and TCP requires the token.
func TestWaysIn(t *testing.T) {
	dir := runDir(t)
	startManager(t, dir)
	token := filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("0123456789abcdef\n"), 0o600))
	s := startServer(t, dir, "a", smallModel(t), "--rpc", filepath.Join(dir, "a.rpc"), "--listen", "127.0.0.1:0", "--token-file", token, "--name", "small").ready()
	want := s.must(question(1, 50))

	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(s.text())
	require.NotEmpty(t, url, s.text())
	post := func(bearer string) (int, string) {
		q, err := http.NewRequest("POST", url+"v1/completions", strings.NewReader(strings.Replace(question(1, 50), `"stream": true`, `"stream": false`, 1)))
		require.NoError(t, err)
		q.Header.Set("Content-Type", "application/json")
		if bearer != "" {
			q.Header.Set("Authorization", "Bearer "+bearer)
		}
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := c.Do(q)
		require.NoError(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}

	for _, wrong := range []string{"", "0123456789abcdeg"} {
		status, _ := post(wrong)
		require.Equal(t, http.StatusUnauthorized, status)
	}

	status, text := post("0123456789abcdef")
	require.Equal(t, http.StatusOK, status, text)
	var a struct {
		Model   string
		Choices []struct{ Text string }
	}

	require.NoError(t, json.Unmarshal([]byte(text), &a))
	require.Equal(t, "small", a.Model)
	require.Equal(t, want.text, a.Choices[0].Text)

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	m, err := rpc.Dial(ctx, filepath.Join(dir, "a.rpc"))
	require.NoError(t, err)
	defer m.Close()

	require.Equal(t, "small", m.Info().Name)
	stream, err := m.Generate(ctx, lm.Request{Prompt: "Question 1.", MaxTokens: 50, LogProbs: -1, Sampling: sample.Params{Temperature: 1, Seed: 1, Seeded: true}})
	require.NoError(t, err)
	said := ""
	out := make([]lm.Token, 16)
	for n := 1; n > 0; {
		n, err = stream.Next(ctx, out)
		for _, token := range out[:n] {
			said += token.Text
		}
	}

	require.Equal(t, io.EOF, err)
	require.Equal(t, want.text, said)
	require.NoError(t, stream.Close())
}

// Two model servers of two tenants on one device. Each generates what it generates
// alone and uses exactly the memory that it announced, and the death of one changes
// nothing for the other.
func TestTwoTenants(t *testing.T) {
	dir := runDir(t)
	path := smallModel(t)
	f, err := load.Open(path)
	require.NoError(t, err)
	plan, err := llama.Plan(f, llama.Options{Sequences: 2})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	most := plan.DeviceBytes() // exactly: one byte less would not suffice
	policy := filepath.Join(dir, "policy.json")
	require.NoError(t, os.WriteFile(policy, fmt.Appendf(nil, policyOfTwo, most, most), 0o600))
	startManager(t, dir, "--policy", policy)
	socket := func(tenant string) string { return filepath.Join(dir, "capgpu", tenant+".sock") }
	positions := fmt.Sprint(plan.Positions)
	one := startServer(t, dir, "one", path, "--socket", socket("one"), "--sequences", "2", "--positions", positions).ready()
	var want []answer
	for i := range 6 {
		want = append(want, one.must(question(i, 80)))
	}

	two := startServer(t, dir, "two", path, "--socket", socket("two"), "--sequences", "2", "--positions", positions).ready()
	var asking sync.WaitGroup
	killed := make(chan struct{})
	for i := range want {
		asking.Go(func() {
			for n := 0; ; n++ {
				a, err := one.ask(question(i, 80))
				if err != nil || a != want[i] {
					t.Errorf("one: %v, %+v, alone %+v", err, a, want[i])
					return
				}
				select {
				case <-killed:
					if n > 3 {
						return
					}
				default:
				}
			}
		})
		require.Equal(t, want[i], two.must(question(i, 80)))
	}

	held := plan.WeightBytes + plan.CacheBytes + plan.WorkBytes
	for _, tenant := range []string{"one", "two"} {
		require.Equal(t, held, used(t, socket(tenant), "deviceMemory"))
	}

	require.Equal(t, used(t, socket("one"), "hostMemory"), used(t, socket("two"), "hostMemory"))
	go func() { _, _ = two.ask(question(1, 200)) }()
	kill(t, two.cmd.Process.Pid, syscall.SIGKILL)
	two.end()
	require.Eventually(t, func() bool { return used(t, socket("two"), "deviceMemory") == 0 }, 10*time.Second, 5*time.Millisecond)
	close(killed)
	asking.Wait()
	require.Equal(t, held, used(t, socket("one"), "deviceMemory"))
	two = startServer(t, dir, "two", path, "--socket", socket("two"), "--sequences", "2", "--positions", positions).ready()
	require.Equal(t, want[0], two.must(question(0, 80)), "its socket was left behind, and is replaced")

	// Without enough memory the error comes first, with both numbers.
	small := startServer(t, dir, "small", path, "--socket", socket("small"))
	require.Equal(t, exitRefused, small.end())
	require.Regexp(t, `E_QUOTA deviceMemory asked=\d+ available=65536`, small.text())
}
