package zing

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// The operations of the wire that carry the ABI's other calls.
const (
	opRead  = 1001 // H4 handle, H4 cap: H4 n, HBYTES
	opWrite = 1002 // H4 handle, HBYTES: H4 n
	opEnd   = 1003 // H4 handle
	opLog   = 1004 // HSTR topic, HSTR msg
)

const (
	maxRead    = 1 << 20       // bytes that one READ gives
	maxPayload = 1<<20 + 4<<10 // of a request
	maxAnswer  = 256 << 10     // of an operation of _ctl
)

// Serve serves a guest at the other end of a stream socket until that is closed, ctx ends, or the
// guest breaks the framing. One call is answered after the other. It closes conn, and not the host.
func Serve(ctx context.Context, conn net.Conn, h *Host) error {
	var once sync.Once
	hangUp := func() { once.Do(func() { conn.Close() }) }
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()

	resp := make([]byte, maxAnswer)
	for {
		header := make([]byte, requestHeader)
		if _, err := io.ReadFull(conn, header); err == io.EOF {
			return ctx.Err()
		} else if err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(header[20:])
		if string(header[:4]) != magic || n > maxPayload {
			err := fail("t_ctl_overflow", "a payload has at most %d bytes", maxPayload)
			if string(header[:4]) != magic {
				err = fail("t_ctl_bad_frame", "no ZCL1 request")
			}
			_, _ = conn.Write(answer(header, nil, err)) // the connection ends in any case
			return err
		}
		req := append(header, make([]byte, n)...)
		if _, err := io.ReadFull(conn, req[requestHeader:]); err != nil {
			return err
		}

		b, ok := h.answerOn(req, resp)
		if !ok {
			return fail("t_ctl_bad_frame", "an answer has no room")
		}
		if _, err := conn.Write(b); err != nil {
			return err
		}
	}
}

// answerOn answers a frame of the wire.
func (h *Host) answerOn(req, resp []byte) ([]byte, bool) {
	c, _, err := parse(req)
	if err != nil || c.op < opRead || c.op > opLog {
		n := h.Ctl(req, resp)
		return resp[:max(n, 0)], n >= 0
	}
	result, err := h.streamCall(&c)
	return answer(req, result, err), true
}

func (h *Host) streamCall(c *call) ([]byte, error) {
	r := &reader{rest: c.payload}
	switch c.op {
	case opRead:
		handle, most := int32(r.h4()), r.h4()
		if err := r.end(); err != nil {
			return nil, err
		}
		p := make([]byte, min(most, maxRead))
		n := h.Read(handle, p)
		return appendBytes(appendH4(nil, uint32(n)), p[:max(n, 0)]), nil

	case opWrite:
		handle, p := int32(r.h4()), r.bytes()
		if err := r.end(); err != nil {
			return nil, err
		}
		return appendH4(nil, uint32(h.Write(handle, p))), nil

	case opEnd:
		handle := int32(r.h4())
		if err := r.end(); err != nil {
			return nil, err
		}
		h.End(handle)
		return nil, nil
	}

	topic, msg := r.str(), r.str()
	if err := r.end(); err != nil {
		return nil, err
	}
	h.Log([]byte(topic), []byte(msg))
	return nil, nil
}
