package session_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/ring"
)

// FuzzSession plays a hostile client of one session: well-formed and malformed
// messages, and arbitrary words in its rings. Afterwards the device must work for
// another client, and nothing of the session may remain.
func FuzzSession(f *testing.F) {
	svc := sessiontest.Start(f, sessiontest.Options{Config: func(c *gpu.Config) {
		c.DefaultDeadline, c.MaxDeadline = 5*time.Millisecond, 20*time.Millisecond
		c.MaxBufferBytes = 1 << 20
		c.MaxArgBytes = 1 << 16
		c.Strikes = gpu.StrikePolicy{Limit: math.MaxInt32} // a ban would end the fuzzing
	}})

	f.Add([]byte{})
	f.Add([]byte("\x00\x02\x10\x00\x04\x01\x0c\x01\x40\x30\x01\x02\x03\x04\x05\x06\x07"))
	// This seed has every kind of step, as the generator below reads them.
	all := []byte{}
	for i := range 200 {
		all = append(all, byte(i*37), byte(i), byte(i*11))
	}

	f.Add(all)
	f.Fuzz(func(t *testing.T, input []byte) {
		h := &hostile{t: t, svc: svc, fd: svc.OpenFD(t), script: input}
		h.play()
		h.close()
		require.Eventually(t, func() bool { return sessionCount(svc) == 0 }, 10*time.Second, 100*time.Microsecond)
		require.NoError(t, svc.Device.Check())
		require.NoError(t, svc.Device.Err())
		stillWorks(t, svc)
	})
}

// hostile is a client that runs a script of steps.
type hostile struct {
	t       *testing.T
	svc     *sessiontest.Service
	fd      int
	script  []byte
	seq     uint64
	handles []uint64
	rings   []hostileRing
	fds     []int
}

type hostileRing struct {
	mem    []byte
	wake   int
	sqOff  uint32
	argOff uint32
	n      uint32
	tail   uint64
}

// maxSteps bounds one script.
const maxSteps = 64

func (h *hostile) play() {
	for step := 0; step < maxSteps && len(h.script) > 0; step++ {
		switch op := h.byte(); {
		case op < 144:
			h.message(control.MsgType(op%52) + 30)
		case op < 152:
			h.garbage()
		case op < 232:
			h.entry()
		default:
			h.scribble()
		}
		h.drain(0)
	}
	h.drain(5 * time.Millisecond)
}

func (h *hostile) byte() byte {
	if len(h.script) == 0 {
		return 0
	}
	b := h.script[0]
	h.script = h.script[1:]
	return b
}

// number is a number that is likely to matter: a known handle, an edge case, or
// anything.
func (h *hostile) number() uint64 {
	b := h.byte()
	switch {
	case b < 128 && len(h.handles) > 0:
		return h.handles[int(b)%len(h.handles)]
	case b < 160:
		return uint64(h.byte())
	case b < 176:
		return uint64(h.byte()) << 12
	case b < 240:
		edges := [...]uint64{0, 1, 4095, 4096, 4097, 1 << 16, 1 << 20, 1<<20 + 1, math.MaxUint32, 1 << 32, 1 << 62, 1 << 63, math.MaxUint64 - 4095, math.MaxUint64}
		return edges[int(b)%len(edges)]
	}

	var n uint64
	for range 8 {
		n = n<<8 | uint64(h.byte())
	}

	return n
}

func (h *hostile) send(b []byte, fds ...int) {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	// The service may refuse with a full or closed socket.
	_ = unix.Sendmsg(h.fd, b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
}

func (h *hostile) header(typ control.MsgType, body []byte, fds int) []byte {
	h.seq++
	b := binary.LittleEndian.AppendUint16(nil, 0x4743)
	b = binary.LittleEndian.AppendUint16(b, uint16(typ))
	b = binary.LittleEndian.AppendUint32(b, uint32(control.HeaderBytes+len(body)))
	b = binary.LittleEndian.AppendUint64(b, h.seq)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(fds))
	b = binary.LittleEndian.AppendUint16(b, 0)
	return append(b, body...)
}

