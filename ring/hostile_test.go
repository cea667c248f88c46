package ring

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// expectProtocol wants the ring to have ended for the driver, and the client to
// be told.
func expectProtocol(t *testing.T, s *Server, c *Client) {
	t.Helper()
	var e Entry
	for range 2 { // once ended, always ended
		if ok, err := s.Take(&e); ok || !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("Take() = %v, %v; want E_PROTOCOL", ok, err)
		}
		if err := s.WaitWork(testContext(t)); !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("WaitWork() = %v; want E_PROTOCOL", err)
		}
	}
	if code := gpuerr.Code(s.view.state.Load()); code != gpuerr.Protocol {
		t.Errorf("state = %v", code)
	}
	if wakesPending(t, fdOf(c.done)) == 0 {
		t.Error("the client was not woken")
	}
	s.Consumed()
	s.Flush()
}

// The client lies about its positions.
func TestLyingClient(t *testing.T) {
	for name, lie := range map[string]func(c *Client){
		"sqTail ahead":         func(c *Client) { c.view.sqTail.Store(2 + 4 + 1) },
		"sqTail far ahead":     func(c *Client) { c.view.sqTail.Store(1 << 40) },
		"sqTail back":          func(c *Client) { c.view.sqTail.Store(1) },
		"sqTail to 0":          func(c *Client) { c.view.sqTail.Store(0) },
		"sqTail wraps":         func(c *Client) { c.view.sqTail.Store(^uint64(0)) },
		"sqTail half the ring": func(c *Client) { c.view.sqTail.Store(2 + 1<<63) },
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			s, c := pair(t, 4, 64)
			for range 2 {
				push(t, c, NopEntry(0), nil, nil)
			}
			flush(t, c)
			take(t, s)
			take(t, s)
			s.Consumed()
			lie(c)
			expectProtocol(t, s, c)
		})
	}
	for name, head := range map[string]uint64{
		"cqHead beyond what is published": 6,
		"cqHead beyond what was taken":    9,
		"cqHead wraps":                    ^uint64(0),
		"cqHead back":                     2,
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			s, c := pair(t, 4, 64)
			send := func() {
				push(t, c, NopEntry(0), nil, nil)
				flush(t, c)
			}
			for range 8 { // use up the completion slots
				send()
				take(t, s)
				s.Consumed()
			}
			for range 5 {
				s.Complete(&Completion{Outcome: outcome.Success})
			}
			s.Flush()
			s.Complete(&Completion{Outcome: outcome.Success}) // not published
			c.view.cqHead.Store(3)
			for range 3 { // the driver looks at it, then uses it up
				send()
				take(t, s)
				s.Consumed()
			}
			send()
			c.view.cqHead.Store(head)
			expectProtocol(t, s, c)
		})
	}
}

// A range that lies is refused, whatever Check was told.
func TestLyingArgs(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 256)
	forge(c, NopEntry(0)) // in the submission queue
	take(t, s)
	for _, lie := range []struct{ off, n, count, inline uint64 }{
		{0, 257, 0, 257}, {256, 8, 0, 8}, {248, 16, 0, 16}, {0xfffffff8, 32, 1, 0}, {8, 0xffffffff, 65535, 65535},
		{4, 32, 1, 0}, {0, 64, 1, 0}, {0, 31, 1, 0}, {0, 65535 * 32, 65535, 0}, {0, 0, 1, 0},
	} {
		e := Entry{Op: OpLaunch, Object: 1, Count: uint16(lie.count), C: lie.inline << 16, D: lie.off | lie.n<<32}
		if b, in, err := s.Args(&e, nil, nil); !errors.Is(err, gpuerr.Invalid) || len(b)+len(in) > 0 {
			t.Errorf("Args(%+v) = %v, %v, %v", lie, b, in, err)
		}
		if err := Check(&e, 256); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Check(%+v) = %v", lie, err)
		}
	}
	for name, b := range map[string][4]uint64{
		"handle 0": {0, 1, 2, 0}, "overflow": {1, ^uint64(0), 1, 0}, "zero field": {1, 2, 3, 4},
	} {
		copy(c.view.args, b[:])
		e := Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32 << 32}
		if b, in, err := s.Args(&e, nil, nil); !errors.Is(err, gpuerr.Invalid) || len(b)+len(in) > 0 {
			t.Errorf("%s: Args() = %v, %v, %v", name, b, in, err)
		}
	}
}

