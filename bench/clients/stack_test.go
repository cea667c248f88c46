package clients

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/bench/dataplane/service"
	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/synth"
)

// stack is the built commands.
type stack struct {
	*service.Service
	bin string
}

func startStack(t *testing.T) *stack {
	t.Helper()
	bin := t.TempDir()
	out, err := exec.Command("../../tools/build.sh", bin, "device-manager", "gpu-mock", "gpu-gate", "model-server").CombinedOutput()
	require.NoError(t, err, "%s", out)
	s, err := service.Start(bin, 0, service.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &stack{s, bin}
}

// startTimeout bounds a model server's loading, and its stop.
const startTimeout = 30 * time.Second

// serve starts model-server with a model file, and returns when it is ready.
func (s *stack) serve(t *testing.T, file string, more ...string) (url string) {
	t.Helper()
	said := &output{}
	c := exec.Command(filepath.Join(s.bin, "model-server"), append([]string{"--socket", s.Socket, "--model", file, "--listen", "127.0.0.1:0"}, more...)...)
	c.Stderr = said
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, c.Start())
	ended := make(chan struct{})
	var status error
	go func() {
		defer close(ended)
		status = c.Wait()
	}()

	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
			require.NoError(t, status, said)
		case <-time.After(startTimeout):
			_ = c.Process.Kill()
			<-ended
			t.Errorf("model-server does not stop; it said:\n%s", said)
		}
	})

	where := regexp.MustCompile(`http=(http://\S+)/`)
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(5 * time.Millisecond) {
		if found := where.FindSubmatch(said.copy()); found != nil {
			url = string(found[1])
			if r, err := http.Get(url + "/healthz"); err == nil {
				r.Body.Close()
				if r.StatusCode == http.StatusOK {
					return url
				}
			}
		}
		select {
		case <-ended:
			t.Fatalf("model-server ended: %v\n%s", status, said)
		default:
		}
		require.False(t, time.Now().After(deadline), "model-server does not get ready; it said:\n%s", said)
	}
}

// output is a command's output.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) copy() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.buf.Bytes())
}

func (o *output) String() string { return string(o.copy()) }

// madeUp writes a model of random weights.
func madeUp(t *testing.T, shape string, as model.Type) (path string) {
	t.Helper()
	o, err := synth.Shape(shape)
	require.NoError(t, err)
	o.Seed, o.Type = 1, as
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), fmt.Sprintf("%s-%v.gguf", shape, as))
	w, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, gguf.Write(w, f, nil))
	require.NoError(t, w.Close())
	return path
}
