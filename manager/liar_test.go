package manager_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/ddf/ddfrpc"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/manager"
)

// lies are drivers that misbehave. Each is a process of this test binary, started by the
// manager with "lie NAME"; it ends with its links or by a signal.
var lies = map[string]func(supervision *control.Conn, grants *net.UnixConn) error{
	"garbage on the supervision link": func(c *control.Conn, _ *net.UnixConn) error {
		raw, err := c.SyscallConn()
		if err != nil {
			return err
		}
		err = raw.Write(func(fd uintptr) bool {
			_, werr := unix.Write(int(fd), []byte("open sesame"))
			return werr != unix.EAGAIN
		})
		if err != nil {
			return err
		}
		return hang()
	},
	"garbage on the grant link": func(_ *control.Conn, g *net.UnixConn) error {
		if _, err := g.Write([]byte("\x00\x00\x00\x00\x01\x00\x00\x00open sesame, all of it, if you please")); err != nil {
			return err
		}
		return hang()
	},
	"an epoch that is not its": func(c *control.Conn, _ *net.UnixConn) error {
		caller := control.NewPeer(context.Background(), c, obey)
		_, err := caller.Call(context.Background(), control.TypeReady, control.ReadyRequest{Epoch: 77}.AppendTo(nil), nil)
		return fmt.Errorf("said: %w", err)
	},
	"ready again and again": func(c *control.Conn, _ *net.UnixConn) error {
		caller := control.NewPeer(context.Background(), c, obey)
		for {
			_, err := caller.Call(context.Background(), control.TypeReady, control.ReadyRequest{Epoch: 1, MemoryBytes: 1 << 60}.AppendTo(nil), nil)
			if errors.Is(err, gpuerr.Disconnected) {
				return err
			}
		}
	},
	"a request that no driver makes": func(c *control.Conn, _ *net.UnixConn) error {
		caller := control.NewPeer(context.Background(), c, obey)
		for _, m := range []control.MsgType{control.TypePing, control.TypeShutdown, control.TypeListDevices} {
			if _, err := caller.Call(context.Background(), m, nil, nil); !errors.Is(err, gpuerr.Unimplemented) {
				return fmt.Errorf("%v was answered %v", m, err)
			}
		}
		return errors.New("all were refused")
	},
	"no session for anybody": func(c *control.Conn, _ *net.UnixConn) error {
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeAttach {
				<-ctx.Done()
			}
			return obey(ctx, m)
		})
	},
	"no room for anybody": func(c *control.Conn, _ *net.UnixConn) error {
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeAttach {
				m.CloseFDs()
				return control.ErrorReply(m, gpuerr.New(gpuerr.Busy, "no room"))
			}
			return obey(ctx, m)
		})
	},
	"its device is lost": func(c *control.Conn, _ *net.UnixConn) error {
		lost := sync.OnceFunc(func() { time.AfterFunc(time.Second/10, func() { os.Exit(3) }) })
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeAttach {
				lost()
				m.CloseFDs()
				return control.ErrorReply(m, gpuerr.New(gpuerr.DeviceLost, "it hangs"))
			}
			return obey(ctx, m)
		})
	},
	"all the memory there is": func(c *control.Conn, g *net.UnixConn) error {
		link, err := ddfrpc.Dial(context.Background(), g)
		if err != nil {
			return err
		}
		for err == nil { // and never frees
			_, err = link.GrantSet().DMA.Alloc(context.Background(), 1<<20)
		}
		if !errors.Is(err, gpuerr.Quota) {
			return err
		}
		return sayReady(c, obey)
	},
	"no ear for limits": func(c *control.Conn, _ *net.UnixConn) error {
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeSetTenant {
				<-ctx.Done()
			}
			return obey(ctx, m)
		})
	},
	"no limits for anybody": func(c *control.Conn, _ *net.UnixConn) error {
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeSetTenant {
				return control.ErrorReply(m, gpuerr.New(gpuerr.Internal, "no"))
			}
			return obey(ctx, m)
		})
	},
	"no end for anybody": func(c *control.Conn, _ *net.UnixConn) error {
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeEndSessions {
				<-ctx.Done()
			}
			return obey(ctx, m)
		})
	},
	"no word of an end": func(c *control.Conn, _ *net.UnixConn) error {
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeEndSessions {
				return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "what is that"))
			}
			return obey(ctx, m)
		})
	},
	"the end of sessions that are not": func(c *control.Conn, g *net.UnixConn) error {
		link, err := ddfrpc.Dial(context.Background(), g)
		if err != nil {
			return err
		}
		for _, detail := range []string{"", "attach", "attach=", "attach=-1", "attach=9", "attach=0 attach=1", `cause="attach=1 "`} {
			if err := link.GrantSet().Audit.Append("session.close", detail); err != nil {
				return err
			}
		}
		return sayReady(c, obey)
	},
	"escape sequences for a terminal": func(c *control.Conn, _ *net.UnixConn) error {
		caller := control.NewPeer(context.Background(), c, func(_ context.Context, m *control.Message) *control.Message {
			defer m.CloseFDs()
			if m.Type == control.TypeAttach {
				defer time.AfterFunc(time.Second/2, func() {
					fmt.Fprintln(os.Stderr, escape)
					os.Exit(3)
				})
				return control.ErrorReply(m, gpuerr.New(gpuerr.Denied, "%s", escape))
			}
			return control.NewReply(m, nil)
		})
		if _, err := caller.Call(context.Background(), control.TypeReady, control.ReadyRequest{Epoch: 1, Backend: escape}.AppendTo(nil), nil); err != nil {
			return err
		}
		return hang()
	},
	"a status that is none": func(c *control.Conn, _ *net.UnixConn) error {
		return sayReady(c, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeDriverStatus {
				return control.NewReply(m, make([]byte, control.MaxLongBytes-control.HeaderBytes))
			}
			return obey(ctx, m)
		})
	},
}