// TestEntryChangesAfterTake: what was taken stays what it was, and an entry that
// changes all the time is always one of the two it was, never a mixture of words
// that were read twice.
func TestEntryChangesAfterTake(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 256)
	push(t, c, LaunchEntry(1, 2, Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0), []Binding{{Buffer: 5}}, []byte{1, 2})
	flush(t, c)
	e := take(t, s)
	before := e
	b, in, err := s.Args(&e, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	said := c.view.args
	*c.view.entry(0) = [entryWords]uint64{^uint64(0)}
	for i := range said {
		said[i] = ^uint64(0)
	}
	if e != before || b[0] != (Binding{Buffer: 5}) || in[0] != 1 || in[1] != 2 {
		t.Errorf("what was taken changed: %+v %v %v", e, b, in)
	}

	// The client flips bindings between one that is right and one that is not.
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); !stop.Load(); i++ {
			atomic.StoreUint64(&said[0], i%2*7)
			atomic.StoreUint64(&said[3], i%2)
		}
	})
	e = Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32 << 32}
	for range 100_000 {
		if b, _, err = s.Args(&e, b, in); err == nil && b[0].Buffer != 7 {
			t.Fatalf("binding %+v passed the check", b[0])
		}
	}
	stop.Store(true)
	wg.Wait()
}

// The driver lies about its positions.
func TestLyingDriver(t *testing.T) {
	out := make([]Completion, 16)
	for name, lie := range map[string]func(s *Server){
		"completion of what was not submitted": func(s *Server) {
			for i := 2; i < 5; i++ {
				s.view.cq[i] = [completionWords]uint64{1: okWord | 1<<lapShift}
			}
		},
		"lap far ahead":      func(s *Server) { s.view.cq[2][1] = 100 << lapShift },
		"lap ahead":          func(s *Server) { s.view.cq[2][1] = 2 << lapShift },
		"lap back":           func(s *Server) { s.view.cq[2][1] = 255 << lapShift },
		"lap of all ones":    func(s *Server) { s.view.cq[2][1] = ^uint64(0) },
		"ok with a binding":  func(s *Server) { s.view.cq[2][1] = 1<<48 | 1<<lapShift | okWord },
		"ok with a code":     func(s *Server) { s.view.cq[2][1] = 1<<32 | 1<<lapShift | okWord },
		"a lane of 2^16":     func(s *Server) { s.view.cq[2][3], s.view.cq[2][1] = 1<<48, 1<<lapShift|okWord },
		"no outcome":         func(s *Server) { s.view.cq[2][1] = 1 << lapShift },
		"completion pending": func(s *Server) { s.Complete(&Completion{}); s.Flush() },
		"unknown outcome":    func(s *Server) { s.Complete(&Completion{Outcome: outcome.Outcome{Kind: 99}}); s.Flush() },
		"unknown code":       func(s *Server) { s.Complete(&Completion{Outcome: trapped, Code: 999}); s.Flush() },
		"unknown state":      func(s *Server) { s.view.state.Store(12345) },
		"huge state":         func(s *Server) { s.view.state.Store(1<<16 + 2) },
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			s, c := pair(t, 4, 64)
			for i := range uint64(4) {
				push(t, c, NopEntry(i), nil, nil)
			}
			flush(t, c)
			for range 2 {
				take(t, s)
				s.Complete(&Completion{Outcome: outcome.Success})
			}
			s.Flush()
			if n, err := c.Poll(out); n != 2 || err != nil {
				t.Fatal(n, err)
			}
			lie(s)
			for range 2 {
				n, err := c.Wait(testContext(t), out)
				if strings.HasPrefix(name, "completion of") && n == 2 { // those that were
					n, err = c.Wait(testContext(t), out)
				}
				if n != 0 || !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("Wait() = %d, %v; want E_PROTOCOL", n, err)
				}
				// Nothing may be read from where there is nothing.
				if strings.HasPrefix(name, "completion of") && err != errDriverAhead {
					t.Errorf("Wait() = %v; want %v", err, errDriverAhead)
				}
				if strings.HasPrefix(name, "lap") && err != errDriverLap {
					t.Errorf("Wait() = %v; want %v", err, errDriverLap)
				}
			}
		})
	}
	for name, head := range map[string]uint64{"beyond": 5, "back": 1, "wraps": ^uint64(0), "far": 1 << 60} {
		t.Run("sqHead "+name, func(t *testing.T) {
			leakcheck.Check(t)
			s, c := pair(t, 4, 64)
			for i := range uint64(4) {
				push(t, c, LaunchEntry(i, 1, Dim3{}, Dim3{}, 0, 0), nil, make([]byte, 16))
			}
			flush(t, c)
			s.view.sqHead.Store(3)
			if n := c.Free(); n != 3 {
				t.Fatalf("Free() = %d", n)
			}
			for i := range uint64(3) {
				push(t, c, LaunchEntry(i, 1, Dim3{}, Dim3{}, 0, 0), nil, make([]byte, 16))
			}
			s.view.sqHead.Store(head)
			e := NopEntry(0)
			for range 2 {
				if err := c.Push(&e, nil, nil); !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("Push() = %v; want E_PROTOCOL", err)
				}
				if err := c.Flush(); !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("Flush() = %v; want E_PROTOCOL", err)
				}
			}
			if n := c.Free(); n != 0 {
				t.Errorf("Free() = %d", n)
			}
		})
	}
}

