package rpcguard

import (
	"context"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/schema"
)

func TestPipelinedChain(t *testing.T) {
	m, _, _ := dial(t, newService())
	ctx := testContext(t)
	for _, kind := range []uint32{openSession, openBlockThenSession} {
		opened, release := m.OpenDevice(ctx, open(kind))
		session := opened.Session()
		made, release2 := session.CreateBuffer(ctx, size(1))
		buffer := made.Buffer()
		sized, release3 := buffer.Size(ctx, nil)
		res, err := sized.Struct()
		require.NoError(t, err)
		require.Equal(t, uint64(4096), res.Bytes())
		release3()
		release2()
		release()
	}
}

func TestPipelinedCallsKeepOrder(t *testing.T) {
	s := newService()
	m, _, _ := dial(t, s)
	ctx := testContext(t)
	opened, release := m.OpenDevice(ctx, open(openBlockThenSession))
	defer release()
	session := opened.Session()
	made, release := session.CreateBuffer(ctx, size(1))
	defer release()
	buffer := made.Buffer()
	const n = 100
	for i := range uint64(n) {
		_, release := buffer.Read(ctx, func(p schema.GpuBuffer_read_Params) error { p.SetOffset(i); return nil })
		defer release()
	}
	for i := range uint64(n) {
		select {
		case got := <-s.order:
			require.Equal(t, i, got)
		case <-ctx.Done():
			t.Fatal("a pipelined call was lost")
		}
	}
}

// A pipelined call on a null field, on a call that failed, or on a missing method crashes
// go-capnp's own server (capnproto/go-capnp #617).
func TestPipelinedMisuseIsAnException(t *testing.T) {
	m, _, _ := dial(t, newService())
	ctx := testContext(t)
	for name, c := range map[string]struct {
		kind uint32
		typ  exc.Type
		code gpuerr.Code
	}{
		"null field":      {openNull, exc.Failed, gpuerr.Invalid},
		"empty result":    {openNoResults, exc.Failed, gpuerr.Invalid},
		"failed":          {openQuota, exc.Overloaded, gpuerr.Quota},
		"panicked":        {openPanic, exc.Failed, gpuerr.Internal},
		"missing method":  {openSession, exc.Unimplemented, gpuerr.Unimplemented},
		"missing, slowly": {openBlockThenSession, exc.Unimplemented, gpuerr.Unimplemented},
	} {
		t.Run(name, func(t *testing.T) {
			opened, release := m.OpenDevice(ctx, open(c.kind))
			defer release()
			session := opened.Session()
			launched, release2 := session.LaunchKernel(ctx, nil)
			defer release2()
			_, err := launched.Struct()
			requireException(t, err, c.typ, c.code)
		})
	}
	listed, release := m.OpenDevice(ctx, open(openSession))
	defer release()
	_, err := listed.Struct()
	require.NoError(t, err, "the connection is still good")
}

func requireException(t *testing.T, err error, typ exc.Type, code gpuerr.Code) {
	t.Helper()
	require.Error(t, err)
	require.True(t, exc.IsType(err, typ), "%v", err)
	require.ErrorIs(t, FromException(err), code)
}

func TestExceptionsAreTyped(t *testing.T) {
	m, _, _ := dial(t, newService())
	ctx := testContext(t)
	call := func(kind uint32) error {
		f, release := m.OpenDevice(ctx, open(kind))
		defer release()
		_, err := f.Struct()
		return err
	}
	err := call(openQuota)
	requireException(t, err, exc.Overloaded, gpuerr.Quota)
	e := gpuerr.From(FromException(err))
	require.Equal(t, "sessions", e.Resource)
	require.Equal(t, uint64(1), e.Asked)
	for _, kind := range []uint32{openPanic, openForeignError} {
		err := call(kind)
		requireException(t, err, exc.Failed, gpuerr.Internal)
		require.NotContains(t, err.Error(), "secret")
	}
	f, release := m.ListDevices(ctx, nil) // not defined: a nil interface
	defer release()
	_, err = f.Struct()
	requireException(t, err, exc.Failed, gpuerr.Internal)
}

