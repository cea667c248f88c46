package pci

import (
	"errors"
	"fmt"
	"slices"

	"capgpu/gpuerr"
)

// stale says why a claim does not hold any more, or "". f is the function that is at its
// address now. A stale claim says nothing about f, and is not acted upon: the later change of
// another process counts.
func (c *Claimer) stale(claim Claim, f Function) string {
	override := Driver
	if claim.Former == Driver {
		override = claim.Override // which was let alone
	}
	switch {
	case claim.Boot != c.boot:
		return "the host has booted since"
	case claim.ID != f.ID():
		return fmt.Sprintf("the device there is %s now, not %s", f.ID(), claim.ID)
	case f.Override == override, claim.Releasing && f.Override == claim.Override:
		return ""
	}
	return fmt.Sprintf("its driver_override is %q now, not %q: somebody has changed it", f.Override, override)
}

// Reconciled is the result of Reconcile.
type Reconciled struct {
	Adopted  []Claim // still on vfio-pci, and claimed from here on
	Released []Claim // not wanted any more, or found half-way: given back
	Dropped  []Dropped
}

// Dropped is a claim that does not hold any more. Its function was not touched.
type Dropped struct {
	Claim
	Why string
}

// Reconcile takes over from an earlier run: functions that are wanted and still on vfio-pci
// stay claimed, with their former drivers noted; the others are given back. A claim of
// another boot, of another device, or of a function that got another driver_override since,
// is forgotten, and the function left as it is. It goes on after an error; failed claims stay
// in the journal.
func (c *Claimer) Reconcile(wanted []Address) (Reconciled, error) {
	var r Reconciled
	var errs []error
	for _, claim := range c.journal.list() {
		errs = append(errs, c.reconcile(claim, slices.Contains(wanted, claim.Address), &r))
	}
	return r, errors.Join(errs...)
}

func (c *Claimer) reconcile(claim Claim, wanted bool, r *Reconciled) error {
	held := c.lockOf(claim.Address)
	held.Lock()
	defer held.Unlock()
	f, err := c.bus.Function(claim.Address)
	why := ""
	switch {
	case errors.Is(err, gpuerr.NoDevice):
		why = "it has left the host"
	case err != nil:
		return err
	default:
		why = c.stale(claim, f)
	}

	if why != "" {
		if err := c.journal.remove(claim.Address); err != nil {
			return err
		}
		r.Dropped = append(r.Dropped, Dropped{claim, why})
		return nil
	}

	if wanted && f.Driver == Driver && !claim.Releasing {
		r.Adopted = append(r.Adopted, claim)
		return nil
	}

	if _, err := c.releaseHeld(claim); err != nil {
		return err
	}

	r.Released = append(r.Released, claim)
	return nil
}
