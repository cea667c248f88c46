package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/rpc"
	"capgpu/qemu/guest/tap"
)

const (
	modelDir    = "/models/"
	modelRPC    = "/run/model.sock"
	modelHTTP   = "/run/model.http.sock"
	modelTokens = 64
	// modelAnswers bounds the answers of a model server on a slow machine.
	modelAnswers = time.Minute
)

// checkModels: a model server that holds a session and nothing else writes what its
// models' references say, over Cap'n Proto and HTTP, before and after its driver is
// killed.
func (s *smoke) checkModels() {
	s.check("model server: a made-up model's text through its session is that of its float64 reference", func(c *check) {
		m := c.serveModel("made-up")
		defer m.stop()
		took := m.writes(modelDir + "made-up")
		c.Say("%d tokens in %.1fs, over HTTP as over Cap'n Proto", modelTokens, took.Seconds())
	})
	s.check("model server: stories260K's text through its session is its reference's", func(c *check) {
		if _, err := os.Stat(modelDir + "stories260K.gguf"); err != nil {
			c.Say("SKIPPED, the model is not in this image")
			return
		}
		m := c.serveModel("stories260K")
		defer m.stop()
		took := m.writes(modelDir + "stories260K")
		c.Say("%d tokens in %.1fs", modelTokens, took.Seconds())
	})
	s.check("model server: kill -9 of the driver ends its request as lost, and it serves again by itself", func(c *check) {
		m := c.serveModel("made-up")
		defer m.stop()
		stream := tap.Get[lm.Stream](c.Check, "ask for a long text")(m.client.Generate(c.Ctx, lm.Request{Prompt: "Once", LogProbs: -1, IgnoreEnd: true}))
		token := make([]lm.Token, 1)
		_, err := stream.Next(c.Ctx, token)
		c.Must(err, "wait for its first token")
		c.Must(unix.Kill(s.driver, unix.SIGKILL), "kill the driver")
		for err == nil {
			_, err = stream.Next(c.Ctx, token)
		}
		c.Refused(err, "the request", gpuerr.DeviceLost, gpuerr.Disconnected)
		c.Must(stream.Close(), "close its stream")
		s.epoch = s.waitReady(c, s.epoch).Epoch
		s.driver = findDriver(c)
		took := m.writes(modelDir + "made-up")
		c.Say("%v; %d tokens in %.1fs in epoch %d, same process", gpuerr.CodeOf(err), modelTokens, took.Seconds(), s.epoch)
	})
}

// modelServer is one that runs.
type modelServer struct {
	*check
	command *exec.Cmd
	said    *bytes.Buffer // whole after stop
	client  *rpc.Client
	stopped bool
}

// serveModel starts a model server of the default tenant and connects to it.
func (c *check) serveModel(name string) *modelServer {
	m := &modelServer{check: c, said: &bytes.Buffer{}}
	file := modelDir + name + ".gguf"
	if c.broken == "model" {
		file = spoiled(c, file)
	}

	// To load a model again takes long here, and a request that comes during that has to
	// wait.
	m.command = exec.Command("/bin/model-server", "--socket", c.socket(tenant), "--model", file,
		"--rpc", modelRPC, "--listen", "unix:"+modelHTTP, "--sequences", "2", "--patience", modelAnswers.String())
	m.command.Stdout, m.command.Stderr = m.said, m.said
	c.Must(m.command.Start(), "start the model server")
	ctx, cancel := context.WithTimeout(c.Ctx, modelAnswers)
	defer cancel()
	for {
		client, err := rpc.Dial(ctx, modelRPC)
		if err == nil {
			m.client = client
			break
		}
		select {
		case <-ctx.Done():
			m.stop()
			c.Fatalf("the model server does not answer: %v\n%s", err, m.said)
		case <-time.After(pollEvery):
		}
	}

	for m.client.Status().State != lm.Ready {
		if ctx.Err() != nil {
			m.stop()
			c.Fatalf("the model server is not ready: %s\n%s", m.client.Status().Reason, m.said)
		}
		time.Sleep(pollEvery)
	}

	return m
}

// spoiled returns a copy of a model with one weight in a thousand changed.
func spoiled(c *check, file string) string {
	b := tap.Get[[]byte](c.Check, "read the model")(os.ReadFile(file))
	for i := len(b) / 2; i < len(b); i += 4000 {
		b[i&^3+2] ^= 0x80 // of an F32: twice as much, or half
	}
	const copied = "/tmp/spoiled.gguf"
	c.Must(os.WriteFile(copied, b, 0o600), "write the spoiled model")
	return copied
}

// stop ends it as an operator would. Once is enough.
func (m *modelServer) stop() {
	if m.stopped {
		return
	}
	m.stopped = true
	if m.client != nil {
		m.client.Close()
	}
	_ = m.command.Process.Signal(unix.SIGTERM)
	kill := time.AfterFunc(modelAnswers, func() { _ = m.command.Process.Kill() })
	defer kill.Stop()
	m.Must(m.command.Wait(), "stop the model server: "+m.said.String())
}

// writes wants that the model writes its text, both ways.
func (m *modelServer) writes(files string) (took time.Duration) {
	want := tap.Get[[]byte](m.Check, "read what it must write")(os.ReadFile(files + ".txt"))
	prompt, err := os.ReadFile(files + ".prompt")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.Must(err, "read its prompt")
	}

	q := lm.Request{Prompt: string(prompt), MaxTokens: modelTokens, LogProbs: -1}
	begun := time.Now()
	stream := tap.Get[lm.Stream](m.Check, "ask for a text")(m.client.Generate(m.Ctx, q))
	var text strings.Builder
	tokens := make([]lm.Token, 16)
	for {
		n, err := stream.Next(m.Ctx, tokens)
		for _, t := range tokens[:n] {
			text.WriteString(t.Text)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			m.stop()
			m.Fatalf("wait for its text: %v\n%s", err, m.said)
		}
	}

	took = time.Since(begun)
	m.Must(stream.Close(), "close its stream")
	expected := strings.TrimSuffix(string(want), "\n")
	m.That(text.String() == expected, "over Cap'n Proto it writes %q, not %q", text.String(), expected)
	over := m.complete(string(prompt))
	m.That(over == expected, "over HTTP it writes %q, not %q", over, expected)
	return took
}

// complete asks over HTTP.
func (m *modelServer) complete(prompt string) string {
	web := http.Client{Timeout: modelAnswers, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", modelHTTP)
		},
		DisableKeepAlives: true,
	}}
	body := tap.Get[[]byte](m.Check, "write a request")(json.Marshal(map[string]any{"prompt": prompt, "max_tokens": modelTokens, "temperature": 0}))
	res := tap.Get[*http.Response](m.Check, "ask over HTTP")(web.Post("http://localhost/v1/completions", "application/json", bytes.NewReader(body)))
	defer res.Body.Close()
	answer := tap.Get[[]byte](m.Check, "read the answer")(io.ReadAll(io.LimitReader(res.Body, 1<<20)))
	var completion struct{ Choices []struct{ Text string } }
	m.Must(json.Unmarshal(answer, &completion), "read "+string(answer))
	m.That(len(completion.Choices) == 1, "HTTP %s: %s", res.Status, answer)
	return completion.Choices[0].Text
}
