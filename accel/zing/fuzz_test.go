package zing_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/accel/zing"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
)

// fuzzService ends work soon and bans nobody.
func fuzzService(f *testing.F) *sessiontest.Service {
	return sessiontest.Start(f, sessiontest.Options{Config: func(c *gpu.Config) {
		c.DefaultDeadline, c.MaxDeadline, c.MaxBufferBytes = 2*time.Millisecond, 2*time.Millisecond, 1<<16
		c.Strikes = gpu.StrikePolicy{Limit: math.MaxInt32}
	}})
}

// goldenRequests are the requests of testdata/frames.golden.
func goldenRequests(f *testing.F) (all [][]byte) {
	text, err := os.ReadFile("testdata/frames.golden")
	require.NoError(f, err)
	for line := range strings.Lines(string(text)) {
		if digits, ok := strings.CutPrefix(strings.TrimSpace(line), "> "); ok {
			req, err := hex.DecodeString(digits)
			require.NoError(f, err)
			all = append(all, req)
		}
	}
	require.NotEmpty(f, all)
	return all
}

// FuzzCtl: whatever the frame and the room, Ctl answers it or says -1, writes nothing beyond its
// room, and every answer is one.
func FuzzCtl(f *testing.F) {
	conn := fuzzService(f).Dial(f)
	for _, req := range goldenRequests(f) {
		f.Add(req, uint16(4096))
		f.Add(req, uint16(36))
	}
	var h *zing.Host
	calls := 0
	f.Cleanup(func() {
		if h != nil {
			h.Close()
		}
	})
	f.Fuzz(func(t *testing.T, req []byte, room uint16) {
		if calls++; h == nil || calls%256 == 0 { // or its handles are too many to be of use
			if h != nil {
				require.NoError(t, h.Close())
			}
			var err error
			h, err = zing.NewHost(context.Background(), zing.Config{Conn: conn, Ext: true})
			require.NoError(t, err)
			g := &guest{t: t, h: h}
			for range 15 { // what the golden requests name is there
				g.buffer(16, 0)
			}
		}
		if len(req) > 16 { // waits end soon
			req = bytes.Clone(req)
			req[13], req[14], req[15] = 0, 0, 0
		}
		resp := bytes.Repeat([]byte{0xAA}, int(room)+64)
		n := h.Ctl(req, resp[:room])
		require.LessOrEqual(t, n, int32(room))
		written := max(n, 0)
		require.Equal(t, len(resp)-int(written), bytes.Count(resp[written:], []byte{0xAA}), "beyond the answer")
		if n >= 0 {
			if r := parseAnswer(t, req, resp[:n]); r.ok && len(r.bytes) == 12 {
				piece := make([]byte, 64)
				for handle := int32(3); handle < 20; handle++ {
					require.LessOrEqual(t, h.Read(handle, piece), int32(64))
				}
			}
		}
	})
}

// FuzzServe: whatever comes on the wire, the connection ends with its guest, and all that was said
// before are answers.
func FuzzServe(f *testing.F) {
	svc := fuzzService(f)
	var all []byte
	for _, req := range goldenRequests(f) {
		f.Add(req)
		if len(req) >= 24 {
			all = append(all, req...)
		}
	}
	f.Add(all)
	f.Add(append(append(frame(1002, 1, 0, payload(3, "text")), frame(1001, 2, 0, payload(3, 9))...), frame(1003, 3, 0, payload(3))...))
	f.Add(frame(1004, 1, 0, payload("topic", "msg")))
	h, err := zing.NewHost(context.Background(), zing.Config{Conn: svc.Dial(f), Ext: true})
	require.NoError(f, err)
	f.Cleanup(func() { h.Close() })
	f.Fuzz(func(t *testing.T, input []byte) {
		ours, theirs := net.Pipe()
		end := make(chan error, 1)
		go func() { end <- zing.Serve(context.Background(), theirs, h) }()
		answers := make(chan []byte, 1)
		go func() {
			b, _ := io.ReadAll(ours)
			answers <- b
		}()
		_, _ = ours.Write(input) // it may end before it has read all
		theirs.SetReadDeadline(time.Now())
		<-end
		ours.Close()
		for b := <-answers; len(b) > 0; {
			require.GreaterOrEqual(t, len(b), 24)
			require.Equal(t, "ZCL1", string(b[:4]))
			n := 20 + int(b[16]) + int(b[17])<<8 + int(b[18])<<16 + int(b[19])<<24
			require.LessOrEqual(t, n, len(b))
			b = b[n:]
		}
	})
}

// FuzzReplay: no transcript makes a replay panic or give more than there is room for.
func FuzzReplay(f *testing.F) {
	text, err := os.ReadFile("testdata/specimen.jsonl")
	require.NoError(f, err)
	f.Add(text)
	for line := range bytes.Lines(text) {
		f.Add(bytes.Replace(line, []byte(`"i":`), []byte(`"i":0`), 1))
	}
	f.Add([]byte(`{"k":"read","i":0,"h":3,"ret":2147483647,"b64":""}`))
	f.Add([]byte(`{"k":"read","i":0,"h":3,"ret":-7,"b64":""}`))
	f.Fuzz(func(t *testing.T, transcript []byte) {
		for i := range 4 {
			h, err := zing.NewReplay(bytes.NewReader(transcript))
			require.NoError(t, err)
			room := make([]byte, 16)
			for range 3 {
				switch i {
				case 0:
					require.LessOrEqual(t, h.Read(3, room), int32(16))
				case 1:
					h.Write(3, []byte("ab"))
				case 2:
					h.End(3)
				case 3:
					require.LessOrEqual(t, h.Ctl(frame(1, 1, 0, nil), room), int32(16))
				}
			}
			require.NoError(t, h.Close())
		}
	})
}
