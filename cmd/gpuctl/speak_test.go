package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/model/lm/lmtest"
	"capgpu/model/modeltest"
	"capgpu/model/rpc"
)

// spoke is one run of gpuctl with something on standard input.
func spoke(t *testing.T, env map[string]string, in io.Reader, args ...string) *invocation {
	t.Helper()
	var i invocation
	a := &app{in: in, out: &i.out, err: &i.err, getenv: func(k string) string { return env[k] }, now: time.Now}
	i.exit = a.run(t.Context(), args)
	return &i
}

// modelServer serves a model that repeats words backwards.
func modelServer(t *testing.T, m *lmtest.Model) (env map[string]string) {
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rpc.Listen(ctx, l, m, rpc.Options{}) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		require.Zero(t, m.Open())
	})
	return map[string]string{"CAPGPU_MODEL_SERVER": path}
}

func TestGenerateFromServer(t *testing.T) {
	m := lmtest.New()
	env := modelServer(t, m)
	i := spoke(t, env, nil, "generate", "-n", "7", "one two")
	require.Equal(t, 0, i.exit, i.err.String())
	require.Equal(t, "two one\n", i.out.String())
	require.Contains(t, i.err.String(), "7 tokens")
	require.Contains(t, i.err.String(), "ended by its length")

	i = spoke(t, env, strings.NewReader("three four"), "generate", "-n", "6", "-q", "--echo", "-")
	require.Equal(t, "three fourfour t\n", i.out.String())
	require.Empty(t, i.err.String())

	i = spoke(t, env, nil, "--json", "generate", "--stop", "wo", "one two")
	var r spokenAnswer
	require.NoError(t, json.Unmarshal(i.out.Bytes(), &r))
	require.Equal(t, "stop", r.Finish)
	require.Equal(t, 8, r.Usage.PromptTokens)

	q := m.Requests()
	require.Equal(t, -1, q[0].LogProbs)
	i = spoke(t, env, nil, "generate", "-n", "1", "-t", "0.5", "--top-k", "3", "--top-p", "0.9", "--min-p", "0.1", "--repetition-penalty", "1.1", "--seed", "0x10", "--ignore-end", "x")
	require.Equal(t, 0, i.exit, i.err.String())
	q = m.Requests()
	last := q[len(q)-1]
	require.True(t, last.IgnoreEnd)
	p := last.Sampling
	require.Equal(t, []any{float32(0.5), 3, float32(0.9), float32(0.1), float32(1.1), uint64(16), true},
		[]any{p.Temperature, p.TopK, p.TopP, p.MinP, p.Repetition, p.Seed, p.Seeded})
}

// Control sequences for a terminal are shown, not sent.
func TestAnswersCannotSteerTheTerminal(t *testing.T) {
	i := spoke(t, modelServer(t, lmtest.New()), nil, "generate", "-n", "5", "-q", "--echo", "a\x1b[2Jb\n\tc")
	require.Equal(t, 0, i.exit)
	require.NotContains(t, i.out.String(), "\x1b")
	require.Contains(t, i.out.String(), `a\x1b[2Jb`+"\n\tc")
}

func TestGenerateFails(t *testing.T) {
	m := lmtest.New()
	m.FailAfter, m.Failure = 3, gpuerr.New(gpuerr.DeviceLost, "the driver died")
	env := modelServer(t, m)
	i := spoke(t, env, nil, "generate", "abc")
	require.Equal(t, exitUnreachable, i.exit)
	require.Equal(t, "abc", i.out.String(), "what was said before is shown")
	require.Contains(t, i.err.String(), "E_DEVICE_LOST")

	for want, args := range map[string][]string{
		"--model":                {"generate", "x"},
		"can't be used together": {"generate", "--model", "a", "--server", "b", "x"},
		"--seed":                 {"generate", "--model", "a", "--seed", "-1", "x"},
		"--max-tokens":           {"generate", "--model", "a", "-n=-1", "x"},
		"--context":              {"chat", "--model", "a", "--context=-1"},
	} {
		i := spoke(t, nil, nil, args...)
		require.Equal(t, exitUsage, i.exit, args)
		require.Contains(t, i.err.String(), want)
	}

	i = spoke(t, nil, nil, "generate", "--server", "/none/m.sock", "x")
	require.Equal(t, exitUnreachable, i.exit)
	require.Contains(t, i.err.String(), "there is no model server at /none/m.sock")
	require.Contains(t, i.err.String(), "model-server --model")
}