// TestHeaderOutlivesAttach: neither side reads the header again.
func TestHeaderOutlivesAttach(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	clear(c.mapping[:offSQHead])
	e := NopEntry(1)
	for range 20 {
		push(t, c, e, nil, nil)
		flush(t, c)
		take(t, s)
		s.Consumed()
		s.Complete(&Completion{Outcome: outcome.Success})
		s.Flush()
		if n, err := c.Poll(make([]Completion, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
}

func TestAttachRefuses(t *testing.T) {
	for name, spoil := range map[string]func(s *Server, h *header){
		"magic":               func(s *Server, h *header) { h.magic++ },
		"entries 0":           func(s *Server, h *header) { h.entries, h.completions = 0, 0 },
		"entries 3":           func(s *Server, h *header) { h.entries, h.completions = 3, 6 },
		"entries huge":        func(s *Server, h *header) { h.entries, h.completions = 1<<31, 0 },
		"completions":         func(s *Server, h *header) { h.completions++ },
		"argBytes huge":       func(s *Server, h *header) { h.argBytes = 0xffffffc0 },
		"argBytes beyond":     func(s *Server, h *header) { h.argBytes = 1 << 20 },
		"argBytes odd":        func(s *Server, h *header) { h.argBytes = 65 },
		"sq in the header":    func(s *Server, h *header) { h.sq = 64 },
		"sq odd":              func(s *Server, h *header) { h.sq++ },
		"cq over sq":          func(s *Server, h *header) { h.cq = h.sq },
		"arena over cq":       func(s *Server, h *header) { h.arena = h.cq },
		"arena beyond":        func(s *Server, h *header) { h.arena = 0xffffffc0 },
		"arena odd":           func(s *Server, h *header) { h.arena += 8 },
		"cq odd":              func(s *Server, h *header) { h.cq += 32 },
		"cq and arena beyond": func(s *Server, h *header) { h.cq, h.arena = 1<<30, 1<<31 },
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			s := newServer(t, Config{Entries: 4, ArgBytes: 64})
			h := s.layout.header()
			spoil(s, &h)
			storeHeader(s.mapping, h)
			ring, sq, cq, err := s.HandOut()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Attach(ring, sq, cq); !errors.Is(err, gpuerr.Protocol) {
				t.Errorf("Attach() = %v", err)
			}
		})
	}
}

func TestAttachRefusesDescriptors(t *testing.T) {
	unsealed := func() int {
		fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, 1<<20); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	null := func() int {
		f, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, change := range map[string]func(ring, sq, cq *int){
		"unsealed memory": func(ring, sq, cq *int) { unix.Close(*ring); *ring = unsealed() },
		"no memory":       func(ring, sq, cq *int) { unix.Close(*ring); *ring = null() },
		"no sq":           func(ring, sq, cq *int) { unix.Close(*sq); *sq = null() },
		"no cq":           func(ring, sq, cq *int) { unix.Close(*cq); *cq = null() },
		"wrong ends":      func(ring, sq, cq *int) { *sq, *cq = *cq, *sq },
		"closed":          func(ring, sq, cq *int) { unix.Close(*cq); *cq = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			s := newServer(t, Config{Entries: 4, ArgBytes: 64})
			ring, sq, cq, err := s.HandOut()
			if err != nil {
				t.Fatal(err)
			}
			change(&ring, &sq, &cq)
			if _, err := Attach(ring, sq, cq); err == nil {
				t.Error("Attach() took it")
			}
		})
	}
}
