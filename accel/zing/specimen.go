package zing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// entry is one line of a transcript.
type entry struct {
	Kind   string  `json:"k"`
	Call   uint64  `json:"i"`
	Handle *int32  `json:"h,omitempty"`
	Ret    *int32  `json:"ret,omitempty"`
	Bytes  *[]byte `json:"b64,omitempty"`
}

// specimen writes the transcript of a guest, or answers from one. A nil one does neither.
type specimen struct {
	w     io.Writer
	r     *bufio.Scanner // not nil: a replay
	calls uint64
	err   error
}

// maxLine bounds a line of a transcript: the base64 of a frame with the largest module, or of a read.
const maxLine = 64 << 20

func newRecorder(w io.Writer) *specimen { return &specimen{w: w} }

// NewReplay is a host that answers from a transcript, without a service and without a device. The
// first call that differs from it, and all that follow, fail; Err says which it was.
func NewReplay(transcript io.Reader) (*Host, error) {
	r := bufio.NewScanner(transcript)
	r.Buffer(nil, maxLine)
	return &Host{cancel: func() {}, specimen: &specimen{r: r}}, nil
}

func (s *specimen) ctl(req, resp []byte, do func() int32) int32 {
	if s == nil {
		return do()
	}
	asked := entry{Kind: "ctl_req", Call: s.calls, Bytes: kept(req)}
	if s.r == nil {
		n := do()
		s.write1(asked)
		told := entry{Kind: "ctl_res", Call: s.calls}
		if n < 0 {
			told.Ret = &n
		} else {
			told.Bytes = kept(resp[:n])
		}
		s.write1(told)
		s.calls++
		return n
	}

	if !s.same(asked) {
		return -1
	}
	told, ok := s.next("ctl_res")
	switch {
	case !ok:
		return -1
	case told.Bytes == nil && told.Ret != nil && *told.Ret == -1:
	case told.Bytes == nil || len(*told.Bytes) > len(resp):
		s.differs("an answer of %d bytes at most", len(resp))
		return -1
	}
	s.calls++
	if told.Bytes == nil {
		return -1
	}
	return int32(copy(resp, *told.Bytes))
}

func (s *specimen) read(handle int32, p []byte, do func() int32) int32 {
	if s == nil {
		return do()
	}
	if s.r == nil {
		n := do()
		s.write1(entry{Kind: "read", Call: s.calls, Handle: &handle, Ret: &n, Bytes: kept(p[:max(n, 0)])})
		s.calls++
		return n
	}

	told, ok := s.next("read")
	if !ok {
		return -1
	}
	if told.Handle == nil || *told.Handle != handle || told.Ret == nil || *told.Ret < -1 || told.Bytes == nil ||
		len(*told.Bytes) != int(max(*told.Ret, 0)) || len(*told.Bytes) > len(p) {
		s.differs("read of at most %d bytes from handle %d", len(p), handle)
		return -1
	}
	s.calls++
	copy(p, *told.Bytes)
	return *told.Ret
}

func (s *specimen) write(handle int32, p []byte, do func() int32) int32 {
	if s == nil {
		return do()
	}
	asked := entry{Kind: "write", Call: s.calls, Handle: &handle, Bytes: kept(p)}
	if s.r == nil {
		n := do()
		asked.Ret = &n
		s.write1(asked)
		s.calls++
		return n
	}

	told, ok := s.next("write")
	if !ok {
		return -1
	}
	if told.Handle == nil || *told.Handle != handle || told.Ret == nil || told.Bytes == nil || !bytes.Equal(*told.Bytes, p) {
		s.differs("write of %d bytes to handle %d", len(p), handle)
		return -1
	}
	s.calls++
	return *told.Ret
}

func (s *specimen) end(handle int32, do func()) {
	if s == nil {
		do()
		return
	}
	if s.r == nil {
		do()
		s.write1(entry{Kind: "end", Call: s.calls, Handle: &handle})
		s.calls++
		return
	}
	if told, ok := s.next("end"); ok {
		if told.Handle == nil || *told.Handle != handle {
			s.differs("end of handle %d", handle)
			return
		}
		s.calls++
	}
}

// kept is a copy that is told apart from no bytes at all.
func kept(p []byte) *[]byte {
	q := append([]byte{}, p...)
	return &q
}

// write1 writes a line; each is a write of its own, so that a transcript ends with the last call.
func (s *specimen) write1(e entry) {
	if s.err != nil {
		return
	}
	line, _ := json.Marshal(e) // numbers and bytes only
	_, s.err = s.w.Write(append(line, '\n'))
}

// next takes a line of a transcript, which must be of this kind and of this call.
func (s *specimen) next(kind string) (e entry, ok bool) {
	if s.err != nil {
		return e, false
	}
	if !s.r.Scan() {
		if s.err = s.r.Err(); s.err == nil {
			s.differs("%s, where the transcript ends", kind)
		}
		return e, false
	}
	if err := json.Unmarshal(s.r.Bytes(), &e); err != nil {
		s.err = fmt.Errorf("call %d of the transcript: %w", s.calls, err)
		return e, false
	}
	if e.Kind != kind || e.Call != s.calls {
		s.differs("%s", kind)
		return e, false
	}
	return e, true
}

// same takes the line of a request.
func (s *specimen) same(asked entry) bool {
	told, ok := s.next(asked.Kind)
	if !ok {
		return false
	}
	if told.Bytes == nil || !bytes.Equal(*told.Bytes, *asked.Bytes) {
		s.differs("the request %x", *asked.Bytes)
		return false
	}
	return true
}

// differs ends a replay: the guest does what it says, and the transcript has the last line.
func (s *specimen) differs(format string, args ...any) {
	line := s.r.Bytes()
	s.err = fmt.Errorf("call %d differs: the guest has %s, the transcript %.300s", s.calls, fmt.Sprintf(format, args...), line)
}
