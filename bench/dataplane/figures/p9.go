package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"capgpu/bench/dataplane/neighbour"
	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
	"capgpu/client"
	"capgpu/gpuerr"
)

const (
	// hangTenants hang in turn, because three hangs are a ban.
	hangTenants = 60
	// stubborn is a program with launches that, by the fault script, never end and
	// ignore a cancel.
	stubborn       = "fill_u32"
	stubbornScript = `{"faults": [{"kind": "hang", "program": "` + stubborn + `"}]}`
	// hangDeadline is the policy's deadline for the hanging tenants: missing it is
	// a strike.
	hangDeadline = 5 * time.Millisecond
	// tailSlices is the factor by which a slice is longer if its 99th percentile
	// counts: some hundreds of operations. At least one of them is in each of its
	// milliseconds.
	tailSlices = 40
)

// containment is P9.
func containment(ctx context.Context, e *Env) (hung []report.Row, err error) {
	if e.Hangs > 0 {
		hung, err = withNeighbours(e, hangTenants, hangDeadline, func(svc *service.Service, sockets []string) ([]report.Row, error) {
			return hangs(ctx, e, svc, sockets)
		})
		if err != nil {
			return nil, err
		}
	}
	beside, err := withNeighbours(e, 2, 0, func(svc *service.Service, sockets []string) ([]report.Row, error) {
		return offThread(func() ([]report.Row, error) { return besideNeighbours(ctx, e, svc, sockets) })
	})
	return append(hung, beside...), err
}

// withNeighbours runs f beside a service of its own with this many more tenants.
// The policy stops their work after the deadline.
func withNeighbours(e *Env, tenants int, deadline time.Duration, f func(svc *service.Service, sockets []string) ([]report.Row, error)) (rows []report.Row, err error) {
	var names []string
	for i := range tenants {
		names = append(names, fmt.Sprintf("neighbour%02d", i))
	}

	svc, err := service.Start(e.Bin, peers.ServerCPU, service.Options{Neighbours: names, NeighboursDeadline: deadline, Faults: stubbornScript})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()

	var sockets []string
	for _, name := range names {
		sockets = append(sockets, svc.SocketOf(name))
	}

	if rows, err = f(svc, sockets); err != nil {
		return nil, fmt.Errorf("%w; the service said:\n%s", err, svc.Log())
	}

	return rows, nil
}

// hangs injects hangs beside a victim with constant work.
func hangs(ctx context.Context, e *Env, svc *service.Service, sockets []string) (rows []report.Row, err error) {
	victim, err := neighbour.Start(neighbour.Good, svc.Socket)
	if err != nil {
		return nil, err
	}
	defer victim.Kill()

	if err := victim.Begin(); err != nil {
		return nil, err
	}

	injected := 0
	for _, of := range []struct {
		program, metric string
		part            time.Duration
		target          report.Target
	}{
		{"spin", "hang that stops when it is told to: from its deadline to its typed failure, 99 %", e.Longest / 8, report.AtMost(50, 5)},
		{stubborn, "hang that ignores it: the same", e.Longest / 4, report.AtMost(50, 5)},
	} {
		late, err := hangAgain(ctx, e, of.program, sockets, e.Hangs/2, of.part)
		if err != nil {
			return nil, err
		}
		injected += len(late)
		q := paired.Quantiles(late, 0.5, 0.99, 1)
		row := report.Value("P9", of.metric, report.Nanos(q[1]), "median "+report.Nanos(q[0]), q[1]/1e6, "ms", of.target)
		row.Low, row.High, row.Pairs = q[0]/1e6, q[2]/1e6, len(late)
		rows = append(rows, row)
	}

	r, err := victim.Stop()
	if err != nil {
		return nil, err
	}

	disturbed := 0
	for what, n := range r.Refused {
		e.Say("P9: the victim met %s, %d times", what, n)
		disturbed += n
	}

	return append(rows, report.Value("P9", fmt.Sprintf("errors of a neighbour in %d operations during %d hangs", r.Done, injected),
		report.Number(float64(disturbed)), "", float64(disturbed), "", report.AtMost(0, 0))), nil
}

// hangAgain hangs a program this often, or for this long, and returns by how many
// nanoseconds each was late: from its deadline until its client knows that it has
// failed.
func hangAgain(ctx context.Context, e *Env, program string, sockets []string, count int, longest time.Duration) (late []float64, err error) {
	end := time.Now().Add(longest)
	for next := 0; len(late) < count && (len(late) == 0 || time.Now().Before(end)); next++ {
		some, err := hangUntilBanned(ctx, program, sockets[next%len(sockets)], count-len(late), end)
		if err != nil {
			return nil, err
		}
		late = append(late, some...)
		if len(some) == 0 {
			time.Sleep(20 * time.Millisecond) // all of them are banned
		}
	}
	return late, nil
}

