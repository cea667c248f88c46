package manager_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/internal/proctest"
	"capgpu/ledger"
	"capgpu/manager"
)

// visit is the main function of another user's client: it prints its fate.
func visit(socket string) int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := func() error {
		conn, err := client.Dial(ctx, socket)
		if err != nil {
			return err
		}
		s, err := conn.OpenReady(ctx, 0)
		if err != nil {
			return err
		}
		fmt.Println("open")
		select {
		case <-s.Done():
			fmt.Println("session:", s.Err())
		case <-ctx.Done():
			return errors.New("the session goes on")
		}
		<-conn.Done()
		_, err = client.Dial(ctx, socket)
		return err
	}()
	fmt.Println("then:", err)
	return 0
}

// A user that the policy no longer admits loses its sessions, and the tenant's other users
// continue; by allowedUids, and by the owner, group and mode of the sockets.
func TestReloadTakesAUserAway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be several users")
	}
	const bob, carol = 64001, 64002
	for name, change := range map[string]func(*manager.Tenant){
		"allowedUids": func(t *manager.Tenant) { t.AllowedUIDs = []uint32{0, carol} },
		"group":       func(t *manager.Tenant) { t.SocketGID = carol },
		"owner":       func(t *manager.Tenant) { t.SocketUID, t.SocketMode = carol, 0o600 },
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			require.NoError(t, os.Chmod(dir, 0o755))
			run := filepath.Join(dir, "run")
			require.NoError(t, os.Mkdir(run, 0o711))
			w := start(t, func(c *manager.Config) {
				c.RunDir = run
				d := c.Policy.Tenant("default")
				d.AllowedUIDs, d.SocketMode, d.SocketGID = []uint32{0, bob, carol}, 0o660, 64000
			})
			w.driver(1)
			visitor := executable(t, dir)
			begin := func(uid uint32) (said func() string) {
				cmd := exec.Command(visitor, "visit", w.SocketPath("default"))
				// Bob is in the group of the sockets besides his own, carol is not.
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{64000}}}
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				cmd.Stderr = os.Stderr
				require.NoError(t, cmd.Start())
				t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
				first := make([]byte, len("open\n"))
				_, err = io.ReadFull(out, first)
				require.NoError(t, err)
				require.Equal(t, "open\n", string(first))
				return func() string {
					rest, err := io.ReadAll(out)
					require.NoError(t, err)
					return string(rest)
				}
			}
			own := newCounter(t, w.open(w.dial("default"))) // root's, which can open everything
			bobs, carols := begin(bob), begin(carol)
			require.EqualValues(t, 3, w.held(ledger.Connections))

			changes := w.reload(func(p *manager.Policy) { change(p.Tenant("default")) })
			require.Equal(t, 1, changes.Tenants[0].Connections)
			require.Equal(t, 1, changes.Tenants[0].Sessions)
			said := bobs()
			require.Contains(t, said, "session: E_REVOKED: reason=policy: ")
			require.Contains(t, said, fmt.Sprint(bob))
			require.Regexp(t, `then: .*(E_DENIED|permission)`, said)
			require.NoError(t, own.round(5))
			require.Eventually(t, func() bool { return w.held(ledger.Connections) == 2 }, patience, time.Millisecond)

			w.reload(without("default"))
			require.Contains(t, carols(), "session: E_REVOKED: reason=policy: ", "she went on until then")
		})
	}
}

// executable copies this program for every user to run.
func executable(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	b, err := os.ReadFile(self)
	require.NoError(t, err)
	path := filepath.Join(dir, "visitor")
	require.NoError(t, proctest.WriteProgram(path, b))
	return path
}