func TestChat(t *testing.T) {
	m := lmtest.New()
	env := modelServer(t, m)
	in := "one two\n\n/nonsense\nthree\n/clear\nfour\n/quit\nnever\n"
	i := spoke(t, env, strings.NewReader(in), "chat", "-n", "7", "--system", "sys")
	require.Equal(t, 0, i.exit, i.err.String())
	require.Contains(t, i.err.String(), "backwards, 1,234 parameters")
	require.Contains(t, i.err.String(), "there is no command /nonsense")
	var prompts []string
	for _, q := range m.Requests() {
		var b []byte
		for _, t := range q.Tokens[1:] {
			b = append(b, byte(t))
		}
		prompts = append(prompts, string(b))
		require.Contains(t, q.Stop, "\nUser:")
	}

	require.Equal(t, []string{"sys\none two", "sys\none two\ntwo one\nthree", "sys\nfour"}, prompts)
	require.Contains(t, i.out.String(), "> two one\n> ")

	i = spoke(t, env, strings.NewReader("a\nb\n"), "--json", "chat", "-n", "1")
	require.Equal(t, 2, bytes.Count(i.out.Bytes(), []byte("\n")), "a line each")
}

// Ctrl-C stops the answer and not the conversation.
func TestInterruptedAnswer(t *testing.T) {
	m := lmtest.New()
	pace := make(chan struct{})
	m.Pace = pace
	env := modelServer(t, m)
	in, typed := io.Pipe()
	var i invocation
	a := &app{in: in, out: &i.out, err: &i.err, getenv: func(k string) string { return env[k] }, now: time.Now}
	ended := make(chan int)
	require.False(t, a.answering.interrupt())
	go func() { ended <- a.run(t.Context(), []string{"chat"}) }()
	_, err := io.WriteString(typed, "abc\n")
	require.NoError(t, err)
	pace <- struct{}{}
	require.True(t, a.answering.interrupt())
	require.Eventually(t, func() bool { return m.Open() == 0 }, 10*time.Second, time.Millisecond)
	require.NoError(t, typed.Close())
	require.Equal(t, 0, <-ended)
	require.Contains(t, i.err.String(), "stopped")
}

// A real model in a session of this tenant.
func TestGenerateHere(t *testing.T) {
	dir := modeltest.Stories(t)
	service := sessiontest.Start(t, sessiontest.Options{})
	env := map[string]string{"CAPGPU_SOCKET": service.Socket}
	file := filepath.Join(dir, "stories260K.bin")
	i := spoke(t, env, nil, "generate", "-q", "-m", file, "-n", "128")
	require.Equal(t, 0, i.exit, i.err.String())
	want, err := os.ReadFile(filepath.Join(dir, "ref", "stories260K.t0.n128.txt"))
	require.NoError(t, err)
	require.Equal(t, string(want), i.out.String())

	i = spoke(t, env, nil, "generate", "-m", file, "--context", "1000000", "x")
	require.Equal(t, exitUsage, i.exit)
	require.Contains(t, i.err.String(), "context")
	i = spoke(t, env, nil, "generate", "-m", file+"x", "x")
	require.NotEqual(t, 0, i.exit)
	require.Contains(t, i.err.String(), "no such file")
}

// A quota that is too small is reported before anything is loaded.
func TestGenerateHereWithoutRoom(t *testing.T) {
	dir := modeltest.Stories(t)
	service := sessiontest.Start(t, sessiontest.Options{Attach: func(a *gpu.Attach) { a.TenantLimits[ledger.DeviceMemory] = 256 << 10 }})
	i := spoke(t, map[string]string{"CAPGPU_SOCKET": service.Socket}, nil, "--json", "generate", "-m", filepath.Join(dir, "stories260K.bin"), "x")
	require.Equal(t, exitRefused, i.exit)
	var r struct{ Error report }
	require.NoError(t, json.Unmarshal(i.out.Bytes(), &r))
	require.Equal(t, "E_QUOTA", r.Error.Code)
	require.Equal(t, "deviceMemory", r.Error.Resource)
	require.Greater(t, r.Error.Asked, r.Error.Available)
	require.NotZero(t, r.Error.Available)
}
