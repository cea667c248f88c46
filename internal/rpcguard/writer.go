package rpcguard

import (
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// coalesceBytes is up to how much of the queue goes out by one write.
	coalesceBytes = 64 << 10
	// An unsent descriptor counts as fdChargeBytes.
	fdChargeBytes = 4096
)

// outMessage is a message on its way out. The writer closes its descriptors.
type outMessage struct {
	bytes []byte
	fds   []int
}

func (m *outMessage) charge() int64 {
	return int64(len(m.bytes)) + int64(len(m.fds))*fdChargeBytes
}

func (m *outMessage) closeFDs() {
	for _, fd := range m.fds {
		unix.Close(fd)
	}
}

// writer sends messages in order from a goroutine of its own.
type writer struct {
	conn    *net.UnixConn
	timeout time.Duration
	onRoom  func()      // called when bytes have left
	onError func(error) // called once, when a write failed
	wake    chan struct{}
	done    chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	queue []outMessage
	// +checklocks:mu
	unsentBytes int64
	// +checklocks:mu
	closed bool // no more messages are taken
}

func newWriter(conn *net.UnixConn, timeout time.Duration, onRoom func(), onError func(error)) *writer {
	return &writer{
		conn: conn, timeout: timeout, onRoom: onRoom, onError: onError,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// send queues m; after close it is dropped.
func (w *writer) send(m outMessage) {
	w.mu.Lock()
	closed := w.closed
	if !closed {
		w.queue = append(w.queue, m)
		w.unsentBytes += m.charge()
	}
	w.mu.Unlock()
	if closed {
		m.closeFDs()
		return
	}
	w.signal()
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) unsent() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unsentBytes
}

// close accepts no more messages; queued ones are still sent. done is closed after the last
// one.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
}

// runWriter is the writer's goroutine.
func (w *writer) runWriter() {
	defer close(w.done)
	var spare []outMessage
	for {
		w.mu.Lock()
		batch, closed := w.queue, w.closed
		if len(batch) > 0 {
			w.queue = spare[:0] // the two arrays take turns
		}
		w.mu.Unlock()
		if len(batch) == 0 {
			if closed {
				return
			}
			<-w.wake
			continue
		}
		if err := w.write(batch); err != nil {
			w.fail(err)
			return
		}
		clear(batch)
		spare = batch
	}
}

// fail drops everything that is queued or still to come.
func (w *writer) fail(err error) {
	w.mu.Lock()
	w.closed = true
	rest := w.queue
	w.queue = nil
	w.mu.Unlock()
	for i := range rest {
		rest[i].closeFDs()
	}
	w.onError(err)
}

// write sends a batch: messages with descriptors one by one, others joined.
func (w *writer) write(batch []outMessage) error {
	for i := 0; i < len(batch); {
		n := joinable(batch[i:])
		var charge int64
		for j := range n {
			charge += batch[i+j].charge()
		}
		err := w.writeJoined(batch[i : i+n])
		if err != nil {
			for j := i + n; j < len(batch); j++ {
				batch[j].closeFDs()
			}
			return err
		}
		i += n
		w.mu.Lock()
		w.unsentBytes -= charge
		w.mu.Unlock()
		w.onRoom()
	}

	return nil
}

// joinable counts the first messages that one write may carry.
func joinable(batch []outMessage) int {
	if len(batch[0].fds) > 0 {
		return 1
	}
	size, n := len(batch[0].bytes), 1
	for n < len(batch) && len(batch[n].fds) == 0 && size+len(batch[n].bytes) <= coalesceBytes {
		size += len(batch[n].bytes)
		n++
	}
	return n
}

func (w *writer) writeJoined(batch []outMessage) error {
	defer batch[0].closeFDs()
	if err := w.conn.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return err
	}

	out := batch[0].bytes
	if len(batch) > 1 {
		out = make([]byte, 0, coalesceBytes)
		for _, m := range batch {
			out = append(out, m.bytes...)
		}
	}

	if len(batch[0].fds) > 0 {
		// The first byte carries the descriptors, however short the write.
		n, _, err := w.conn.WriteMsgUnix(out, unix.UnixRights(batch[0].fds...), nil)
		if err != nil {
			return err
		}
		out = out[n:]
		if len(out) == 0 {
			return nil
		}
	}

	_, err := w.conn.Write(out)
	return err
}