func TestRevokeEndsASubtree(t *testing.T) {
	s := newService()
	m, _, _ := dial(t, s)
	ctx := testContext(t)
	session := func() schema.GpuSession {
		f, release := m.OpenDevice(ctx, open(openSession))
		defer release()
		res, err := f.Struct()
		require.NoError(t, err)
		return res.Session().AddRef()
	}
	a, b := session(), session()
	defer a.Release()
	defer b.Release()
	buffer := func(s schema.GpuSession) (schema.GpuBuffer, error) {
		f, release := s.CreateBuffer(ctx, size(1))
		defer release()
		res, err := f.Struct()
		if err != nil {
			return schema.GpuBuffer{}, err
		}
		return res.Buffer().AddRef(), nil
	}
	bufA, err := buffer(a)
	require.NoError(t, err)
	defer bufA.Release()
	bufB, err := buffer(b)
	require.NoError(t, err)
	defer bufB.Release()

	for range 2 {
		closed, release := a.Close(ctx, nil)
		_, err = closed.Struct()
		release()
		require.NoError(t, err, "close succeeds, also when it is done already")
	}
	_, err = buffer(a)
	requireException(t, err, exc.Disconnected, gpuerr.Closed)
	sized, release := bufA.Size(ctx, nil)
	_, err = sized.Struct()
	release()
	requireException(t, err, exc.Disconnected, gpuerr.Closed)
	sized, release = bufB.Size(ctx, nil)
	_, err = sized.Struct()
	release()
	require.NoError(t, err, "the sibling lives")

	// A result that is ready does not leave after the revocation.
	late := &lateRevoker{gate: NewGate()}
	c := Export(Spec{Name: "late", Gate: late.gate, Methods: schema.GpuBuffer_Methods(nil, late)})
	defer c.Release()
	sized, release = schema.GpuBuffer(c).Size(ctx, nil)
	_, err = sized.Struct()
	release()
	require.Equal(t, exc.Disconnected, exc.TypeOf(err))

	// One running when it happens ends at once.
	blocked, release := m.OpenDevice(ctx, open(openBlock))
	defer release()
	s.gate.Revoke(gpuerr.New(gpuerr.Revoked, "all"))
	_, err = blocked.Struct()
	requireException(t, err, exc.Disconnected, gpuerr.Revoked)
}

type lateRevoker struct {
	schema.GpuBuffer_Server
	gate *Gate
}

func (l *lateRevoker) Size(_ context.Context, call schema.GpuBuffer_size) error {
	res, err := call.AllocResults()
	res.SetBytes(42)
	l.gate.Revoke(nil)
	return err
}

func TestFinishCancelsTheCall(t *testing.T) {
	m, _, _ := dial(t, newService())
	ctx, cancel := context.WithCancel(testContext(t))
	f, release := m.OpenDevice(ctx, open(openBlock))
	defer release()
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := f.Struct()
	require.Error(t, err)
	// serve's cleanup proves that the method ended.
}

func TestDescriptorsTravel(t *testing.T) {
	m, conn, transport := dial(t, newService())
	ctx := testContext(t)
	opened, release := m.OpenDevice(ctx, open(openSession))
	defer release()
	made, release2 := opened.Session().CreateBuffer(ctx, size(1))
	defer release2()
	buffer := made.Buffer()
	for range 200 {
		mapped, release := buffer.MapReadWrite(ctx, nil)
		res, err := mapped.Struct()
		require.NoError(t, err)
		fd, ok := transport.TakeFD(capnp.Client(res.Memory()))
		require.True(t, ok)
		_, again := transport.TakeFD(capnp.Client(res.Memory()))
		require.False(t, again)
		var b [6]byte
		_, err = unix.Pread(fd, b[:], 0)
		require.NoError(t, err)
		require.Equal(t, "shared", string(b[:]))
		require.NoError(t, unix.Close(fd))
		release()
	}
	_, ok := transport.TakeFD(capnp.Client(buffer))
	require.False(t, ok)
	untaken, release3 := buffer.MapReadWrite(ctx, nil)
	_, err := untaken.Struct()
	require.NoError(t, err)
	release3()
	conn.Close() // TestMain proves that the descriptor is closed
}

// A capability that a call returns can be named as an argument before the call has returned,
// and one of the client's own is refused without harm.
func TestCapabilityArguments(t *testing.T) {
	m, _, _ := dial(t, newService())
	ctx := testContext(t)
	opened, release := m.OpenDevice(ctx, open(openBlockThenSession))
	defer release()
	session := opened.Session()
	made, release2 := session.CreateBuffer(ctx, size(1))
	defer release2()
	promised := made.Buffer()
	ran, release3 := session.RunProgram(ctx, func(p schema.GpuProgramSession_runProgram_Params) error {
		return p.SetProgram(schema.GpuProgram(promised.AddRef()))
	})
	defer release3()
	_, err := ran.Struct()
	requireException(t, err, exc.Unimplemented, gpuerr.Unimplemented) // reached the session

	own := Export(Spec{Name: "the client's"})
	defer own.Release()
	refused, release4 := session.RunProgram(ctx, func(p schema.GpuProgramSession_runProgram_Params) error {
		return p.SetProgram(schema.GpuProgram(own.AddRef()))
	})
	defer release4()
	_, err = refused.Struct()
	requireException(t, err, exc.Failed, gpuerr.Denied)
}

