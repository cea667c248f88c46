package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"capgpu/gate/tell"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm"
	"capgpu/schema"
)

// maxConns is how many clients are served at a time; others wait to be accepted.
const maxConns = 64

// Options of a server.
type Options struct {
	Limits rpcguard.Limits // of one connection; zero fields: the defaults for clients
	Log    *slog.Logger    // nil: slog.Default
}

// Listen serves m on l until ctx ends, a connection at a time for each client. It takes
// ownership of l, and returns when all connections have ended: nil, or why it can accept
// no more.
func Listen(ctx context.Context, l *net.UnixListener, m lm.Model, o Options) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer func() {
		if stop() {
			l.Close()
		}
	}()
	var serving sync.WaitGroup
	defer serving.Wait()
	conns, cancel := context.WithCancel(ctx)
	defer cancel() // they end if no more are accepted
	places := make(chan struct{}, maxConns)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return gpuerr.New(gpuerr.IO, "no more connections: %v", err)
		}
		serving.Go(func() {
			defer func() { <-places }()
			err := Serve(conns, conn, m, o)
			if err != nil && !errors.Is(err, context.Canceled) {
				o.log().Warn("a Cap'n Proto client was dropped", "err", err)
			}
		})
	}
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.Default()
	}
	return o.Log
}

// Serve serves ModelServer on conn until the client is gone or ctx ends. It takes
// ownership of conn. The error is that of rpcguard.Serve: nil when the client closed the
// connection.
func Serve(ctx context.Context, conn *net.UnixConn, m lm.Model, o Options) error {
	s := &server{model: m, log: o.log(), root: rpcguard.NewGate(), streams: make(chan struct{}, maxStreams)}
	bootstrap := rpcguard.Export(rpcguard.Spec{
		Name: "ModelServer", Gate: s.root, Impl: s, Log: s.log,
		Methods: schema.ModelServer_Methods(nil, s),
		// Who waits in a call is told, so that the calls end.
		Shutdown: func() { s.root.Revoke(gpuerr.New(gpuerr.Disconnected, "the connection is closed")) },
	})
	return rpcguard.Serve(ctx, conn, bootstrap, o.Limits)
}

// server implements ModelServer, LanguageModel and Embedder for one connection.
type server struct {
	model   lm.Model
	log     *slog.Logger
	root    *rpcguard.Gate
	streams chan struct{} // places for answers that have not ended
}

func (s *server) LanguageModel(_ context.Context, call schema.ModelServer_languageModel) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetModel(schema.LanguageModel(rpcguard.Export(rpcguard.Spec{
		Name: "LanguageModel", Gate: s.root, Impl: s, Log: s.log,
		Methods: schema.LanguageModel_Methods(nil, languageModel{s}),
	})))
}

func (s *server) Embedder(_ context.Context, call schema.ModelServer_embedder) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetEmbedder(schema.Embedder(rpcguard.Export(rpcguard.Spec{
		Name: "Embedder", Gate: s.root, Impl: s, Log: s.log,
		Methods: schema.Embedder_Methods(nil, embedder{s}),
	})))
}

func (s *server) Status(_ context.Context, call schema.ModelServer_status) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	out, err := res.NewStatus()
	if err != nil {
		return err
	}
	now := s.model.Status()
	out.SetState(schema.ModelState(now.State))
	out.SetLoaded(now.Loaded)
	out.SetBytes(now.Bytes)
	out.SetRunning(uint32(now.Running))
	out.SetWaiting(uint32(now.Waiting))
	if err := out.SetReason(now.Reason); err != nil {
		return err
	}
	device, err := out.NewDevice()
	if err != nil {
		return err
	}
	if err := tell.Device(device, now.Device); err != nil {
		return err
	}
	return tell.Budget(out.NewBudget, now.Budget)
}

func putInfo(alloc func() (schema.ModelInfo, error), m lm.Model) error {
	out, err := alloc()
	if err != nil {
		return err
	}
	info := m.Info()
	out.SetParameters(info.Parameters)
	out.SetBytes(info.Bytes)
	out.SetContext(uint32(info.Context))
	out.SetVocab(uint32(info.Vocab))
	out.SetDim(uint32(info.Dim))
	if err := out.SetName(info.Name); err != nil {
		return err
	}
	if err := out.SetFormat(info.Format); err != nil {
		return err
	}
	stops, err := out.NewChatStops(int32(len(info.ChatStops)))
	if err != nil {
		return err
	}
	for i, s := range info.ChatStops {
		if err := stops.Set(i, s); err != nil {
			return err
		}
	}
	return nil
}
