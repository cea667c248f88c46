package session_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/control"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
)

// loadsNone is a device without a verifier.
type loadsNone struct{ backend.Backend }

func (b loadsNone) Info() backend.Info {
	info := b.Backend.Info()
	info.LoadsPrograms = false
	return info
}

// The request names a bundle by its place in memory; a descriptor is never
// accepted.
func TestLoadProgramTakesNoDescriptor(t *testing.T) {
	leakcheck.Check(t)
	svc := sessiontest.Start(t, sessiontest.Options{})
	p := rawPeer(t, svc)
	_, body := p.ask(control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096}.AppendTo(nil))
	b, err := control.ParseCreateBufferReply(body)
	require.NoError(t, err)
	load := func(buffer, off, bytes uint64, fds ...int) gpuerr.Code {
		code, _ := p.ask(control.TypeLoadProgram, control.LoadProgramRequest{Buffer: buffer, Off: off, Bytes: bytes}.AppendTo(nil), fds...)
		return code
	}

	require.Equal(t, gpuerr.Invalid, load(b.Handle, 0, 0))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, 0, 1<<20+1))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, 0, math.MaxUint64))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, 1, 4096))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, math.MaxUint64, 2))
	require.Equal(t, gpuerr.Stale, load(b.Handle+1<<32, 0, 4096))
	require.Equal(t, gpuerr.Program, load(b.Handle, 0, 4096), "it is no program")
	mem, err := shm.Create("bundle", 4096)
	require.NoError(t, err)
	defer mem.Close()

	body = control.LoadProgramRequest{Buffer: b.Handle, Bytes: 4096}.AppendTo(nil)
	if err := p.send(p.datagram(control.TypeLoadProgram, body, 1), mem.FD()); err == nil { // Linux 6.16 can refuse the send itself
		_, code, _, _ := p.recv()
		require.Equal(t, gpuerr.Protocol, code)
		_, _, _, ok := p.recv()
		require.False(t, ok)
	}

	stillWorks(t, svc)
}

// A device that loads no programs takes nothing, and the client notices only the
// refusal.
func TestLoadProgramUnimplemented(t *testing.T) {
	for name, o := range map[string]sessiontest.Options{
		"no verifier": {Config: func(c *gpu.Config) { c.Backend = loadsNone{c.Backend} }},
		"no right":    {Attach: func(a *gpu.Attach) { a.Facet = gpu.FacetProgram }},
	} {
		t.Run(name, func(t *testing.T) {
			svc := sessiontest.Start(t, o)
			s := svc.Open(t)
			_, err := s.LoadProgram(testContext(t), []byte("a bundle"))
			require.ErrorIs(t, err, gpuerr.Unimplemented)
			_, err = s.Describe(testContext(t))
			require.NoError(t, err, "the session goes on")
		})
	}
}
