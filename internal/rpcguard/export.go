package rpcguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	"capnproto.org/go/capnp/v3/server"

	"capgpu/gpuerr"
)

// Spec describes a capability.
type Spec struct {
	// Name is the type of the object, for logs: "GpuBuffer".
	Name string
	// Gate revokes it. Nil: only the end of its references ends it.
	Gate *Gate
	// Line, if set, orders its calls among those of other objects.
	Line *Line
	// Methods is the generated table, X_Methods(nil, impl). Other methods are unimplemented.
	Methods []server.Method
	// Ends names the method that closes the object, "close". It may revoke Gate
	// with a cause of E_CLOSED and still succeed, and succeeds again afterwards.
	Ends string
	// Impl is the value that Local returns to a method that gets the capability as an
	// argument.
	Impl any
	// DupFD, if set, gives the descriptor that travels with the capability each
	// time it is returned: a duplicate, which the vat closes once it is sent.
	DupFD func() (int, error)
	// Shutdown, if set, runs once, after the last reference died and the last
	// call ended.
	Shutdown func()
	// Log gets panics of methods. Nil: slog.Default.
	Log *slog.Logger
}

// object is the hook behind an exported capability.
type object struct {
	*server.Server
	spec  Spec
	dying atomic.Bool   // the last reference is gone
	ended chan struct{} // closed when Spec.Shutdown has run
}

// Export makes a capability of spec. The caller owns the one reference to it.
// It is the only way to make a capability that Serve hands to a peer.
func Export(spec Spec) capnp.Client {
	if spec.Log == nil {
		spec.Log = slog.Default()
	}

	o := &object{spec: spec, ended: make(chan struct{})}
	methods := make([]server.Method, len(spec.Methods))
	for i, m := range spec.Methods {
		methods[i] = server.Method{Method: m.Method, Impl: o.guarded(m.Method, m.Impl)}
	}

	o.Server = server.New(methods, o, shutdownFunc(o.shutdown))

	// Answered from the object's queue like any other call, never from within
	// Recv: the vat relies on Recv not calling back.
	o.Server.HandleUnknownMethod = func(m capnp.Method) *server.Method {
		return &server.Method{Method: m, Impl: o.guarded(m, o.unimplemented)}
	}
	return capnp.NewClient(o)
}

// Recv implements capnp.ClientHook. The vat calls it in the order in which calls
// came; it only queues.
func (o *object) Recv(ctx context.Context, r capnp.Recv) capnp.PipelineCaller {
	if o.spec.Line != nil {
		ctx = context.WithValue(ctx, placeKey{}, o.spec.Line.enter())
	}
	return o.Server.Recv(ctx, r)
}

// Shutdown implements capnp.ClientHook: the last reference is gone. The rest happens on the
// object's own goroutine, after its last call.
func (o *object) Shutdown() {
	o.dying.Store(true)
	o.Server.Shutdown()
}

type shutdownFunc func()

func (f shutdownFunc) Shutdown() { f() }

func (o *object) shutdown() {
	defer close(o.ended)
	if o.spec.Shutdown == nil {
		return
	}
	defer o.recovered("Shutdown", nil)
	o.spec.Shutdown()
}

func (o *object) unimplemented(_ context.Context, call *server.Call) error {
	return gpuerr.New(gpuerr.Unimplemented, "this %s has no such method", o.spec.Name)
}

// guarded wraps every method.
func (o *object) guarded(m capnp.Method, impl func(context.Context, *server.Call) error) func(context.Context, *server.Call) error {
	return func(ctx context.Context, call *server.Call) error {
		if p, ok := ctx.Value(placeKey{}).(*place); ok {
			p.await()
			defer p.leave()
		}
		closed := func() bool {
			return m.MethodName == o.spec.Ends && errors.Is(o.gateErr(), gpuerr.Closed)
		}
		if closed() {
			return nil
		}
		err := o.run(ctx, call, m, impl)
		// A result computed before the revocation does not leave after it.
		if gateErr := o.gateErr(); gateErr != nil && !closed() {
			err = gateErr
		}
		return Exception(err)
	}
}

func (o *object) run(ctx context.Context, call *server.Call, m capnp.Method, impl func(context.Context, *server.Call) error) (err error) {
	if err := o.gateErr(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err // finished while it was queued
	}

	if g := o.spec.Gate; g != nil {
		callCtx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(g.ctx, func() { cancel(g.Err()) })()
		ctx = callCtx
	}

	defer o.recovered(m.MethodName, &err)
	err = impl(ctx, call)
	if err != nil && !isOurs(err) {
		// The peer must not read the text of the error.
		o.spec.Log.Error("a capability's method failed without a code", "interface", o.spec.Name, "method", m.MethodName, "error", err)
		err = errBug
	}

	return err
}

var errBug = gpuerr.New(gpuerr.Internal, "a bug of the service; the call was abandoned and the log says why")

// isOurs reports whether err was made for the peer's eyes.
func isOurs(err error) bool {
	var coded *gpuerr.Error
	var code gpuerr.Code
	var exception *exc.Exception
	if errors.As(err, &exception) {
		return codeIn(exception.Error()) != nil // made by Exception
	}
	return errors.As(err, &coded) || errors.As(err, &code) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (o *object) recovered(method string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	o.spec.Log.Error("panic in a capability's method", "interface", o.spec.Name, "method", method,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if err != nil {
		*err = errBug
	}
}

func (o *object) gateErr() error {
	if o.spec.Gate == nil {
		return nil
	}
	return o.spec.Gate.Err()
}

// Local returns the implementation behind a capability that this process
// exported, for methods that take capabilities. It fails with E_INVALID for a
// null or another kind of capability, and with the cause for a revoked one.
// field names the argument in the error.
func Local[T any](c capnp.Client, field string) (T, error) {
	var none T
	o := objectOf(c)
	if o == nil {
		return none, gpuerr.New(gpuerr.Invalid, "%s: no capability of this service", field)
	}
	impl, ok := o.spec.Impl.(T)
	if !ok {
		return none, gpuerr.New(gpuerr.Invalid, "%s: a %s is of the wrong kind", field, o.spec.Name)
	}
	if err := o.gateErr(); err != nil {
		return none, err
	}
	return impl, nil
}

// objectOf returns nil for a capability that Export did not make.
func objectOf(c capnp.Client) *object {
	s := c.Snapshot()
	defer s.Release()
	if !s.IsValid() {
		return nil
	}
	brand, _ := server.IsServer(s.Brand())
	o, _ := brand.(*object)
	return o
}
