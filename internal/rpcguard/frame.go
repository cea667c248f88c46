package rpcguard

import (
	"encoding/binary"
	"io"

	"capnproto.org/go/capnp/v3"
)

const (
	// maxSegments of a message. go-capnp adds segments of a quarter of what there is: a
	// message of 1 MiB that is made of many small objects has about 40.
	maxSegments    = 64
	firstReadBytes = 16 << 10
)

// frame is one message of the stream: its segment table and its segments.
type frame struct {
	bytes    []byte
	segments [][]byte
}

// readFrame reads a message of at most maxBytes. Memory grows with the bytes that came, up to
// twice as much, and not by the claim of the segment table. The error is io.EOF at the end of
// the stream between two messages.
func readFrame(r io.Reader, maxBytes uint32) (frame, error) {
	var table [4 * (1 + maxSegments + 1)]byte
	if _, err := io.ReadFull(r, table[:8]); err != nil {
		return frame{}, err
	}

	count := uint64(binary.LittleEndian.Uint32(table[:])) + 1
	if count > maxSegments {
		return frame{}, protocolError("a message of %d segments; at most %d", count, maxSegments)
	}

	tableBytes := (4*(1+int(count)) + 7) &^ 7
	if _, err := io.ReadFull(r, table[8:tableBytes]); err != nil {
		return frame{}, cutShort(err)
	}

	total := uint64(tableBytes)
	for i := range int(count) {
		total += 8 * uint64(binary.LittleEndian.Uint32(table[4*(1+i):]))
	}

	if total > uint64(maxBytes) {
		return frame{}, protocolError("a message of %d bytes; at most %d", total, maxBytes)
	}

	buf, err := readGrowing(r, table[:tableBytes], int(total))
	if err != nil {
		return frame{}, err
	}

	f := frame{bytes: buf, segments: make([][]byte, count)}
	rest := buf[tableBytes:]
	for i := range f.segments {
		n := 8 * int(binary.LittleEndian.Uint32(table[4*(1+i):]))
		f.segments[i], rest = rest[:n:n], rest[n:]
	}

	return f, nil
}

func readGrowing(r io.Reader, head []byte, total int) ([]byte, error) {
	buf := make([]byte, len(head), max(len(head), min(total, firstReadBytes)))
	copy(buf, head)
	for len(buf) < total {
		if len(buf) == cap(buf) {
			grown := make([]byte, len(buf), min(total, 2*cap(buf)))
			copy(grown, buf)
			buf = grown
		}
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err != nil {
			return nil, cutShort(err)
		}
	}

	return buf, nil
}

func cutShort(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return protocolError("the stream ended within a message")
	}
	return err
}

// checked walks the pointers of the frame and returns it as a message. The message lies in
// ordinary memory of its own, not in go-capnp's pools: if a reader keeps it by mistake, it
// does not change.
func (f frame) checked() (*capnp.Message, error) {
	if err := checkPointers(f.segments); err != nil {
		return nil, err
	}
	m, err := capnp.Unmarshal(f.bytes)
	if err != nil {
		return nil, protocolError("unmarshal: %v", err)
	}
	return m, nil
}
