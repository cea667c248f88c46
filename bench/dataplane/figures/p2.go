package figures

import (
	"context"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
)

const batch = 256

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
	strict := paired.Batches(batch, func() error {
		if err := one.push(batch); err != nil {
			return err
		}
		return one.collect(batch)
	})
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
	uring, err := peers.NewUring(batch)
	if err != nil {
		e.Say("P2: THERE IS NO PEER, io_uring is refused here: %v", err)
		return absoluteBatches(e, strict, overlapped, land, err)
	}
	defer uring.Close()
	peer := paired.Batches(batch, func() error { return uring.Nops(batch) })
	r, err := paired.Compare(e.pairs(0.3), strict, peer)
	if err != nil {
		return nil, err
	}
	r2, err := paired.Compare(e.pairs(0.3), overlapped.Then(land), peer)
	if err != nil {
		return nil, err
	}
	return []report.Row{
		report.Ratio("P2", "launch in batches of 256, one in flight / io_uring NOP in batches of 256", r, report.AtMost(0.6, 0.22)),
		report.Ratio("P2", "the same, two batches in flight", r2, report.Target{}),
	}, nil
}

// absoluteBatches is what can be said where io_uring is forbidden.
func absoluteBatches(e *Env, strict, overlapped paired.Side, land func() error, why error) ([]report.Row, error) {
	spin := e.spin()
	r, err := paired.Compare(e.pairs(0.3), strict, spin)
	if err != nil {
		return nil, err
	}
	r2, err := paired.Compare(e.pairs(0.3), overlapped.Then(land), spin)
	if err != nil {
		return nil, err
	}
	return []report.Row{
		report.Absolute("P2", "launch in batches of 256 (NO PEER: "+why.Error()+")", r.Ours),
		report.Absolute("P2", "the same, two batches in flight", r2.Ours),
	}, nil
}