func TestLocal(t *testing.T) {
	s := newService()
	made := s.newSession()
	c := made.export()
	defer c.Release()
	got, err := Local[*session](c, "session")
	require.NoError(t, err)
	require.Same(t, made, got)
	_, err = Local[*buffer](c, "fence")
	require.ErrorIs(t, err, gpuerr.Invalid)
	_, err = Local[*session](capnp.Client{}, "session")
	require.ErrorIs(t, err, gpuerr.Invalid)
	s.gate.Revoke(nil)
	_, err = Local[*session](c, "session")
	require.ErrorIs(t, err, gpuerr.Revoked)
}

func TestStop(t *testing.T) {
	s := newService()
	server, peer := socketpair(t)
	defer peer.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, server, s.bootstrap(), Limits{}) }()
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience):
		t.Fatal("Serve did not stop with its context")
	}
	require.Eventually(t, func() bool { return s.live.Load() == 0 }, patience, time.Millisecond)
	s.gate.Revoke(nil)
}

func TestExceptionRoundTrip(t *testing.T) {
	for _, code := range gpuerr.Codes() {
		want := &gpuerr.Error{Code: code, Msg: "what to do: this"}
		if code == gpuerr.Quota {
			want.Resource, want.Asked, want.Available = "deviceMemory", 1<<20, 4096
		}
		ex := Exception(want)
		require.IsType(t, &exc.Exception{}, ex)
		annotated := exc.Annotate("capos.capnp:X.y", "call", ex) // as go-capnp does to a client's error
		require.Equal(t, want, FromException(annotated))
	}
	require.NoError(t, Exception(nil))
	require.NoError(t, FromException(nil))
	require.ErrorIs(t, FromException(exc.New(exc.Disconnected, "rpc", "connection closed")), gpuerr.Disconnected)
	require.ErrorIs(t, FromException(exc.New(exc.Overloaded, "", "x")), gpuerr.Busy)
	require.ErrorIs(t, FromException(context.Canceled), context.Canceled)
}

// Objects in a line take their calls in the order in which they came, however
// long one of them takes, until it lets the others pass.
func TestLine(t *testing.T) {
	var line Line
	gate := NewGate()
	defer gate.Revoke(nil)
	order := make(chan string, 8)
	slow := make(chan struct{})
	export := func(name string, impl func(context.Context, schema.GpuBuffer_size)) capnp.Client {
		b := &lineBuffer{size: func(ctx context.Context, call schema.GpuBuffer_size) { impl(ctx, call); order <- name }}
		return Export(Spec{Name: name, Gate: gate, Line: &line, Methods: schema.GpuBuffer_Methods(nil, b)})
	}
	first := export("first", func(context.Context, schema.GpuBuffer_size) { <-slow })
	second := export("second", func(context.Context, schema.GpuBuffer_size) {})
	blocked := make(chan struct{})
	passing := export("passing", func(ctx context.Context, call schema.GpuBuffer_size) {
		Go(ctx, call.Call)
		<-blocked
	})
	v := newVat(nil, capnp.Client{}, DefaultLimits())
	v.out = newWriter(nil, 0, func() {}, func(error) {})
	receive := func(c capnp.Client) {
		v.running.Add(1)
		q := &question{}
		q.call = &call{v: v, q: q, cancel: func(error) {}}
		c.RecvCall(context.Background(), capnp.Recv{
			Method:      capnp.Method{InterfaceID: schema.GpuBuffer_TypeID, MethodID: 2},
			ReleaseArgs: func() {}, Returner: q.call,
		})
	}
	for _, c := range []capnp.Client{passing, first, second} {
		defer c.Release()
		receive(c)
	}
	select {
	case name := <-order:
		t.Fatalf("%s did not wait", name)
	case <-time.After(20 * time.Millisecond):
	}
	close(slow)
	require.Equal(t, "first", <-order)
	require.Equal(t, "second", <-order)
	close(blocked)
	require.Equal(t, "passing", <-order)
	v.running.Wait()
}

type lineBuffer struct {
	schema.GpuBuffer_Server
	size func(context.Context, schema.GpuBuffer_size)
}

func (b *lineBuffer) Size(ctx context.Context, call schema.GpuBuffer_size) error {
	b.size(ctx, call)
	return nil
}
