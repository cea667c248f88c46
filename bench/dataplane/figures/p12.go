package figures

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"capgpu/bench/dataplane/paired"
	"capgpu/bench/dataplane/report"
)

// exactness is P12.
func exactness(ctx context.Context, e *Env) ([]report.Row, error) {
	if e.Ops == 0 {
		return crowdRows(ctx, e)
	}

	a, err := account(ctx, e)
	// Some kernels spin in wait4 for longer than the manager waits for a killed
	// driver (Linux 6.18: release_task, shrink_dcache_parent, after others have
	// read its /proc files, as we do). Such a device is rightly lost, and tells
	// nothing about the ledger.
	for again := 0; err != nil && strings.Contains(err.Error(), "cannot be reaped") && again < 2; again++ {
		e.Say("P12: once more, because the kernel did not let go of a process: %v", err)
		a, err = account(ctx, e)
	}

	if err != nil {
		return nil, err
	}

	many, err := crowdRows(ctx, e)
	if err != nil {
		return nil, err
	}

	after := fmt.Sprintf("after %d operations, %d kill -9 (%d looks)", a.ops, a.kills, a.looks)
	return append([]report.Row{
		report.Value("P12", "ledger against the kernel, bytes "+after, report.Number(a.bytes), "", a.bytes, "B", report.AtMost(0, 0)),
		report.Value("P12", "descriptors of the driver against what its clients hold", report.Number(a.descriptors), "", a.descriptors, "fds", report.AtMost(0, 0)),
	}, many...), nil
}

// turn is the number of launches of each of many sessions in its turn, if that is
// less than a batch: 65,536 launches are in flight, of 1,024 sessions.
const turn = 64

// crowdRows are the figures of many sessions; the last is in batches as large as
// those of the single one.
func crowdRows(ctx context.Context, e *Env) (rows []report.Row, err error) {
	for _, of := range []struct {
		each   uint32
		metric string
		target report.Target
	}{
		{turn, "launches per second of %d sessions in turns of 64 / of 1 in batches of 256", report.Target{}},
		{batch, "launches per second of %d sessions / of 1, in batches of 256", report.AtLeast(0.2, 0.6)},
	} {
		metric := fmt.Sprintf(of.metric, e.Sessions)
		e.Say("P12: %s", metric)
		r, err := crowd(ctx, e, of.each)
		if err != nil {
			return nil, err
		}
		rows = append(rows, report.Ratio("P12", metric, r.Inverse(), of.target))
	}
	return rows, nil
}

// crowd compares the time of a launch by many sessions in turn, each with this many
// at a time, with that by one, which keeps two batches in flight.
func crowd(ctx context.Context, e *Env, each uint32) (r paired.Result, err error) {
	one, err := openLauncher(ctx, e.Service, 2*batch)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, one.close()) }()

	all, closeAll, err := openMany(ctx, e, e.Sessions, each)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()

	n := int(each)
	list := all[0].many
	for _, l := range all { // one client, which submits launches and polls completions in one place
		l.many, l.done = list, all[0].done
	}

	many := paired.Batches(len(all)*n, func() error {
		for _, l := range all {
			for i := range list[:n] {
				list[i] = &l.launch
			}
			if err := l.push(n); err != nil {
				return err
			}
		}
		for _, l := range all {
			if err := l.collect(n); err != nil {
				return err
			}
		}
		return nil
	})

	rounds := max(len(all)*n/batch, 1)
	single := paired.Batches(rounds*batch, func() error {
		if err := one.push(batch); err != nil {
			return err
		}
		for i := range rounds {
			if i < rounds-1 {
				if err := one.push(batch); err != nil {
					return err
				}
			}
			if err := one.collect(batch); err != nil {
				return err
			}
		}
		return nil
	})
	return paired.Compare(e.pairs(0.1), many, single)
}

// seed is the workers' seed: each run has another one.
func seed() uint64 { return rand.Uint64() }
