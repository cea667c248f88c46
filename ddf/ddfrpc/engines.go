package ddfrpc

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/schema"
)

// maxEngines bounds the grant that this side believes.
const maxEngines = 64

// Engines is the manager's ddf.Engines.
type Engines struct {
	link   *Link
	remote schema.DriverGrants
}

var _ ddf.Engines = (*Engines)(nil)

// setEngines takes the grant of engines, if there is one.
func (l *Link) setEngines(grants schema.DriverGrants, g schema.GrantSet) error {
	switch n := g.Engines(); {
	case n == 0:
		return nil
	case n > maxEngines:
		return gpuerr.New(gpuerr.Protocol, "%d engines were granted; a function has at most %d", n, maxEngines)
	}
	remote := grants.AddRef()
	l.release = append(l.release, remote.Release)
	l.set.Engines = &Engines{link: l, remote: remote}
	return nil
}

// Open implements ddf.Engines.
func (e *Engines) Open(ctx context.Context, group uint32) (ddf.Engine, error) {
	leave, err := e.link.enter(ctx, e.link.asking)
	if err != nil {
		return nil, err
	}

	defer leave()
	engine, err := e.open(ctx, group)
	if err != nil {
		return nil, e.link.mapped(err)
	}
	return engine, nil
}

// open asks for an engine. After an error, the release of its capability makes the manager
// end the process.
func (e *Engines) open(ctx context.Context, group uint32) (_ *Engine, err error) {
	ctx, done := e.link.within(ctx)
	defer done()
	f, release := e.remote.Engine(ctx, func(args schema.DriverGrants_engine_Params) error {
		args.SetGroup(group)
		return nil
	})
	defer release()
	res, err := f.Struct()
	if err != nil {
		return nil, err
	}

	socket, err := e.link.memory(res.Link())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(socket)
		}
	}()
	if kind, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return nil, gpuerr.New(gpuerr.Protocol, "the link to an engine is no SEQPACKET socket (%v)", err)
	}

	pipe, err := e.link.memory(res.Ended())
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(pipe, true); err != nil { // os.File polls only such
		unix.Close(pipe)
		return nil, gpuerr.New(gpuerr.IO, "poll the end of an engine: %v", err)
	}

	engine := &Engine{grants: e.link, remote: res.Engine().AddRef(), socket: socket, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	e.link.addEngine(engine)
	go engine.runEnd(os.NewFile(uintptr(pipe), "end of an engine"))
	return engine, nil
}

// openEngines are those of a link.
type openEngines struct {
	mu sync.Mutex
	// +checklocks:mu
	all map[*Engine]struct{}
}

func (l *Link) addEngine(e *Engine) {
	l.engines.mu.Lock()
	defer l.engines.mu.Unlock()
	if l.engines.all == nil {
		l.engines.all = map[*Engine]struct{}{}
	}
	l.engines.all[e] = struct{}{}
}

// closeEngines closes the sockets that Kill has not. The link is down.
func (l *Link) closeEngines() {
	l.engines.mu.Lock()
	all := l.engines.all
	l.engines.all = nil
	l.engines.mu.Unlock()
	for e := range all {
		<-e.done
		unix.Close(e.socket)
	}
}

// Engine is the manager's ddf.Engine.
type Engine struct {
	grants *Link
	remote schema.Engine
	socket int
	done   chan struct{}

	turn   chan struct{} // held by one Kill
	killed bool          // for certain: remote and socket are closed; used by the holder of turn
}

// Link implements ddf.Engine.
func (e *Engine) Link() int { return e.socket }

// Done implements ddf.Engine. It is closed, too, when the link to the manager is down: then
// the manager ends all engines, and none is granted any more.
func (e *Engine) Done() <-chan struct{} { return e.done }

// runEnd waits for the end of the process, and closes the link to it.
func (e *Engine) runEnd(pipe *os.File) {
	defer close(e.done)
	stop := context.AfterFunc(e.grants.ctx, func() { pipe.Close() })
	defer stop()
	defer pipe.Close()
	var b [1]byte
	for {
		if _, err := pipe.Read(b[:]); err != nil { // io.EOF: it is dead
			return
		}
	}
}

// Kill implements ddf.Engine. It closes the link to the process.
func (e *Engine) Kill(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-e.grants.ctx.Done():
		return errRevoked
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.killed {
		return nil
	}

	leave, err := e.grants.enter(ctx, e.grants.killing)
	if err != nil {
		return err
	}

	defer leave()
	if err := e.kill(ctx); err != nil {
		return e.grants.mapped(err)
	}

	e.killed = true
	e.remote.Release()
	e.grants.engines.mu.Lock()
	_, ours := e.grants.engines.all[e]
	delete(e.grants.engines.all, e)
	e.grants.engines.mu.Unlock()
	if ours {
		unix.Close(e.socket)
	}
	return nil
}

func (e *Engine) kill(ctx context.Context) error {
	ctx, done := e.grants.within(ctx)
	defer done()
	f, release := e.remote.Kill(ctx, nil)
	defer release()
	_, err := f.Struct()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
