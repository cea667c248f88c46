package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/service"
)

// Options of a run.
type Options struct {
	Bin  string        // folder of the built commands
	Seed uint64        // of everything random; it does not determine the scheduling
	For  time.Duration // of all attacks together, approximately; each runs at least once
	// Timed also compares a newcomer's waits with those without an attack, if the
	// run has the time, and the host no other work.
	Timed bool
	Say   func(format string, args ...any)
}

// Row is the result of one attack.
type Row struct {
	Attack
	Tally
	Work   int     // pieces of work of the victim meanwhile
	Errors []error // of the victim
	// P99 is the 99th percentile of the victim's work relative to that without an
	// attack. It is only reported; the figure is P9.
	P99     float64
	Charges string // the remaining charges of the attacker's tenant; "" none
	Grown   string // the growth of the service's holdings; "" none
	Replace bool   // the driver was replaced
	Lost    string // losses of the audit logs; "" none
	Waits   waits  // of a newcomer meanwhile
	Slower  []string
}

// Bad lists the violations.
func (r *Row) Bad() (all []string) {
	if len(r.Errors) > 0 {
		all = append(all, fmt.Sprintf("the victim had %d errors, the first: %v", len(r.Errors), r.Errors[0]))
	}
	if r.Work == 0 {
		all = append(all, "the victim got nothing done")
	}
	if r.Charges != "" {
		all = append(all, "left behind: "+r.Charges)
	}
	if r.Grown != "" {
		all = append(all, "the service holds "+r.Grown)
	}
	if r.Lost != "" {
		all = append(all, "the audit logs: "+r.Lost)
	}

	all = append(all, r.Slower...)
	if r.Replace {
		all = append(all, "the driver has died")
	}
	if r.Attempts == 0 {
		all = append(all, "nothing was tried")
	}

	for what := range r.Answers {
		if strings.HasPrefix(what, untyped) || what == kept {
			all = append(all, what)
		}
	}

	return all
}

// idleTimeout is the time after which an idle connection of the attacker's tenant
// ends.
const idleTimeout = 500 * time.Millisecond

// auditBytes is so small that every attack fills the audit logs of its tenant.
const auditBytes = 64 << 10

// kept is the forbidden answer to an idle connection.
const kept = "kept while others have no connection"

// attackers is the tenant of the attacker.
const attackers = "attacker"

// Run starts a service and attacks it.
func Run(ctx context.Context, o Options) (rows []Row, err error) {
	svc, err := service.Start(o.Bin, peers.ServerCPU, service.Options{Neighbours: []string{attackers}, NeighboursIdle: idleTimeout, AuditBytes: auditBytes})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()

	v, err := startVictim(ctx, svc.Socket, o.Seed)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := v.close(); closed != nil {
			err = errors.Join(err, fmt.Errorf("the victim: %w", closed))
		}
	}()

	n := startNewcomer(svc.Socket, svc.GateSocketOf(service.Tenant))
	defer func() { err = errors.Join(err, n.close()) }()
	calmFor := min(o.For/20, 3*time.Second)
	calm, err := n.during(func() error { time.Sleep(calmFor); return nil })
	if err != nil {
		return nil, fmt.Errorf("before anybody attacks: %w", err)
	}

	_, quiet, errs := v.since()
	// The host's scheduler is responsible for the effect of a client that burns its
	// processors.
	busy, err := n.during(func() error {
		_, err := attackOnce(order{Attack: burning, For: calmFor})
		return err
	})

	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("the victim, before anybody attacks: %w", err)
	}

	o.Say("nobody attacks: a newcomer waits %s; beside a program that only computes: %s", calm, busy)
	before, err := footprintOf(svc)
	if err != nil {
		return nil, err
	}

	for i := range All {
		row, err := one(ctx, o, svc, v, n, i)
		if err == nil {
			row.Grown, err = grown(svc, before)
		}
		if err == nil {
			row.Lost, err = pushedOut(svc)
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w; the service said:\n%s", All[i].Name, err, svc.Log())
		}

		row.P99 /= max(quiet, 1)
		if o.Timed {
			after, err := n.during(func() error { time.Sleep(afterFor); return nil })
			if err != nil {
				return rows, fmt.Errorf("after %s: %w", row.Name, err)
			}
			row.Slower = after.slower("afterwards", calm)
			if connecting[row.Name] {
				row.Slower = append(row.Slower, row.Waits.slower("meanwhile", busy)...)
			}
		}

		rows = append(rows, row)
		o.Say("%2d %-50s %8d attempts %6d of the victim, 99 %% %.1f×, a newcomer waits %s", row.Class, row.Name, row.Attempts, row.Work, row.P99, row.Waits)
		for _, what := range row.Bad() {
			o.Say("   BAD: %s", what)
		}
	}

	return rows, nil
}

// connecting are the attacks on connecting: a newcomer's waits are bounded during
// them, too. For other attacks, the effect on the service's processors is only
// reported.
var connecting = map[string]bool{"a storm of connections": true, "idle connections on all seats": true, "half-open connections": true}