// escape sets the title of a terminal and clears it.
const escape = "\x1b]0;owned\x07\x1b[2Jowned"

func hang() error {
	time.Sleep(time.Hour) // an empty select is a deadlock where nothing else can wake
	return nil
}

// obey answers every request with an empty body.
func obey(_ context.Context, m *control.Message) *control.Message {
	m.CloseFDs()
	return control.NewReply(m, nil)
}

func sayReady(c *control.Conn, h control.Handler) error {
	caller := control.NewPeer(context.Background(), c, h)
	if _, err := caller.Call(context.Background(), control.TypeReady, control.ReadyRequest{Epoch: 1, MemoryBytes: 1 << 60, Backend: "liar"}.AppendTo(nil), nil); err != nil {
		return err
	}
	<-caller.Done()
	return caller.Err()
}

// lie is the main function of such a driver.
func lie(name string) int {
	conn, err := control.NewConn(3, control.ConnOptions{Descriptors: true})
	if err == nil {
		f := os.NewFile(4, "grant link")
		var c net.Conn
		if c, err = net.FileConn(f); err == nil {
			f.Close()
			err = lies[name](conn, c.(*net.UnixConn))
		}
	}
	fmt.Fprintln(os.Stderr, "liar:", err)
	return 3
}

// lied starts a manager on such a driver, which is started once.
func lied(t *testing.T, name string, change ...func(*manager.Config)) *world {
	self, err := os.Executable()
	require.NoError(t, err)
	require.Contains(t, lies, name)
	return start(t, func(c *manager.Config) {
		c.DriverPath, c.DriverArgs = self, []string{"lie", name}
		c.Policy.Device.Respawn.Budget = 0
		c.Policy.Device.MemoryBytes = 64 << 20
		c.ReadyTimeout = patience
		c.PingTimeout = 2 * time.Second
		for _, f := range change {
			f(c)
		}
	})
}

