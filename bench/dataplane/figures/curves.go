package figures

import (
	"context"
	"slices"
	"time"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
)

// longestCurve bounds the time of one distribution.
const longestCurve = 5 * time.Second

// Curves measures single round trips, of ours and of every peer.
func Curves(ctx context.Context, e *Env) (all []report.Curve, err error) {
	add := func(name string, round func() error) error {
		e.Say("round trips: %s", name)
		nanos, err := paired.Each(e.Rounds, longestCurve, round)
		if err != nil {
			return err
		}
		slices.Sort(nanos)
		all = append(all, report.Curve{Name: name, Nanos: nanos, Count: len(nanos)})
		return nil
	}

	l, err := openLauncher(ctx, e.Service, 256)
	if err != nil {
		return nil, err
	}

	err = add("checked launch", l.roundTrip)
	_ = l.close()
	if err != nil {
		return nil, err
	}
	if err := e.Raw.Spin(func(round func() error) error { return add("raw spin", round) }); err != nil {
		return nil, err
	}
	if err := e.Raw.Futex(func(round func() error) error { return add("raw futex", round) }); err != nil {
		return nil, err
	}

	for _, name := range peers.RPCNames {
		peer, err := peers.NewRPC(name)
		if err != nil {
			return nil, err
		}
		err = add(rpcTitles[name]+" call", peer.Call)
		_ = peer.Close()
		if err != nil {
			return nil, err
		}
	}

	return all, nil
}

// Spin is the raw spin round trip at this moment, in nanoseconds.
func Spin(e *Env) (nanos float64, err error) {
	var samples []float64
	err = e.spin()(spinTime, func(n float64) { samples = append(samples, n) })
	if err != nil {
		return 0, err
	}
	return paired.Median(samples), nil
}

const spinTime = 20 * time.Millisecond
