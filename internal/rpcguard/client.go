package rpcguard

import (
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc/transport"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/yield"
)

// ClientTransport is the transport of a Go client: rpc.NewConn(NewClientTransport(c), nil).
// It trusts its server not to crash it, though not to be whole: messages are
// bounded and walked like those of Serve. It receives descriptors.
type ClientTransport struct {
	transport.Transport
	codec *clientCodec
}

// NewClientTransport takes ownership of c.
func NewClientTransport(c *net.UnixConn) *ClientTransport {
	codec := &clientCodec{conn: c, maxBytes: DefaultLimits().MaxMessageBytes, fds: map[uint32]heldFD{}, open: map[uint32]bool{}}
	return &ClientTransport{Transport: transport.New(codec), codec: codec}
}

// TakeFD hands out, once, the descriptor that came with client: a capability
// from the results of a call over this very transport, not yet released. The
// caller closes it. Take it before releasing the results.
func (t *ClientTransport) TakeFD(client capnp.Client) (fd int, ok bool) {
	id, ok := importID(client)
	if !ok {
		return -1, false
	}
	return t.codec.take(id)
}

// importID is the id that the server gave to a capability. go-capnp shows it only in the
// hook's description; a test pins the format.
func importID(client capnp.Client) (uint32, bool) {
	m := importPattern.FindStringSubmatch(client.String())
	if m == nil {
		return 0, false
	}
	id, err := strconv.ParseUint(m[1], 10, 32)
	return uint32(id), err == nil
}

var importPattern = regexp.MustCompile(`^<client importClient\{c: 0x[0-9a-f]+, id: ([0-9]+)\}>$`)

// clientCodec frames messages. Reads are of exact length, as descriptors come
// with the first byte of their message and a longer read would mix them.
//
// A descriptor that came is closed here unless TakeFD hands it out:
//
//	Return ──► held ──TakeFD──► the caller's
//	  │          ├── Release of its capability ──► closed
//	  │          ├── Finish that gives the results back ──► closed
//	  │          └── Close ──► closed
//	  └── its question was finished before ──► closed
//
// go-capnp drops the answer to a question that was cancelled without a Release: the
// Finish says instead that the results are given back.
type clientCodec struct {
	conn     *net.UnixConn
	maxBytes uint32
	writeMu  sync.Mutex // one message at a time
	arrived  []int      // by the message being read; only the reader's
	oob      [16 + 4*(maxFDs+1)]byte

	mu sync.Mutex
	// fds that came and were not taken, by import id.
	// +checklocks:mu
	fds map[uint32]heldFD
	// open are the questions that have not returned: whether the answer is wanted. go-capnp
	// uses a number again when its question has returned and is finished.
	// +checklocks:mu
	open map[uint32]bool
	// +checklocks:mu
	closed bool
}

// heldFD is a descriptor that TakeFD has not handed out.
type heldFD struct {
	fd       int
	question uint32 // it came with the answer to this question
	settled  bool   // that question is finished, and its results are kept
}

// Encode implements transport.Codec.
func (c *clientCodec) Encode(m *capnp.Message) error {
	yield.Step()
	b, err := m.Marshal()
	if err != nil {
		return err
	}

	c.note(m)
	yield.Step()
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(DefaultLimits().WriteTimeout)); err != nil {
		return lostLink(err)
	}

	if _, err = c.conn.Write(b); err != nil {
		c.conn.Close() // the stream may be cut within a message
		return lostLink(err)
	}

	return nil
}

// lostLink returns the error of a call that could not be sent. go-capnp makes an exception of
// type failed from it, and FromException finds the code there.
func lostLink(err error) error {
	return gpuerr.New(gpuerr.Disconnected, "the link is down: %v", err)
}

// note sees which questions are asked, and closes the descriptors that will not be taken:
// those of a capability that is released, and of a question that is finished with its results
// given back.
func (c *clientCodec) note(m *capnp.Message) {
	root, err := rpccp.ReadRootMessage(m)
	if err != nil {
		return
	}

	switch root.Which() {
	case rpccp.Message_Which_bootstrap:
		if b, err := root.Bootstrap(); err == nil {
			c.asked(b.QuestionId())
		}
	case rpccp.Message_Which_call:
		if call, err := root.Call(); err == nil {
			c.asked(call.QuestionId())
		}
	case rpccp.Message_Which_finish:
		if f, err := root.Finish(); err == nil {
			c.finished(f.QuestionId(), f.ReleaseResultCaps())
		}
	case rpccp.Message_Which_release:
		if r, err := root.Release(); err == nil {
			if fd, ok := c.take(r.Id()); ok {
				unix.Close(fd)
			}
		}
	}
}

