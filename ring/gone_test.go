package ring

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// TestMemoryGone: an access of the ring that faults, as one of a punched page does
// when the host is out of memory, ends that ring and nothing else.
func TestMemoryGone(t *testing.T) {
	for name, touch := range map[string]func(s *Server) error{
		"Take":      func(s *Server) error { _, err := s.Take(new(Entry)); return err },
		"Published": func(s *Server) error { s.Published(); return nil },
		"Consumed":  func(s *Server) error { s.Consumed(); return nil },
		"Complete":  func(s *Server) error { s.Complete(&Completion{Outcome: outcome.Success}); s.Flush(); return nil },
		"Flush":     func(s *Server) error { s.Flush(); return nil },
		"WaitWork":  func(s *Server) error { return s.WaitWork(context.Background()) },
		"Marks":     func(s *Server) error { s.Marks(); return nil },
		"Arm":       func(s *Server) error { _, err := s.Arm(); return err },
		"Disarm":    func(s *Server) error { return s.Disarm() },
		"Args": func(s *Server) error {
			e := LaunchEntry(0, 1, Dim3{}, Dim3{}, 0, 0)
			e.Count, e.D = 1, BindingBytes<<32
			_, _, err := s.Args(&e, nil, nil)
			return err
		},
		"Close": func(*Server) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			leakcheck.Check(t)
			s, c := pair(t, 4, 64)
			push(t, c, NopEntry(0), nil, nil)
			push(t, c, NopEntry(1), nil, nil)
			flush(t, c)
			take(t, s)
			s.Complete(&Completion{Outcome: outcome.Success}) // not flushed
			if err := unix.Mprotect(s.mapping, unix.PROT_NONE); err != nil {
				t.Fatal(err)
			}
			if err := touch(s); err != nil && !errors.Is(err, gpuerr.Protocol) {
				t.Errorf("%v", err)
			}
			if name != "Close" {
				if _, err := s.Take(new(Entry)); !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("Take() afterwards: %v", err)
				}
				if err := s.WaitWork(context.Background()); !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("WaitWork() afterwards: %v", err)
				}
				s.Complete(&Completion{Outcome: outcome.Success})
				s.Flush()
			}
			s.Close(gpuerr.Revoked)
			// The client, which still has its memory, is told by the end of the pipe.
			if _, err := c.Wait(testContext(t), make([]Completion, 1)); !errors.Is(err, gpuerr.Disconnected) {
				t.Errorf("Wait() = %v", err)
			}
		})
	}
}

// TestClientErr: the client is told at once that the driver serves it no more, although
// there are completions to take first.
func TestClientErr(t *testing.T) {
	leakcheck.Check(t)
	for name, end := range map[string]struct {
		by   func(s *Server, c *Client)
		code gpuerr.Code
	}{
		"revoked": {func(s *Server, _ *Client) { s.Close(gpuerr.Revoked) }, gpuerr.Revoked},
		"died":    {func(s *Server, _ *Client) { s.done.Close() }, gpuerr.Disconnected},
		"closed":  {func(_ *Server, c *Client) { c.Close() }, gpuerr.Closed},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := pair(t, 4, 64)
			push(t, c, NopEntry(0), nil, nil)
			flush(t, c)
			take(t, s)
			s.Complete(&Completion{Outcome: outcome.Success})
			s.Flush()
			if err := c.Err(); err != nil {
				t.Errorf("Err() of a ring that is served: %v", err)
			}
			end.by(s, c)
			if err := c.Err(); !errors.Is(err, end.code) {
				t.Errorf("Err() = %v, want %v", err, end.code)
			}
			if name == "closed" {
				return
			}
			if n, err := c.Poll(make([]Completion, 1)); n != 1 || err != nil {
				t.Errorf("Poll() = %d, %v", n, err)
			}
		})
	}
}
