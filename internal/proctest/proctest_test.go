package proctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

const (
	patience = time.Minute
	pollTime = time.Millisecond
)

func TestChildren(t *testing.T) {
	// A name that reads like the end of the field and a state.
	path := filepath.Join(t.TempDir(), "a) R (1")
	require.NoError(t, os.Symlink("/bin/cat", path))
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = in.Write([]byte("x"))
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err) // it has its name

	for _, name := range []string{"", "a) R (1"} {
		list, err := Children(os.Getpid(), name)
		require.NoError(t, err)
		require.Len(t, list, 1, "named %q", name)
		require.Equal(t, cmd.Process.Pid, list[0].PID)
		require.NotEqual(t, "Z", list[0].State)
	}
	for parent, name := range map[int]string{os.Getpid(): "a", cmd.Process.Pid: ""} {
		list, err := Children(parent, name)
		require.NoError(t, err)
		require.Empty(t, list)
	}

	require.NoError(t, in.Close())
	_, err = out.Read(make([]byte, 1))
	require.Error(t, err)
	require.Eventually(t, func() bool {
		list, err := Children(os.Getpid(), "a) R (1")
		return err == nil && len(list) == 1 && list[0].State == "Z"
	}, patience, pollTime, "it has ended and nobody has waited for it")
	require.NoError(t, cmd.Wait())
	list, err := Children(os.Getpid(), "")
	require.NoError(t, err)
	require.Empty(t, list)
}

// A program that was just written runs, while others are started beside it.
func TestWriteProgram(t *testing.T) {
	text, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	stop := make(chan struct{})
	var starting sync.WaitGroup
	defer starting.Wait()
	defer close(stop)
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := exec.Command("/bin/true").Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		path := filepath.Join(t.TempDir(), "program")
		require.NoError(t, WriteProgram(path, text))
		require.NoError(t, exec.Command(path).Run())
	}
}

// Work counts, and waiting does not.
func TestCPU(t *testing.T) {
	const work = 50 * time.Millisecond
	require.Less(t, CPU(func() { time.Sleep(4 * work) }), work)
	took := CPU(func() {
		for begun := threadTime(); threadTime()-begun < work; {
		}
	})
	require.GreaterOrEqual(t, took, work)
	require.Less(t, took, 2*work)
}