// message sends a well-formed request with likely numbers.
func (h *hostile) message(typ control.MsgType) {
	var body []byte
	var fds []int
	switch typ {
	case control.TypeCreateBuffer:
		body = control.CreateBufferRequest{Bytes: h.number() % (1 << 21), Usage: uint32(h.byte() & 7)}.AppendTo(nil)

	case control.TypeCreateFence:
		body = control.CreateFenceRequest{Initial: h.number()}.AppendTo(nil)
	case control.TypeDestroyBuffer, control.TypeDestroyFence, control.TypeFenceState, control.TypeCloseProgram, control.TypeCancelQueue, control.TypeCloseQueue, control.TypeCloseList:
		body = control.HandleBody{Handle: max(1, h.number())}.AppendTo(nil)

	case control.TypeFenceWait:
		body = control.FenceWaitRequest{Handle: max(1, h.number()), Value: h.number(), TimeoutNanos: h.number()}.AppendTo(nil)
	case control.TypeFenceSignal:
		body = control.FenceSignalRequest{Handle: max(1, h.number()), Value: h.number()}.AppendTo(nil)

	case control.TypeOpenProgram:
		names := [...]string{"vecadd_f32", "copy", "fill_u32", "saxpy_f32", "matvec_f32", "spin", "trap", "", "x"}
		body = control.OpenProgramRequest{Name: names[int(h.byte())%len(names)]}.AppendTo(nil)

	case control.TypeLoadProgram:
		body = control.LoadProgramRequest{Buffer: max(1, h.number()), Off: h.number(), Bytes: h.number()}.AppendTo(nil)
		if h.byte() == 0 {
			fds = h.fds[:min(1, len(h.fds))]
		}

	case control.TypeRecordList:
		body = control.RecordListRequest{Buffer: max(1, h.number()), Off: h.number(), Entries: uint32(h.byte()), ArgBytes: uint32(h.byte()) * 8}.AppendTo(nil)
	case control.TypeCreateQueue:
		body = control.CreateQueueRequest{Entries: 2 << (h.byte() % 6), ArgBytes: 64 << (h.byte() % 6)}.AppendTo(nil)

	case control.TypeRestrict:
		body = control.RestrictRequest{Facet: uint32(h.byte() % 3), MaxDeadlineNanos: h.number(), Limits: []control.Limit{{Class: uint32(h.byte() % 15), Amount: h.number()}}}.AppendTo(nil)
	case control.TypeClose:
		if h.byte() > 16 {
			return // sometimes is enough
		}
	}

	h.send(h.header(typ, body, len(fds)), fds...)
}

// garbage sends a request with some of its bytes changed.
func (h *hostile) garbage() {
	b := h.header(control.MsgType(h.byte()), make([]byte, h.byte()), 0)
	for range h.byte() % 8 {
		b[int(h.byte())%len(b)] = h.byte()
	}
	h.send(b)
}

