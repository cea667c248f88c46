// Package qmp speaks QEMU's machine protocol: JSON, a line for each message
// (QEMU's docs/interop/qmp-spec.txt). It holds no more of it than a test needs:
// commands, their answers, and events.
package qmp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxMessageBytes bounds one message; eventBacklog bounds the events that were not asked for,
// of which the oldest are dropped.
const (
	maxMessageBytes = 1 << 20
	eventBacklog    = 256
)

// Event is something that happened to the machine.
type Event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
}

// Error is QEMU's refusal of a command.
type Error struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (e *Error) Error() string { return e.Class + ": " + e.Desc }

// Client is one monitor connection. Its methods may be called from any goroutine.
type Client struct {
	conn io.ReadWriteCloser
	done chan struct{} // closed when the reader has ended

	mu sync.Mutex
	// +checklocks:mu
	next uint64
	// +checklocks:mu
	waiting map[uint64]chan message
	// +checklocks:mu
	events []Event
	// +checklocks:mu
	arrived chan struct{} // closed and replaced at each event
	// +checklocks:mu
	err error
}

// message is any message of QEMU.
type message struct {
	Greeting json.RawMessage `json:"QMP"`
	ID       uint64          `json:"id"`
	Return   json.RawMessage `json:"return"`
	Error    *Error          `json:"error"`
	Event
}

// New takes over conn, which is at its start, and leaves negotiation mode.
func New(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	c := &Client{conn: conn, done: make(chan struct{}), waiting: map[uint64]chan message{}, arrived: make(chan struct{})}
	go c.runRead()
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Execute runs a command. arguments and result may be nil. A refusal is an *Error.
func (c *Client) Execute(ctx context.Context, command string, arguments, result any) error {
	answer := make(chan message, 1)
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}

	c.next++
	id := c.next
	c.waiting[id] = answer
	request := struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{command, arguments, id}
	line, err := json.Marshal(request)
	if err == nil {
		// Under the lock, so that lines do not mix. QEMU reads in any state.
		_, err = c.conn.Write(append(line, '\n'))
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}()

	if err != nil {
		return fmt.Errorf("qmp: %s: %w", command, err)
	}

	select {
	case m := <-answer:
		if m.Error != nil {
			return fmt.Errorf("qmp: %s: %w", command, m.Error)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Return, result)
	case <-c.done:
		return fmt.Errorf("qmp: %s: %w", command, c.failure())
	case <-ctx.Done():
		return fmt.Errorf("qmp: %s: %w", command, context.Cause(ctx))
	}
}

// WaitEvent returns the next event that match accepts and drops those before it.
func (c *Client) WaitEvent(ctx context.Context, match func(Event) bool) (Event, error) {
	for {
		c.mu.Lock()
		for len(c.events) > 0 {
			e := c.events[0]
			c.events = c.events[1:]
			if match(e) {
				c.mu.Unlock()
				return e, nil
			}
		}
		arrived, err := c.arrived, c.err
		c.mu.Unlock()
		if err != nil {
			return Event{}, err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return Event{}, fmt.Errorf("qmp: wait for an event: %w", context.Cause(ctx))
		}
	}
}

// RemoveDevice asks the guest to let go of a device (device_del) and waits until
// it has: DEVICE_DELETED.
func (c *Client) RemoveDevice(ctx context.Context, id string) error {
	if err := c.Execute(ctx, "device_del", map[string]string{"id": id}, nil); err != nil {
		return err
	}
	_, err := c.WaitEvent(ctx, func(e Event) bool {
		var data struct{ Device string }
		return e.Name == "DEVICE_DELETED" && json.Unmarshal(e.Data, &data) == nil && data.Device == id
	})
	return err
}

// Close ends the connection; it does not end QEMU.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

func (c *Client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Client) runRead() {
	defer close(c.done)
	in := bufio.NewScanner(c.conn)
	in.Buffer(nil, maxMessageBytes)
	err := errors.New("the monitor's connection has ended")
	for in.Scan() {
		var m message
		if line := bytes.TrimSpace(in.Bytes()); len(line) == 0 {
			continue
		} else if bad := json.Unmarshal(line, &m); bad != nil {
			err = fmt.Errorf("not a message: %w", bad)
			break
		}
		c.take(m)
	}

	if in.Err() != nil {
		err = in.Err()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	close(c.arrived)
	c.arrived = make(chan struct{})
}

func (c *Client) take(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.Greeting != nil:
	case m.Name != "":
		if len(c.events) == eventBacklog {
			c.events = c.events[1:]
		}
		c.events = append(c.events, m.Event)
		close(c.arrived)
		c.arrived = make(chan struct{})
	default:
		if answer := c.waiting[m.ID]; answer != nil {
			delete(c.waiting, m.ID)
			answer <- m
		}
	}
}
