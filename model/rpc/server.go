package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"capgpu/gate/encode"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm"
	"capgpu/model/peers"
	"capgpu/schema"
)

// refusal bounds the time for refusing a client that finds no place.
const refusal = 5 * time.Second

// Options of a server.
type Options struct {
	Limits rpcguard.Limits // of one connection; zero fields: the defaults for clients
	Log    *slog.Logger    // nil: slog.Default
}

// Listen serves m on l until ctx ends, each client on a connection of its own. When
// a user's share is full, a silent client of that user loses its place to the new
// one; if all are active, the new client gets gpuerr.Busy. Listen takes ownership
// of l, and returns when all connections have ended: nil, or why it can accept no
// more.
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
	defer cancel() // ends them if no more are accepted

	all := peers.NewPlaces(maxConns)
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return gpuerr.New(gpuerr.IO, "no more connections: %v", err)
		}

		of, end := context.WithCancelCause(conns)
		peer := peers.Behind(conn)
		p, full := all.Take(peer, end)
		if full != nil {
			end(nil)
			done, ok := all.Refusing(peer)
			if !ok {
				conn.Close()
				continue
			}
			serving.Go(func() {
				defer done()
				refuse(conns, conn, full, o)
			})
			continue
		}

		serving.Go(func() {
			defer end(nil)
			defer p.Leave()
			switch err := serve(of, conn, m, o, p); {
			case err == nil || errors.Is(err, context.Canceled):
			case errors.Is(err, peers.ErrLost):
				o.log().Debug("a Cap'n Proto client was dropped", "err", err)
			default:
				o.log().Warn("a Cap'n Proto client was dropped", "err", err)
			}
		})
	}
}

// refuse answers a client with the reason why it is not served, if the client asks
// soon.
func refuse(ctx context.Context, conn *net.UnixConn, why error, o Options) {
	ctx, cancel := context.WithTimeout(ctx, refusal)
	defer cancel()
	shut := rpcguard.NewGate()
	shut.Revoke(why)
	_ = rpcguard.Serve(ctx, conn, rpcguard.Export(rpcguard.Spec{Name: "ModelServer", Gate: shut, Log: o.log(),
		Methods: schema.ModelServer_Methods(nil, &server{})}), o.Limits)
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
	p, err := peers.NewPlaces(1).Take(peers.Behind(conn), func(error) {})
	if err != nil {
		conn.Close()
		return err
	}
	return serve(ctx, conn, m, o, p)
}

func serve(ctx context.Context, conn *net.UnixConn, m lm.Model, o Options, p *peers.Place) error {
	who := lm.Asker{Peer: p.Peer, User: "rpc" + strconv.FormatUint(p.Number, 10)}
	s := &server{model: lm.As(m, who), log: o.log(), root: rpcguard.NewGate(), place: p, streams: make(chan struct{}, maxStreams)}
	bootstrap := rpcguard.Export(rpcguard.Spec{
		Name: "ModelServer", Gate: s.root, Impl: s, Log: s.log,
		Methods: counted(p, schema.ModelServer_Methods(nil, s)),
		// Waiting calls learn of the end, so that they return.
		Shutdown: func() { s.root.Revoke(gpuerr.New(gpuerr.Disconnected, "the connection is closed")) },
	})
	return rpcguard.Serve(ctx, conn, bootstrap, o.Limits)
}

// server implements ModelServer, LanguageModel and Embedder for one connection.
type server struct {
	model   lm.Model
	log     *slog.Logger
	root    *rpcguard.Gate
	place   *peers.Place
	streams chan struct{} // places for answers that have not ended
}

func (s *server) LanguageModel(_ context.Context, call schema.ModelServer_languageModel) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetModel(schema.LanguageModel(rpcguard.Export(rpcguard.Spec{
		Name: "LanguageModel", Gate: s.root, Impl: s, Log: s.log,
		Methods: counted(s.place, schema.LanguageModel_Methods(nil, languageModel{s})),
	})))
}

func (s *server) Embedder(_ context.Context, call schema.ModelServer_embedder) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetEmbedder(schema.Embedder(rpcguard.Export(rpcguard.Spec{
		Name: "Embedder", Gate: s.root, Impl: s, Log: s.log,
		Methods: counted(s.place, schema.Embedder_Methods(nil, embedder{s})),
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
	if err := encode.Device(device, now.Device); err != nil {
		return err
	}

	return encode.Budget(out.NewBudget, now.Budget)
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