func TestLiarsEndWedged(t *testing.T) {
	for name, cause := range map[string]string{
		"garbage on the supervision link": "supervision link failed",
		"garbage on the grant link":       "grant link ended",
		"an epoch that is not its":        "E_PROTOCOL",
		"a request that no driver makes":  "all were refused",
		"no ear for limits":               "did not answer for 2s",
	} {
		t.Run(name, func(t *testing.T) {
			w := lied(t, name)
			c := w.dial("default")
			var st client.State
			for st.State != client.Wedged {
				var err error
				st, err = c.NextState(within(t), 0, st.Epoch)
				require.NoError(t, err)
			}
			_, err := c.Open(within(t), 0)
			require.ErrorContains(t, err, cause)
			noDrivers(t)
			require.Zero(t, w.held(ledger.DeviceMemory))
			require.NoError(t, w.Check())
		})
	}
}

func TestLiarIsBounded(t *testing.T) {
	w := lied(t, "all the memory there is", func(c *manager.Config) {
		// The next one comes late, so that the rest of the first is visible.
		c.Policy.Device.Respawn.FirstDelay, c.Policy.Device.Respawn.MaxDelay = time.Minute, time.Minute
	})
	c := w.dial("default")
	_, pid := w.driver(1)
	require.EqualValues(t, 64<<20, w.held(ledger.DeviceMemory))
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.EqualValues(t, 64<<20, devices[0].MemoryBytes, "a driver cannot claim more than the policy grants")
	kill(t, pid)
	require.Eventually(t, func() bool { return w.held(ledger.DeviceMemory)+w.held(ledger.IOVAEntries) == 0 }, patience, time.Millisecond)
}

func TestLiarWithoutSessions(t *testing.T) {
	w := lied(t, "no session for anybody")
	c := w.dial("default")
	w.driver(1)
	_, err := c.Open(within(t), 0)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "did not answer")
}

func TestLiarReadyAgain(t *testing.T) {
	w := lied(t, "ready again and again")
	w.driver(1)
	s, err := w.dial("default").Open(within(t), 0)
	require.NoError(t, err)
	s.Close(within(t)) // of a socket that no process serves
}

// A driver that refuses limits may still work: sessions bring them again.
func TestLiarWithoutLimits(t *testing.T) {
	w := lied(t, "no limits for anybody")
	w.driver(1)
	s, err := w.dial("default").Open(within(t), 0)
	require.NoError(t, err)
	s.Close(within(t))
}

// A driver's claims about sessions change the records of their end and no more.
func TestLiarAboutSessions(t *testing.T) {
	w := lied(t, "the end of sessions that are not")
	_, pid := w.driver(1)
	s, err := w.dial("default").Open(within(t), 0)
	require.NoError(t, err)
	kill(t, pid)
	<-s.Done()
	require.Eventually(t, func() bool { return w.log.kinds()["session.lost"] == 1 }, patience, time.Millisecond)
	s.Close(within(t))
}

// Text of a driver reaches a terminal as plain text only.
func TestLiarWritesNoEscapes(t *testing.T) {
	w := lied(t, "escape sequences for a terminal", func(c *manager.Config) {
		c.Policy.Device.Respawn.FirstDelay, c.Policy.Device.Respawn.MaxDelay = time.Minute, time.Minute
	})
	c := w.dial("default")
	epoch, _ := w.driver(1)
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	_, refusal := c.Open(within(t), 0)
	require.ErrorIs(t, refusal, gpuerr.Denied)
	st, err := c.NextState(within(t), 0, epoch)
	require.NoError(t, err)
	require.Equal(t, client.Recovering, st.State)
	require.Eventually(t, func() bool { return w.log.kinds()["driver.end"] == 1 }, patience, time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range append(w.lines, devices[0].Backend, refusal.Error(), st.Cause, fmt.Sprint(w.log.texts())) {
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\x07")
	}
	require.Contains(t, devices[0].Backend, "owned")
	require.Contains(t, refusal.Error(), "owned")
}

func TestLiarStatus(t *testing.T) {
	w := lied(t, "a status that is none")
	c := w.dial("default")
	w.driver(1)
	status, err := c.Status(within(t), 0)
	if err == nil {
		require.LessOrEqual(t, len(status), control.MaxLongBytes)
	}
	_, err = c.Devices(within(t))
	require.NoError(t, err)
}
