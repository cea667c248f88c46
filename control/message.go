package control

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Message is one datagram.
type Message struct {
	Type  MsgType
	Reply bool
	Seq   uint64
	Code  gpuerr.Code // in a reply; None: success
	Body  []byte
	// FDs are the descriptors in the message. The receiver owns those of a received
	// message. Serve owns those of a reply that it is given. Conn.Send and
	// Caller.Call only lend them to the kernel.
	FDs []int
	// Closed, in a reply given to Serve, is called once after Serve has closed FDs,
	// sent or not. It is local.
	Closed func()
	// Last, in a reply given to Serve, ends the connection after the reply is sent.
	// It is local.
	Last bool

	// These are set in a received message:
	announced int           // descriptors, by its header
	refused   *gpuerr.Error // why they are missing; the message is answered with this error
}

// CloseFDs closes the descriptors that the receiver does not keep. It is
// idempotent.
func (m *Message) CloseFDs() {
	closeAll(m.FDs)
	m.FDs = nil
	if closed := m.Closed; closed != nil {
		m.Closed = nil
		closed()
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Err is the error that a reply carries, or nil.
func (m *Message) Err() error {
	if m.Code == gpuerr.None {
		return nil
	}
	e, err := ParseErrorBody(m.Body)
	if err != nil {
		return err
	}
	e.Code = m.Code
	return e
}

// NewReply is the answer to req that carries a body and descriptors.
func NewReply(req *Message, body []byte, fds ...int) *Message {
	return &Message{Type: req.Type, Reply: true, Seq: req.Seq, Body: body, FDs: fds}
}

// ErrorReply is the answer to req that carries an error.
func ErrorReply(req *Message, err error) *Message {
	e := gpuerr.From(err)
	if e == nil || !e.Code.Valid() {
		e = gpuerr.New(gpuerr.Internal, "a request failed without an error")
	}
	return &Message{Type: req.Type, Reply: true, Seq: req.Seq, Code: e.Code, Body: AppendErrorBody(nil, e)}
}

// AppendErrorBody appends the body of a reply that carries e. Its text is cut to
// MaxErrorBytes.
func AppendErrorBody(b []byte, e *gpuerr.Error) []byte {
	b = appendU64(b, e.Asked)
	b = appendU64(b, e.Available)
	var resource [ResourceBytes]byte
	copy(resource[:], Cut(strings.ReplaceAll(e.Resource, "\x00", ""), ResourceBytes))
	b = append(b, resource[:]...)
	return appendStr(b, Cut(e.Msg, MaxErrorBytes))
}

// Cut makes s valid UTF-8 of at most max bytes.
func Cut(s string, max int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max]
}

// ParseErrorBody is strict. The code is in the header; see Message.Err.
func ParseErrorBody(b []byte) (*gpuerr.Error, error) {
	r := reader{rest: b}
	e := &gpuerr.Error{Asked: r.u64("asked"), Available: r.u64("available")}
	resource := string(r.take(ResourceBytes, "resource"))
	e.Msg = r.str(MaxErrorBytes, "message")
	e.Resource = strings.TrimRight(resource, "\x00")
	if strings.Contains(e.Resource, "\x00") || !utf8.ValidString(e.Resource) {
		r.fail("resource: not zero-padded UTF-8")
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return e, nil
}

// maxBytes is the maximal length of a message of this kind.
func maxBytes(t MsgType, reply bool) int {
	if l := layouts[t]; reply && l != nil && l.longReply {
		return MaxLongBytes
	}
	return MaxMessageBytes
}

// appendMessage appends header and body.
func appendMessage(b []byte, m *Message) ([]byte, error) {
	length := HeaderBytes + len(m.Body)
	if length > maxBytes(m.Type, m.Reply) || len(m.FDs) > MaxFDs || m.Seq == 0 || m.Type == 0 || m.Type&replyBit != 0 || (!m.Reply && m.Code != gpuerr.None) {
		return nil, gpuerr.New(gpuerr.Invalid, "%v: a message of %d bytes and %d descriptors, seq %d, cannot be sent", m.Type, length, len(m.FDs), m.Seq)
	}

	t := uint16(m.Type)
	if m.Reply {
		t |= replyBit
	}

	b = appendU16(b, magic)
	b = appendU16(b, t)
	b = appendU32(b, uint32(length))
	b = appendU64(b, m.Seq)
	b = appendU32(b, uint32(m.Code))
	b = appendU16(b, uint16(len(m.FDs)))
	b = appendU16(b, 0)
	return append(b, m.Body...), nil
}

// badMessage is a datagram that breaks the rules. seq and type are set if they
// could be read, so that it can be answered.
type badMessage struct {
	err *gpuerr.Error
	typ MsgType
	seq uint64 // 0: not to be answered
}

func (b *badMessage) Error() string { return b.err.Error() }
func (b *badMessage) Unwrap() error { return b.err }

// answer is the reply to a bad message, or nil.
func answer(err error) *Message {
	var bad *badMessage
	if !errors.As(err, &bad) || bad.seq == 0 || bad.typ == 0 {
		return nil
	}
	return ErrorReply(&Message{Type: bad.typ, Seq: bad.seq}, bad.err)
}

// parseMessage parses a datagram. It does not copy the body, and does not count the
// descriptors.
func parseMessage(b []byte) (m Message, fdCount int, err error) {
	if len(b) < HeaderBytes {
		return Message{}, 0, &badMessage{err: gpuerr.New(gpuerr.Protocol, "a message of %d bytes is shorter than its header", len(b))}
	}

	le := binary.LittleEndian
	t := le.Uint16(b[2:])
	m = Message{Type: MsgType(t &^ replyBit), Reply: t&replyBit != 0, Seq: le.Uint64(b[8:]), Body: b[HeaderBytes:]}
	code, fds := le.Uint32(b[16:]), le.Uint16(b[20:])
	bad := func(format string, args ...any) (Message, int, error) {
		e := &badMessage{err: gpuerr.New(gpuerr.Protocol, format, args...), typ: m.Type, seq: m.Seq}
		if m.Reply {
			e.seq = 0
		}
		return Message{}, 0, e
	}

	switch {
	case le.Uint16(b) != magic:
		m.Seq = 0 // it is unknown whether these bytes are a header
		return bad("a message starts with %#x, not %#x", le.Uint16(b), magic)

	case le.Uint32(b[4:]) != uint32(len(b)):
		return bad("length: %d, but the message has %d bytes", le.Uint32(b[4:]), len(b))
	case len(b) > maxBytes(m.Type, m.Reply):
		return bad("length: %d bytes are more than %d", len(b), maxBytes(m.Type, m.Reply))

	case m.Type == 0:
		return bad("type: 0 is no message")
	case m.Seq == 0:
		return bad("seq: 0 is not allowed")

	case le.Uint16(b[22:]) != 0:
		return bad("zero: a zero field is not zero")
	case fds > MaxFDs:
		return bad("fds: %d descriptors are more than %d", fds, MaxFDs)

	case !m.Reply && code != 0:
		return bad("code: a request has no code")
	case code != 0 && (code > 0xffff || !gpuerr.Code(code).Valid()):
		return bad("code: %d is unknown", code)
	}

	m.Code = gpuerr.Code(code)
	return m, int(fds), nil
}