// entry submits something to a ring by hand.
func (h *hostile) entry() {
	if len(h.rings) == 0 {
		h.message(control.TypeCreateQueue)
		return
	}

	r := &h.rings[int(h.byte())%len(h.rings)]
	flags := h.byte()
	e := ring.Entry{Op: ring.Op(flags % 8), UserData: h.seq, Object: h.number(), A: h.number(), B: h.number(), C: h.number(), D: h.number()}
	switch {
	case flags&0x80 != 0: // as it is
	case e.Op == ring.OpLaunch:
		e.Count = uint16(h.byte() % 5)
		inline := uint64(h.byte()%3) * 4
		e.A, e.B, e.C, e.D = 0, 0, inline<<16, (uint64(e.Count)*ring.BindingBytes+inline)<<32
		for i := range int(e.Count) {
			off := int(r.argOff) + i*ring.BindingBytes
			if off+ring.BindingBytes <= len(r.mem) {
				binary.LittleEndian.PutUint64(r.mem[off:], h.number())
				binary.LittleEndian.PutUint64(r.mem[off+8:], h.number()&^3)
				binary.LittleEndian.PutUint64(r.mem[off+16:], h.number()&^3)
				binary.LittleEndian.PutUint64(r.mem[off+24:], 0)
			}
		}

	case e.Op == ring.OpFill:
		e.A, e.B, e.C, e.D = e.A&0xffc, e.B&math.MaxUint32, 0, e.D&0xfffc
	case e.Op == ring.OpCopy:
		e.A, e.C, e.D = e.A&0xffc, e.C&0xffc, e.D&0xfffc

	case e.Op == ring.OpSignal || e.Op == ring.OpWait:
		e.B, e.C, e.D = 0, 0, 0
	}

	var b [ring.EntryBytes]byte
	e.Encode(&b)
	copy(r.mem[int(r.sqOff)+int(r.tail%uint64(r.n))*ring.EntryBytes:], b[:])
	r.tail++
	tail := r.tail
	if flags&0x20 != 0 && h.byte()%16 == 0 {
		tail ^= 1 << (h.byte() % 64)
	}
	binary.LittleEndian.PutUint64(r.mem[0x40:], tail)
	unix.Write(r.wake, make([]byte, 8))
}

// scribble writes arbitrary words anywhere in a ring.
func (h *hostile) scribble() {
	if len(h.rings) == 0 {
		return
	}
	r := &h.rings[int(h.byte())%len(h.rings)]
	at := (int(h.byte())<<4 | int(h.byte())) &^ 3 % (len(r.mem) - 8)
	binary.LittleEndian.PutUint64(r.mem[at:], h.number())
	unix.Write(r.wake, make([]byte, 8))
}

// drain takes the replies that are there, and waits a little for the first.
func (h *hostile) drain(wait time.Duration) {
	buf, oob := make([]byte, control.MaxMessageBytes), make([]byte, 256)
	for {
		poll := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, int(wait/time.Millisecond)); n <= 0 && err != unix.EINTR {
			return
		}

		n, oobn, _, _, err := unix.Recvmsg(h.fd, buf, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if err != nil || n < control.HeaderBytes {
			return
		}

		var fds []int
		if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) > 0 {
			fds, _ = unix.ParseUnixRights(&msgs[0])
		}

		h.fds = append(h.fds, fds...)
		body := buf[control.HeaderBytes:n]
		if binary.LittleEndian.Uint32(buf[16:]) != 0 || len(body) < 8 {
			continue
		}

		switch typ := control.MsgType(binary.LittleEndian.Uint16(buf[2:]) &^ (1 << 15)); typ {
		case control.TypeCreateQueue:
			h.attach(fds)
			fallthrough
		case control.TypeCreateBuffer, control.TypeCreateFence, control.TypeOpenProgram:
			h.handles = append(h.handles, binary.LittleEndian.Uint64(body))
		}
	}
}

func (h *hostile) attach(fds []int) {
	require.Len(h.t, fds, 3)
	var st unix.Stat_t
	require.NoError(h.t, unix.Fstat(fds[0], &st))
	mem, err := unix.Mmap(fds[0], 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(h.t, err)
	unix.SetNonblock(fds[1], true)
	h.rings = append(h.rings, hostileRing{
		mem: mem, wake: fds[1],
		n:      binary.LittleEndian.Uint32(mem[0x0c:]),
		sqOff:  binary.LittleEndian.Uint32(mem[0x18:]),
		argOff: binary.LittleEndian.Uint32(mem[0x20:]),
	})
}

func (h *hostile) close() {
	unix.Close(h.fd)
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	for _, r := range h.rings {
		unix.Munmap(r.mem)
	}
}
