package figures

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
)

const (
	// survivors are clients at work when the driver dies. The first of them is the
	// timed one, whichever of them is served first: its waits are a typical
	// client's, often with the others before it.
	survivors = 3
	// recoveries is the number of kills, unless -kills is set.
	recoveries = 200
	// longestRecovery is far above the time of one recovery.
	longestRecovery = 20 * time.Second
	// mostMoment bounds the delay of a kill after everybody is at work.
	mostMoment = 5 * time.Millisecond
)

// recovery is P8.
func recovery(ctx context.Context, e *Env) (rows []report.Row, err error) {
	cold, err := peers.NewCold()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cold.Close()) }()

	svc, err := service.Start(e.Bin, peers.ServerCPU, service.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()

	d := &deaths{svc: svc, cold: cold}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, d.end())
	}()

	for i := range survivors {
		s, err := openSurvivor(ctx, svc.Socket, int64(i))
		if err != nil {
			return nil, err
		}
		d.clients = append(d.clients, s)
		d.working.Go(func() { s.run(ctx) })
	}

	if err := d.settle(1); err != nil {
		return nil, err
	}

	before, err := d.holdings()
	if err != nil {
		return nil, err
	}

	kills := e.killsOr(recoveries)
	r, err := paired.Compare(paired.Options{Pairs: kills, Slice: 1, Longest: e.Longest}, paired.Timed(d.kill), paired.Timed(cold.Spawn))
	if err != nil {
		return nil, fmt.Errorf("after %d kills: %w; the service said:\n%s", d.kills, err, svc.Log())
	}
	if r.Pairs < kills {
		e.Say("P8: the time is up after %d kills", r.Pairs)
	}
	if err := d.settle(uint64(d.kills) + 1); err != nil {
		return nil, err
	}

	leaks, err := d.leaks(before)
	if err != nil {
		return nil, err
	}

	var sum tally
	for _, s := range d.clients {
		sum.add(s.counts())
	}

	return []report.Row{
		report.Ratio("P8", fmt.Sprintf("kill -9 of the driver under load to the first right completion on a re-opened session / cold spawn of a trivial Go child (%d of %d with a warm standby)", d.warm, d.kills), r, report.AtMost(4, 4)),
		report.Absolute("P8", "the same until the first of the clients has it, whichever it is", paired.Median(d.firsts)),
		report.Absolute("P8", "and until all have", paired.Median(d.lasts)),
		report.Value("P8", fmt.Sprintf("kills of %d that a client did not recover from", d.kills*survivors), report.Number(float64(d.kills*survivors-d.recovered)), "", float64(d.kills*survivors-d.recovered), "", report.AtMost(0, 0)),
		report.Value("P8", "left over: "+leaks.what, report.Number(leaks.sum), "", leaks.sum, "", report.AtMost(0, 0)),
		report.Value("P8", fmt.Sprintf("false outcomes of %d jobs (%d ended ok and right, %d were lost with their driver and said so, %d ok and scrubbed before they could be read)", sum.jobs(), sum.right, sum.lost, sum.scrubbed), report.Number(float64(sum.wrong)), "", float64(sum.wrong), "", report.AtMost(0, 0)),
	}, nil
}

// killsOr is -kills, or a figure's own number.
func (e *Env) killsOr(own int) int {
	if e.Kills < 0 {
		return own
	}
	return max(e.Kills, 1)
}

// kill kills the driver at a random moment, and returns the time until the first
// client has a right completion again. It returns when all have one.
func (d *deaths) kill() (took time.Duration, err error) {
	if d.awaitStandby() {
		d.warm++
	}

	pid, err := d.svc.ServingPID()
	if err != nil {
		return 0, err
	}

	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)

	time.Sleep(time.Duration(seed() % uint64(mostMoment)))
	d.kills++
	begun := time.Now()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return 0, err
	}

	end := begun.Add(longestRecovery)
	first, last := longestRecovery, time.Duration(0)
	for i, s := range d.clients {
		at, err := s.await(uint64(d.kills)+1, end)
		if err != nil {
			return 0, fmt.Errorf("client %d: %w", i, err)
		}
		d.recovered++
		first, last = min(first, at.Sub(begun)), max(last, at.Sub(begun))
		if i == 0 {
			took = at.Sub(begun)
		}
	}

	d.firsts, d.lasts = append(d.firsts, float64(first)), append(d.lasts, float64(last))
	return took, nil
}