func hangUntilBanned(ctx context.Context, program, socket string, count int, end time.Time) (late []float64, err error) {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	s, err := conn.Open(ctx, 0)
	if errors.Is(err, gpuerr.Banned) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()

	p, err := s.OpenProgram(ctx, program)
	if err != nil {
		return nil, err
	}

	launch := &client.Launch{Program: p, Grid: client.Dim3{X: 1, Y: 1, Z: 1}, Block: p.Info().Block, Inline: make([]byte, p.Info().InlineBytes)}
	for range p.Info().Bindings {
		b, err := s.CreateBuffer(ctx, 4096, client.Storage)
		if err != nil {
			return nil, err
		}
		launch.Bindings = append(launch.Bindings, client.Binding{Buffer: b})
	}

	q, err := s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return nil, err
	}

	for len(late) < count && (len(late) == 0 || time.Now().Before(end)) {
		err := q.Run(ctx, launch)
		failed := time.Now()
		var ended *client.OutcomeError
		switch {
		case errors.Is(err, gpuerr.Banned):
			return late, nil
		case !errors.As(err, &ended) || !strings.HasPrefix(ended.Outcome.String(), "timedOut"):
			return nil, fmt.Errorf("a hang of %s ended otherwise than timedOut: %v", program, err)
		}
		deadline, err := lastDeadline(ctx, conn)
		if err != nil {
			return nil, err
		}
		late = append(late, float64(max(failed.Sub(deadline), 0)))
	}

	return late, nil
}

// lastDeadline is the deadline of the tenant's last hang. It counts from when the
// device could have begun the work, not while short work of others goes before it,
// so only the driver can report it.
func lastDeadline(ctx context.Context, conn *client.Conn) (time.Time, error) {
	text, err := conn.Status(ctx, 0)
	if err != nil {
		return time.Time{}, err
	}

	var status struct {
		Recovery struct {
			Last struct {
				Tenant string
				At     time.Time
				Late   time.Duration
			}
		}
	}

	if err := json.Unmarshal(text, &status); err != nil {
		return time.Time{}, err
	}

	last := status.Recovery.Last
	if last.Tenant == "" {
		return time.Time{}, errors.New("the last incident is another tenant's")
	}

	return last.At.Add(-last.Late), nil
}

// offThread calls f on a goroutine of its own. The measuring goroutine is kept on
// one thread. If a client there lets other goroutines run while it polls for
// completions, each time costs two switches of threads: it would poll for
// milliseconds instead of some microseconds, and its neighbours would not have the
// processor meanwhile.
func offThread[T any](f func() (T, error)) (result T, err error) {
	var one sync.WaitGroup
	one.Go(func() { result, err = f() })
	one.Wait()
	return result, err
}

// besideNeighbours compares a tenant's 99th percentile beside hostile neighbours
// with that beside a good one, which leaves it its fair share.
func besideNeighbours(ctx context.Context, e *Env, svc *service.Service, sockets []string) (rows []report.Row, err error) {
	conn, err := client.Dial(ctx, svc.Socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	s, err := conn.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()

	work, err := neighbour.NewWork(ctx, s)
	if err != nil {
		return nil, err
	}

	good, err := neighbour.Start(neighbour.Good, sockets[0])
	if err != nil {
		return nil, err
	}
	defer good.Kill()

	part := 0.6 / float64(len(e.Hostile))
	var fair deeds
	defer func() {
		if fair.own > 0 {
			e.Say("P9: a fair neighbour did %.2f operations in each of the tenant's", float64(fair.theirs)/float64(fair.own))
		}
	}()

	for _, m := range e.Hostile {
		bad, err := neighbour.Start(neighbour.Manner(m), sockets[1:]...)
		if err != nil {
			return nil, err
		}
		r, err := paired.Compare(e.tails(part), beside(ctx, work, bad, sockets[1:], &deeds{}), beside(ctx, work, good, sockets[:1], &fair))
		bad.Kill()
		if err != nil {
			return nil, fmt.Errorf("beside %s: %w", m, err)
		}
		rows = append(rows, report.Ratio("P9", fmt.Sprintf("a tenant's 99 %% beside one that is hostile (%s) / at its fair share", m), r, report.AtMost(1.5, 1.1).Promises("T8", 1.25)))
	}

	return rows, nil
}

// tails are the options of a comparison of 99th percentiles.
func (e *Env) tails(part float64) paired.Options {
	o := e.pairs(part)
	o.Slice *= tailSlices
	o.At = 0.99
	return o
}

// deeds are the operations of a tenant, and those of its neighbour meanwhile. A
// fair neighbour does about as many; otherwise the tenant has more than its fair
// share.
type deeds struct{ own, theirs int }

// beside is the side that works while a neighbour with these sockets behaves in its
// manner. Nothing of that affects the other side: beside ends when everything is
// reclaimed.
func beside(ctx context.Context, work *neighbour.Work, n *neighbour.Process, sockets []string, t *deeds) paired.Side {
	return func(slice time.Duration, add func(float64)) error {
		if err := n.Begin(); err != nil {
			return err
		}
		err := workFor(ctx, work, slice, func(nanos float64) { t.own++; add(nanos) })
		did, stopped := n.Stop()
		if t.theirs += did.Done; err == nil {
			err = stopped
		}
		for _, socket := range sockets {
			if err == nil {
				err = service.AwaitReclaimed(ctx, socket, longestReclaim)
			}
		}
		return err
	}
}

func workFor(ctx context.Context, work *neighbour.Work, slice time.Duration, add func(float64)) error {
	least := int(slice / time.Millisecond) // also where one of them takes longer than the slice
	for start, done := time.Now(), 0; done < least || time.Since(start) < slice; done++ {
		before := time.Now()
		if err := work.Do(ctx); err != nil {
			return err
		}
		add(float64(time.Since(before)))
	}
	return nil
}