func (c *clientCodec) asked(question uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[question] = true
}

// finished says that a question is, and whether its results are given back: then what came
// with them is closed, or will be when it comes.
func (c *clientCodec) finished(question uint32, givenBack bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.open[question]; open {
		c.open[question] = !givenBack
		return
	}

	for id, h := range c.fds {
		switch {
		case h.settled || h.question != question:
		case givenBack:
			unix.Close(h.fd)
			delete(c.fds, id)
		default:
			h.settled = true
			c.fds[id] = h
		}
	}
}

// returnedLocked reports whether the answer to a question, which has come, is still wanted.
//
// +checklocks:c.mu
func (c *clientCodec) returnedLocked(question uint32) (wanted bool) {
	wanted = c.open[question]
	delete(c.open, question)
	return wanted
}

func (c *clientCodec) take(id uint32) (int, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, ok := c.fds[id]
	if !ok {
		return -1, false
	}
	delete(c.fds, id)
	return h.fd, true
}

// Decode implements transport.Codec.
func (c *clientCodec) Decode() (*capnp.Message, error) {
	f, err := readFrame(exactReader{c}, c.maxBytes)
	if err != nil {
		c.dropArrived()
		return nil, err
	}
	m, err := f.checked()
	if err != nil {
		c.dropArrived()
		return nil, err
	}
	c.assignFDs(m)
	yield.Step()
	return m, nil
}

// exactReader reads no more than it is asked for and keeps descriptors.
type exactReader struct{ c *clientCodec }

func (r exactReader) Read(b []byte) (int, error) {
	n, oobn, _, _, err := r.c.conn.ReadMsgUnix(b, r.c.oob[:])
	if err != nil {
		return n, err
	}
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	r.c.arrived = append(r.c.arrived, rightsIn(r.c.oob[:oobn])...)
	return n, nil
}

// rightsIn parses SCM_RIGHTS messages. package net received them close-on-exec.
func rightsIn(oob []byte) []int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all []int
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

func (c *clientCodec) dropArrived() {
	closeAll(c.arrived)
	c.arrived = nil
}

// assignFDs matches the descriptors of an answer to the capabilities of its results. It
// closes those that match none or are no longer wanted.
func (c *clientCodec) assignFDs(m *capnp.Message) {
	defer c.dropArrived()
	root, err := rpccp.ReadRootMessage(m)
	if err != nil || root.Which() != rpccp.Message_Which_return {
		return
	}

	ret, err := root.Return()
	if err != nil {
		return
	}

	// A Finish sees the question either open or with its descriptors held, never between.
	c.mu.Lock()
	defer c.mu.Unlock()
	question := ret.AnswerId()
	if !c.returnedLocked(question) || len(c.arrived) == 0 || ret.Which() != rpccp.Return_Which_results {
		return
	}

	payload, err := ret.Results()
	if err != nil {
		return
	}

	table, err := payload.CapTable()
	if err != nil {
		return
	}

	for i := range table.Len() {
		d := table.At(i)
		at := int(d.AttachedFd())
		if d.Which() != rpccp.CapDescriptor_Which_senderHosted || at >= len(c.arrived) || c.arrived[at] < 0 || c.closed {
			continue
		}
		if old, ok := c.fds[d.SenderHosted()]; ok {
			unix.Close(old.fd)
		}
		c.fds[d.SenderHosted()] = heldFD{fd: c.arrived[at], question: question}
		c.arrived[at] = -1
	}
}

// Close implements transport.Codec.
func (c *clientCodec) Close() error {
	c.mu.Lock()
	c.closed = true
	for id, h := range c.fds {
		unix.Close(h.fd)
		delete(c.fds, id)
	}
	c.mu.Unlock()
	return c.conn.Close()
}
