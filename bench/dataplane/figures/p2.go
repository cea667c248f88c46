package figures

import (
	"context"
	"fmt"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/client"
)

const batch = 256

// listLaunches are in the list that is replayed: as many as a small model has kernels.
const listLaunches = 70

// batches is P2.
func batches(ctx context.Context, e *Env) ([]report.Row, error) {
	one, err := openLauncher(ctx, e.Service, batch)
	if err != nil {
		return nil, err
	}
	defer one.close()
	two, err := openLauncher(ctx, e.Service, 2*batch)
	if err != nil {
		return nil, err
	}
	defer two.close()
	strict := paired.Batches(batch, func() error { return one.thereAndBack(batch) })
	// The next batch is pushed while the driver works on this one.
	flying := 0
	overlapped := paired.Batches(batch, func() error {
		for ; flying < 2; flying++ {
			if err := two.push(batch); err != nil {
				return err
			}
		}
		flying--
		return two.collect(batch)
	})
	land := func() error {
		err := two.collect(flying * batch)
		flying = 0
		return err
	}
	replay, err := replays(ctx, one)
	if err != nil {
		return nil, err
	}
	others, err := openLauncher(ctx, e.Service, batch)
	if err != nil {
		return nil, err
	}
	defer others.close()
	others.vary()
	varied := paired.Batches(batch, func() error { return others.thereAndBack(batch) })
	uring, err := peers.NewUring(batch)
	if err != nil {
		e.Say("P2: THERE IS NO PEER, io_uring is refused here: %v", err)
		return absoluteBatches(e, strict, overlapped.Then(land), varied, replay, err)
	}
	defer uring.Close()
	peer := paired.Batches(batch, func() error { return uring.Nops(batch) })
	r, err := paired.Compare(e.pairs(0.22), strict, peer)
	if err != nil {
		return nil, err
	}
	r2, err := paired.Compare(e.pairs(0.22), overlapped.Then(land), peer)
	if err != nil {
		return nil, err
	}
	r3, err := paired.Compare(e.pairs(0.22), varied, peer)
	if err != nil {
		return nil, err
	}
	r4, err := paired.Compare(e.pairs(0.22), replay, peer)
	if err != nil {
		return nil, err
	}
	return []report.Row{
		report.Ratio("P2", "launch in batches of 256, one in flight / io_uring NOP in batches of 256", r, report.AtMost(0.6, 0.22)),
		report.Ratio("P2", "the same, two batches in flight", r2, report.Target{}),
		report.Ratio("P2", variedMetric, r3, report.Target{}),
		report.Ratio("P2", replayMetric+" / the same NOP", r4, report.Target{}),
		clientCalls(one, two, others),
	}, nil
}

// clientCalls is the system calls of the client for what these have launched.
func clientCalls(of ...*launcher) report.Row {
	var launches, calls uint64
	for _, l := range of {
		sent, slept := l.queue.Wakes()
		launches, calls = launches+l.pushed, calls+sent+slept
	}
	return report.Value("P2", fmt.Sprintf("system calls of the client in %d launches (wakes sent, sleeps)", launches), report.Number(float64(calls)), "", float64(calls), "", report.Target{})
}

const variedMetric = "the same of six different launches in turn, one batch in flight"

var replayMetric = fmt.Sprintf("launch of a recorded list of %d, one replay in flight", listLaunches)

// replays is the side that replays a recorded list, per launch of the list.
func replays(ctx context.Context, l *launcher) (paired.Side, error) {
	commands := make([]client.Command, listLaunches)
	for i := range commands {
		commands[i] = &l.launch
	}
	list, err := l.session.RecordList(ctx, commands...)
	if err != nil {
		return nil, err
	}
	replay := list.Replay() // closed with the session
	return paired.Batches(listLaunches, func() error {
		if _, err := l.queue.PushReplay(replay); err != nil {
			return err
		}
		if err := l.queue.Flush(); err != nil {
			return err
		}
		return l.collect(1)
	}), nil
}

// absoluteBatches is what can be said where io_uring is forbidden.
func absoluteBatches(e *Env, strict, overlapped, varied, replay paired.Side, why error) (rows []report.Row, err error) {
	spin := e.spin()
	for _, of := range []struct {
		metric string
		side   paired.Side
	}{
		{"launch in batches of 256 (NO PEER: " + why.Error() + ")", strict},
		{"the same, two batches in flight", overlapped},
		{variedMetric, varied},
		{replayMetric, replay},
	} {
		r, err := paired.Compare(e.pairs(0.22), of.side, spin)
		if err != nil {
			return nil, err
		}
		rows = append(rows, report.Absolute("P2", of.metric, r.Ours))
	}
	return rows, nil
}
