package figures

import (
	"context"
	"fmt"
	"slices"

	"capgpu/bench/dataplane/service"
	"capgpu/client"
	"capgpu/outcome"
)

// kernel is the cheapest built-in program with three buffers, at a size where it
// does next to nothing: the round trip is measured.
const (
	kernel        = "vecadd_f32"
	kernelBytes   = 16 // of each binding: four elements
	kernelBuffers = 3
)

// launcher is a session that launches the kernel.
type launcher struct {
	session *client.Session
	queue   *client.Queue
	buffers [kernelBuffers]*client.Buffer
	launch  client.Launch
	many    []*client.Launch // as often as the queue has entries
	done    []client.Completion
	ctx     context.Context
	pushed  uint64 // launches by push
}

// openLauncher opens a session with a queue of that many entries.
func openLauncher(ctx context.Context, s *service.Service, entries uint32) (_ *launcher, err error) {
	conn, err := client.Dial(ctx, s.Socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	session, err := conn.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	l, err := newLauncher(ctx, session, entries)
	if err != nil {
		_ = session.Close(ctx)
	}
	return l, err
}

func newLauncher(ctx context.Context, session *client.Session, entries uint32) (_ *launcher, err error) {
	l := &launcher{session: session, ctx: ctx, done: make([]client.Completion, entries)}
	program, err := session.OpenProgram(ctx, kernel)
	if err != nil {
		return nil, err
	}
	l.launch = client.Launch{Program: program, Grid: client.Dim3{X: 1, Y: 1, Z: 1}, Block: program.Info().Block}
	for i := range l.buffers {
		if l.buffers[i], err = session.CreateBuffer(ctx, kernelBytes, client.Storage); err != nil {
			return nil, err
		}
		l.launch.Bindings = append(l.launch.Bindings, client.Binding{Buffer: l.buffers[i], Len: kernelBytes})
	}
	l.many = slices.Repeat([]*client.Launch{&l.launch}, int(entries))
	l.queue, err = session.CreateQueue(ctx, client.QueueOptions{Entries: entries, ArgBytes: argBytes(entries)})
	return l, err
}

// vary makes it push different launches in turn: the same program with its buffers
// in every order.
func (l *launcher) vary() {
	orders := [][kernelBuffers]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	launches := make([]client.Launch, len(orders))
	for i, order := range orders {
		launches[i] = l.launch
		launches[i].Bindings = nil
		for _, at := range order {
			launches[i].Bindings = append(launches[i].Bindings, l.launch.Bindings[at])
		}
	}
	for i := range l.many {
		l.many[i] = &launches[i%len(launches)]
	}
}

// argBytes is room for the arguments of a full queue.
func argBytes(entries uint32) uint32 { return max(entries*kernelBuffers*32*2, 4096) }

// roundTrip is the round trip of one launch.
func (l *launcher) roundTrip() error {
	if _, err := l.queue.Submit(&l.launch); err != nil {
		return err
	}
	return l.collect(1)
}

// thereAndBack is the round trip of n launches that are published together.
func (l *launcher) thereAndBack(n int) error {
	if err := l.push(n); err != nil {
		return err
	}
	return l.collect(n)
}

// push publishes n launches.
func (l *launcher) push(n int) error {
	if _, _, err := l.queue.PushLaunches(l.many[:n]...); err != nil {
		return err
	}
	l.pushed += uint64(n)
	return l.queue.Flush()
}

// collect takes n completions.
func (l *launcher) collect(n int) error {
	for taken := 0; taken < n; {
		got, err := l.queue.Completions(l.ctx, l.done[:min(n-taken, len(l.done))])
		if err != nil {
			return err
		}
		for i := range l.done[:got] {
			if c := &l.done[i]; c.Outcome.Kind != outcome.OK {
				return fmt.Errorf("launch %d ended %v (%v)", c.Ticket, c.Outcome, c.Err)
			}
		}
		taken += got
	}
	return nil
}

func (l *launcher) close() error { return l.session.Close(l.ctx) }
