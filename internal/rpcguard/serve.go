package rpcguard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"capnproto.org/go/capnp/v3"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/yield"
)

const (
	readBufferBytes = 16 << 10
	// callPatience is how long a peer with too many calls in flight is not read.
	callPatience = 100 * time.Millisecond
	// abortTimeout is for the last words to a peer.
	abortTimeout = 500 * time.Millisecond
)

// Serve answers the peer of conn until it is gone, breaks the protocol, or ctx ends. It takes
// ownership of conn and of bootstrap, the capability that the peer gets first, which must
// come from Export. It returns nil when the peer closed the connection, ctx's cause when that
// ended it, and E_PROTOCOL or the write error otherwise. Before it returns, every call has
// returned, every reference of the peer is released, and Spec.Shutdown of every object that
// only the peer held has run.
func Serve(ctx context.Context, conn *net.UnixConn, bootstrap capnp.Client, limits Limits) error {
	v := newVat(conn, bootstrap, limits.withDefaults())
	go v.out.runWriter()
	// Wakes the reader when the server stops or a write failed.
	stopOnCtx := context.AfterFunc(ctx, func() { v.cancel(context.Cause(ctx)) })
	stopOnEnd := context.AfterFunc(v.ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	err := v.runReader()
	if cause := context.Cause(v.ctx); cause != nil {
		err = cause
	}
	stopOnCtx()
	stopOnEnd()
	v.close(err)
	return err
}

// runReader handles messages in the order they came. Nil: the peer closed.
func (v *vat) runReader() error {
	r := bufio.NewReaderSize(v.conn, readBufferBytes)
	for {
		if err := v.awaitRoom(); err != nil {
			return err
		}
		f, err := readFrame(r, v.limits.MaxMessageBytes)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
			return nil
		case errors.Is(err, errAborted):
			return nil
		case err != nil:
			return err
		}
		yield.Step()
		if err := v.handleSafely(f); err != nil {
			if errors.Is(err, errAborted) {
				return nil
			}
			return err
		}
	}
}

// handleSafely keeps a bug in reading a message from ending more than this
// connection.
func (v *vat) handleSafely(f frame) (err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("panic while handling a message", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = gpuerr.New(gpuerr.Internal, "a bug of the service; the log says why")
		}
	}()
	m, err := f.checked()
	if err != nil {
		return err
	}
	return v.handle(m, int64(len(f.bytes)))
}

// awaitRoom is the back-pressure. While results are unsent it waits for the peer
// to read, which a write's deadline bounds. While calls in flight are at their
// limit it waits for callPatience: short calls are throttled by that. If they are
// not short, messages are read on, as what ends those calls may be among them,
// and further calls are refused until there is room again.
func (v *vat) awaitRoom() error {
	for v.out.unsent() >= v.limits.MaxUnsentBytes {
		select {
		case <-v.room:
		case <-v.ctx.Done():
			return context.Cause(v.ctx)
		}
	}

	if v.hasRoom() {
		v.patient = true
		return nil
	}

	if !v.patient {
		return nil
	}

	timer := time.NewTimer(callPatience)
	defer timer.Stop()
	for !v.hasRoom() {
		select {
		case <-v.room:
		case <-v.ctx.Done():
			return context.Cause(v.ctx)
		case <-timer.C:
			v.patient = false
			return nil
		}
	}

	return nil
}

// hasRoom: for one more call.
func (v *vat) hasRoom() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.hasRoomLocked()
}

// +checklocks:v.mu
func (v *vat) hasRoomLocked() bool {
	return v.calls < v.limits.MaxCalls && v.callBytes < v.limits.MaxCallBytes
}

func (v *vat) signalRoom() {
	select {
	case v.room <- struct{}{}:
	default:
	}
}

// close ends everything in order: no more calls start, running ones are
// cancelled and awaited, a last message says why, the peer's references go, and
// with them the objects that only the peer held.
func (v *vat) close(err error) {
	v.cancel(gpuerr.New(gpuerr.Disconnected, "the connection is closed"))
	v.failParked()
	v.running.Wait()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		v.sendAbort(exceptionOf(err))
	}

	v.out.close()
	select {
	case <-v.out.done:
	case <-time.After(abortTimeout):
	}

	v.conn.Close()
	<-v.out.done
	v.releaseAll()
	v.awaitShutdowns()
}
