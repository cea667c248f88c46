package ring

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) {
	if os.Getenv(clientEnv) != "" {
		os.Exit(runClientProcess())
	}
	if os.Getenv(benchEnv) != "" {
		if err := runBenchProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leakcheck.Main(m)
}

// longEnough bounds every wait of these tests; none is expected to need it.
const longEnough = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), longEnough)
	t.Cleanup(cancel)
	return ctx
}

func newServer(t testing.TB, cfg Config) *Server {
	t.Helper()
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(0) })
	return s
}

func attach(t testing.TB, s *Server) *Client {
	t.Helper()
	ring, sq, cq, err := s.HandOut()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Attach(ring, sq, cq)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func pair(t testing.TB, entries, argBytes uint32) (*Server, *Client) {
	t.Helper()
	s := newServer(t, Config{Entries: entries, ArgBytes: argBytes})
	return s, attach(t, s)
}

// take expects an entry.
func take(t testing.TB, s *Server) Entry {
	t.Helper()
	var e Entry
	if ok, err := s.Take(&e); !ok || err != nil {
		t.Fatalf("Take() = %v, %v", ok, err)
	}
	return e
}

// push expects room.
func push(t testing.TB, c *Client, e Entry, bindings []Binding, inline []byte) {
	t.Helper()
	if err := c.Push(&e, bindings, inline); err != nil {
		t.Fatalf("Push(%+v) = %v", e, err)
	}
}

func flush(t testing.TB, c *Client) {
	t.Helper()
	if err := c.Flush(); err != nil {
		t.Fatalf("Flush() = %v", err)
	}
}

// forge publishes an entry without looking at anything, as a client may that does all by
// itself.
func forge(c *Client, e Entry) {
	e.store(c.view.entry(c.view.sqTail.Load()))
	c.view.sqTail.Add(1)
}

// fdOf is the descriptor of an end of a wake pipe.
func fdOf(end any) int { return end.(interface{ FD() int }).FD() }

// wakesPending says how many wakes lie in a pipe.
func wakesPending(t testing.TB, fd int) int {
	t.Helper()
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
