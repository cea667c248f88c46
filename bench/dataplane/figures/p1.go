package figures

import (
	"context"
	"fmt"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
)

// launchRoundTrip is P1.
func launchRoundTrip(ctx context.Context, e *Env) ([]report.Row, error) {
	l, err := openLauncher(ctx, e.Service, 256)
	if err != nil {
		return nil, err
	}
	defer l.close()

	ours := paired.Rounds(l.roundTrip)
	r, err := paired.Compare(e.pairs(0.3), ours, e.spin())
	if err != nil {
		return nil, err
	}

	rows := []report.Row{report.Ratio("P1", "launch round trip, depth 1 / raw spin round trip", r, report.AtMost(12, 5))}
	for _, name := range peers.RPCNames {
		e.Say("P1: against %s", name)
		peer, err := peers.NewRPC(name)
		if err != nil {
			return nil, err
		}
		r, err := paired.Compare(e.pairs(0.2), ours, paired.Rounds(peer.Call))
		_ = peer.Close()
		if err != nil {
			return nil, fmt.Errorf("against %s: %w", name, err)
		}
		target := report.Target{}
		if name == "capnp" {
			target = report.AtLeast(40, 40)
		}
		rows = append(rows, report.Ratio("P1", "times faster than a call by "+rpcTitles[name], r.Inverse(), target))
	}

	return rows, nil
}

var rpcTitles = map[string]string{"capnp": "go-capnp", "grpc": "gRPC-Go", "ttrpc": "ttrpc"}
