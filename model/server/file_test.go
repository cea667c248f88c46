package server

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/model/gguf"
	"capgpu/model/llama"
	"capgpu/model/lm"
	"capgpu/model/load"
)

// If the file is truncated under the server, the next load fails, but the process
// survives. Once the file is whole again, the service works again.
func TestFileIsCutOff(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, gguf.Write(&b, testFile(), nil))
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	f, err := load.Open(path)
	require.NoError(t, err)
	defer f.Close()

	first, second := sessiontest.Start(t, sessiontest.Options{}), sessiontest.Start(t, sessiontest.Options{})
	var socket atomic.Pointer[string]
	socket.Store(&first.Socket)
	o := optionsFor(first, llama.Options{Sequences: 2})
	o.File = f
	o.Dial = func(ctx context.Context) (*client.Conn, error) { return client.Dial(ctx, *socket.Load()) }
	l := startLive(t, first, o)
	want, err := l.ask(t, greedy("the same", 40))
	require.NoError(t, err)

	require.NoError(t, os.Truncate(path, 4096))
	got, err := l.ask(t, greedy("the same", 40))
	require.NoError(t, err, "the weights are in the device")
	require.Equal(t, want, got)
	socket.Store(&second.Socket)
	first.Kill()
	require.Eventually(t, func() bool {
		st := l.Status()
		return st.State == lm.Recovering && bytes.Contains([]byte(st.Reason), []byte("seeded"))
	}, 20*time.Second, time.Millisecond, "%+v", l.Status())

	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600)) // in place
	got, err = l.ask(t, greedy("the same", 40))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, l.Close(context.Background())) // before its service goes
}
