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

// listLaunches is the length of the replayed list: as many launches as a small
// model has kernels.
const listLaunches = 70

// batches is P2: launches of a recorded list, and launches that were not recorded.
func batches(ctx context.Context, e *Env) ([]report.Row, error) {
	alike, err := openLauncher(ctx, e.Service, batch)
	if err != nil {
		return nil, err
	}
	defer alike.close()

	different, err := openLauncher(ctx, e.Service, batch)
	if err != nil {
		return nil, err
	}
	defer different.close()

	different.vary()

	replay, err := replays(ctx, alike)
	if err != nil {
		return nil, err
	}

	sides := []batchSide{
		{listMetric, replay, report.AtMost(1.2, 0.6)},
		{"unrecorded launch, in batches of 256", unrecorded(alike), report.AtMost(4, 1.5)},
		{"the same of six different launches in turn", unrecorded(different), report.Target{}},
	}

	rows, err := besideNops(e, sides)
	if err != nil {
		return nil, err
	}

	return append(rows, clientCalls(alike, different)), nil
}

// batchSide is one way to launch many.
type batchSide struct {
	metric string
	side   paired.Side
	target report.Target
}

// besideNops compares each way with NOPs of io_uring. If that is forbidden, the
// times stand alone.
func besideNops(e *Env, sides []batchSide) (rows []report.Row, err error) {
	part := 0.9 / float64(len(sides))
	uring, refused := peers.NewUring(batch)
	if refused != nil {
		e.Say("P2: THERE IS NO PEER, io_uring is refused here: %v", refused)
		spin := e.spin()
		for _, of := range sides {
			r, err := paired.Compare(e.pairs(part), of.side, spin)
			if err != nil {
				return nil, err
			}
			rows = append(rows, report.Absolute("P2", of.metric+" (NO PEER: "+refused.Error()+")", r.Ours))
		}
		return rows, nil
	}
	defer uring.Close()

	nops := paired.Batches(batch, func() error { return uring.Nops(batch) })
	for _, of := range sides {
		r, err := paired.Compare(e.pairs(part), of.side, nops)
		if err != nil {
			return nil, err
		}
		rows = append(rows, report.Ratio("P2", of.metric+" / io_uring NOP in batches of 256", r, of.target))
	}

	return rows, nil
}

// unrecorded is the side that launches in batches, one of them in flight.
func unrecorded(l *launcher) paired.Side {
	return paired.Batches(batch, func() error { return l.thereAndBack(batch) })
}

// clientCalls is the client's system calls for these launches.
func clientCalls(of ...*launcher) report.Row {
	var launches, calls uint64
	for _, l := range of {
		sent, slept := l.queue.Wakes()
		launches, calls = launches+l.pushed, calls+sent+slept
	}
	return report.Value("P2", fmt.Sprintf("system calls of the client in %d launches (wakes sent, sleeps)", launches), report.Number(float64(calls)), "", float64(calls), "", report.Target{})
}

var listMetric = fmt.Sprintf("launch of a recorded list of %d, one replay in flight", listLaunches)

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