// afterFor is the time for which a newcomer is observed after an attack.
const afterFor = time.Second

// one runs one attack for its share of the time.
func one(ctx context.Context, o Options, svc *service.Service, v *victim, n *newcomer, i int) (row Row, err error) {
	row.Attack = All[i]
	before, err := svc.DriverPID()
	if err != nil {
		return row, err
	}

	share := max(o.For/time.Duration(len(All)), 20*time.Millisecond)
	tell := order{Attack: i, Seed: o.Seed, For: share, Socket: svc.SocketOf(attackers), Bin: o.Bin}
	tell.Capnp = strings.TrimSuffix(tell.Socket, ".sock") + ".capnp.sock"
	end := time.Now().Add(share)
	endBeside := func() error { return nil }
	if beside := besides[row.Name]; beside != nil {
		share = max(share, besideTime)
		tell.For, end = share, time.Now().Add(share)
		endBeside = startBeside(func(over <-chan struct{}) error { return beside(svc, over) })
	}

	late := end.Add(3 * longest) // an attacker comes last on a busy host, and shall try at least once
	for round := 0; round < max(row.steps, 1) || time.Now().Before(end) || row.Attempts == 0 && time.Now().Before(late); round++ {
		if round > 0 && row.Attempts == 0 {
			tell.For = min(2*tell.For, longest)
		}
		if row.steps > 0 {
			tell.Step, tell.For = 1+round%row.steps, longest
		}
		if row.stops {
			tell.For = min(share, 200*time.Millisecond)
		}
		tell.Seed++
		t, err := attackOnce(tell)
		if err != nil {
			return row, errors.Join(err, endBeside())
		}
		row.add(t)
	}

	if err := endBeside(); err != nil {
		return row, err
	}

	var refused []error
	row.Waits, refused = n.since() // later errors are not the attack's
	if row.Charges, err = charges(ctx, svc); err != nil {
		return row, err
	}

	time.Sleep(5 * between) // the victim experiences the aftermath, too
	row.Work, row.P99, row.Errors = v.since()
	row.Errors = append(row.Errors, refused...)
	after, err := svc.DriverPID()
	row.Replace = after != before
	return row, err
}

// settle bounds the time in which the service gives back a dead client's resources.
const settle = 5 * time.Second

// charges waits until the attacker's tenant has no charges that come back, and
// returns the remaining ones.
func charges(ctx context.Context, svc *service.Service) (left string, err error) {
	for end := time.Now().Add(settle); ; time.Sleep(5 * time.Millisecond) {
		text, err := svc.StatusOf(ctx, attackers)
		if err != nil {
			if time.Now().After(end) {
				return "", err
			}
			continue // all of the tenant's connections were taken a moment ago
		}

		var status struct {
			Tenants []struct {
				Tenant string
				Budget []struct {
					Class          string
					Reserved, Used uint64
				}
				Sessions []struct{ ID uint64 }
			}
		}

		if err := json.Unmarshal(text, &status); err != nil {
			return "", err
		}

		left = ""
		for _, t := range status.Tenants {
			if t.Tenant != attackers {
				continue
			}
			for _, b := range t.Budget {
				if n := b.Reserved + b.Used; n > 0 && b.Class != "deviceTime" && b.Class != "auditBytes" {
					left += fmt.Sprintf("%d of %s ", n, b.Class)
				}
			}
			if n := len(t.Sessions); n > 0 {
				left += fmt.Sprintf("%d sessions", n)
			}
		}

		if left == "" || time.Now().After(end) {
			return left, nil
		}
	}
}

// Print shows the table, and reports whether everything is right.
func Print(w io.Writer, rows []Row) (good bool) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLASS\tATTACK\tATTEMPTS\tVICTIM'S WORK\tERRORS\t99 %\tNEWCOMER\tCHARGES\tANSWERS")
	good = len(rows) == len(All)
	var bad []string
	for i := range rows {
		r := &rows[i]
		var answers []string
		for _, what := range slices.Sorted(maps.Keys(r.Answers)) {
			if r.steps == 0 {
				answers = append(answers, fmt.Sprintf("%s %d", what, r.Answers[what]))
			}
		}

		if r.steps > 0 {
			answers = []string{fmt.Sprintf("killed after each of %d steps", r.steps)}
		}

		left := "0"
		if r.Charges != "" {
			left = r.Charges
		}

		fmt.Fprintf(t, "%d\t%s\t%d\t%d\t%d\t%.1f×\t%s\t%s\t%s\n", r.Class, r.Name, r.Attempts, r.Work, len(r.Errors), r.P99, r.Waits, left, strings.Join(answers, ", "))
		for _, what := range r.Bad() {
			bad = append(bad, fmt.Sprintf("BAD %s: %s", r.Name, what))
		}
	}

	_ = t.Flush() // the reader may be gone
	for _, what := range bad {
		fmt.Fprintln(w, what)
	}

	return good && len(bad) == 0
}
