package manager

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/manager/engines"
	"capgpu/schema"
)

// engineHolder is a function that kernel drivers keep: engine processes use it.
type engineHolder interface{ enginePool() *engines.Pool }

// enginesOf returns the engines of a function; nil: it has none.
func enginesOf(f Function) *engines.Pool {
	if h, ok := f.(engineHolder); ok {
		return h.enginePool()
	}
	return nil
}

// mostEngines is the number for the grant set.
func mostEngines(f Function) uint32 {
	if p := enginesOf(f); p != nil {
		return uint32(p.Most())
	}
	return 0
}

// Engine implements schema.DriverGrants_Server.
func (s *grantServer) Engine(ctx context.Context, call schema.DriverGrants_engine) error {
	pool := enginesOf(s.function)
	if pool == nil {
		return gpuerr.New(gpuerr.Denied, "no engines are granted: the function has no nodes")
	}

	group := call.Args().Group()
	rpcguard.Go(ctx, call.Call) // an engine may take as long as its device needs to open
	e, err := pool.Open(ctx, group)
	if err != nil {
		return err
	}
	link, ended, err := e.TakeLink()
	if err != nil {
		e.Abandon()
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		e.Abandon()
		return errors.Join(err, unix.Close(link), unix.Close(ended))
	}
	server := &engineServer{grantServer: s, engine: e}
	// The capability first: with it the engine ends, whatever becomes of the answer.
	return errors.Join(
		res.SetEngine(schema.Engine(s.export("Engine", schema.Engine_Methods(nil, server), nil, e.Abandon))),
		res.SetLink(s.descriptor(link)), res.SetEnded(s.descriptor(ended)))
}

type engineServer struct {
	*grantServer
	engine *engines.Engine
}

// Kill implements schema.Engine_Server.
func (s *engineServer) Kill(ctx context.Context, call schema.Engine_kill) error {
	rpcguard.Go(ctx, call.Call) // the death of a process may take seconds
	return s.engine.Kill(ctx)
}
