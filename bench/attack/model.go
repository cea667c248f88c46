package attack

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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/model/gguf"
	"capgpu/model/peers/peerstest"
	"capgpu/model/synth"
)

// crowds starts a model server on a session of the attacker's tenant. Crowds of
// another user attack it while this user asks, too: by hundreds of names and of
// calls, with large bodies that stop coming, and with silence. Each answer of this
// user must be the same as when alone, and never that the server is busy. When a
// crowd is gone, the server must have as many descriptors as before.
func crowds(ctx context.Context, a *attacker) (err error) {
	if os.Getuid() != 0 {
		a.tally.Attempts++
		a.tally.Answers["not tried without root: another user"]++
		return nil
	}

	m, err := startModel(a)
	if err != nil {
		return fmt.Errorf("start a model server: %w", err)
	}
	defer func() { err = errors.Join(err, m.close()) }()

	long := fmt.Sprintf(`{"prompt": "Once", "max_tokens": 8, "seed": 1, "metadata": "%s"}`, strings.Repeat("m", 1<<20))
	want, err := m.ask(long)
	if err != nil {
		return err
	}

	m.client.CloseIdleConnections()
	before, err := m.descriptors()
	if err != nil {
		return err
	}

	for _, o := range []peerstest.Order{
		{Kind: peerstest.Names, Socket: m.socket, Many: 300},
		{Kind: peerstest.Calls, Socket: m.rpc, Many: 60},
		{Kind: peerstest.Bodies, Socket: m.socket, Many: 40},
		{Kind: peerstest.Silence, Socket: m.socket, Many: 900},
	} {
		c, err := peerstest.Start(o)
		if err != nil {
			return err
		}

		for range 8 {
			got, asked := m.ask(long)
			if asked == nil && got != want {
				asked = fmt.Errorf("%q, and alone %q", got, want)
			}
			if asked != nil {
				return errors.Join(fmt.Errorf("beside a crowd of %s: %w", o.Kind, asked), c.Kill())
			}
		}

		tally, err := c.Stop()
		if err != nil {
			return err
		}

		a.tally.Attempts += o.Many
		for status, n := range tally {
			a.tally.Answers["status "+strconv.Itoa(status)] += n
		}

		m.client.CloseIdleConnections()
		for end := time.Now().Add(longest); ; time.Sleep(5 * time.Millisecond) {
			n, err := m.descriptors()
			if err != nil {
				return err
			}
			if n <= before {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("behind a crowd of %s the model server has %d descriptors, and had %d", o.Kind, n, before)
			}
		}
	}

	return nil
}

// model is a model server.
type model struct {
	dir         string
	socket, rpc string // of HTTP, and of Cap'n Proto
	cmd         *exec.Cmd
	said        bytes.Buffer
	client      http.Client
}

func startModel(a *attacker) (_ *model, err error) {
	m := &model{}
	if m.dir, err = os.MkdirTemp("", "cg"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w; it said:\n%s", errors.Join(err, m.close()), m.said.String())
		}
	}()

	if err := os.Chmod(m.dir, 0o711); err != nil {
		return nil, err
	}

	m.socket, m.rpc = filepath.Join(m.dir, "http"), filepath.Join(m.dir, "rpc")
	file, err := m.file()
	if err != nil {
		return nil, err
	}

	m.cmd = exec.Command(filepath.Join(a.bin, "model-server"), "--model", file, "--socket", a.socket, "--listen", "unix:"+m.socket, "--rpc", m.rpc, "--drain", "0s")
	m.cmd.Stderr = &m.said
	m.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	m.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
	}}

	if err := m.cmd.Start(); err != nil {
		return nil, err
	}

	for end := time.Now().Add(longest); ; time.Sleep(5 * time.Millisecond) {
		_, err := m.ask(`{"prompt": "Once", "max_tokens": 1}`)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return nil, err
		}
	}

	return m, errors.Join(os.Chmod(m.socket, 0o666), os.Chmod(m.rpc, 0o666))
}

// file writes a generated model.
func (m *model) file() (path string, err error) {
	o, err := synth.Shape("tiny")
	if err != nil {
		return "", err
	}

	s, err := synth.New(o)
	if err != nil {
		return "", err
	}

	f, err := s.File()
	if err != nil {
		return "", err
	}

	var b bytes.Buffer
	if err := gguf.Write(&b, f, nil); err != nil {
		return "", err
	}

	path = filepath.Join(m.dir, "tiny.gguf")
	return path, os.WriteFile(path, b.Bytes(), 0o600)
}

// ask requests the continuation of a text.
func (m *model) ask(body string) (text string, err error) {
	r, err := m.client.Post("http://x/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	whole, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	var answer struct{ Choices []struct{ Text string } }
	if err := json.Unmarshal(whole, &answer); err != nil || r.StatusCode != http.StatusOK || len(answer.Choices) != 1 {
		return "", fmt.Errorf("status %d: %s", r.StatusCode, whole)
	}
	return answer.Choices[0].Text, nil
}

func (m *model) descriptors() (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid))
	return len(all), err
}

// close ends it; its exit status must be 0.
func (m *model) close() error {
	var err error
	if m.cmd != nil && m.cmd.Process != nil {
		m.client.CloseIdleConnections()
		late := time.AfterFunc(longest, func() { _ = m.cmd.Process.Kill() })
		defer late.Stop()
		err = m.cmd.Process.Signal(unix.SIGTERM)
		if ended := m.cmd.Wait(); ended != nil {
			err = fmt.Errorf("the model server has ended: %w; it said:\n%s", ended, m.said.String())
		}
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}
