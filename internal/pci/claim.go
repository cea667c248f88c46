package pci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Driver is the kernel's driver that hands functions to user space.
const Driver = "vfio-pci"

// harmless are the drivers with which a neighbour in the group may stay: they do
// nothing with it (drivers/vfio/group.c and drivers/pci of Linux 6.12: pcieport and
// the stub own no DMA).
var harmless = []string{Driver, "pci-stub", "pcieport"}

// GroupError refuses a function for what shares its IOMMU group.
type GroupError struct {
	Address  Address
	Group    int
	Offender Function
}

func (e *GroupError) Error() string {
	by := "has no driver"
	if e.Offender.Driver != "" {
		by = "is driven by " + e.Offender.Driver
	}
	return fmt.Sprintf("%s: %s shares IOMMU group %d with %s (%s, %s), which %s: the IOMMU cannot keep them apart; bind that one to vfio-pci or pci-stub first (docs/passthrough.md says how), or put the card into another slot",
		gpuerr.Denied, e.Address, e.Group, e.Offender.Address, e.Offender.ID(), e.Offender.Class, by)
}

// Unwrap makes errors.Is(err, gpuerr.Denied) work.
func (e *GroupError) Unwrap() error { return gpuerr.Denied }

// CheckGroup refuses a function that cannot be isolated, with a GroupError for what
// shares its IOMMU group.
func (b *Bus) CheckGroup(f Function) error {
	if f.Group == NoGroup {
		return gpuerr.New(gpuerr.Denied, `no IOMMU stands before %s: switch VT-d or AMD-Vi on in the firmware, add "intel_iommu=on" to the kernel's command line on an Intel host, and boot again`, f.Address)
	}

	members, err := b.Group(f.Group)
	if err != nil {
		return err
	}

	for _, m := range members {
		if m == f.Address {
			continue
		}
		other, err := b.Function(m)
		if errors.Is(err, gpuerr.NoDevice) {
			continue
		}
		if err != nil {
			return err
		}
		bridge := other.Class.Base() == BaseBridge && other.Driver == ""
		if !bridge && !slices.Contains(harmless, other.Driver) {
			return &GroupError{f.Address, f.Group, other}
		}
	}

	return nil
}

// Claimer takes functions from their drivers and gives them back. There is one for
// a journal at a time. Its methods may be called from any goroutine: those for one
// function wait for each other, those for several do not.
type Claimer struct {
	bus     *Bus
	boot    string // boot id
	journal *journal
	lock    *os.File

	mu sync.Mutex
	// +checklocks:mu
	functions map[Address]*sync.Mutex // held while a function is changed
}

// NewClaimer takes the folder dir, which must be there, until Close, and reads its
// journal. A *HeldError says that another process has it.
func NewClaimer(bus *Bus, dir string) (*Claimer, error) {
	boot, err := bus.bootID()
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Claimer{bus: bus, boot: boot, journal: j, lock: lock, functions: map[Address]*sync.Mutex{}}, nil
}

// Close releases the folder for the next Claimer. Claims stay, and stay in the journal. A
// release that is still under way (the kernel may keep us waiting) is no longer noted there.
func (c *Claimer) Close() error {
	c.journal.close()
	err := c.lock.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// lockOf returns the lock that is held while a function is changed.
func (c *Claimer) lockOf(a Address) *sync.Mutex {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.functions[a]
	if l == nil {
		l = new(sync.Mutex)
		c.functions[a] = l
	}
	return l
}

// Claims are the functions that are claimed now, in order.
func (c *Claimer) Claims() []Claim { return c.journal.list() }

// Claimed reports whether a function is claimed, by this or an earlier run.
func (c *Claimer) Claimed(a Address) bool {
	_, ok := c.journal.get(a)
	return ok
}

// Claim binds a function to vfio-pci and remembers its driver. A function that is bound to
// vfio-pci already stays as it is, now and at its release, unless an earlier claim that still
// holds knows its former driver. When Claim fails, the function is as before, or the error
// says how it is.
func (c *Claimer) Claim(a Address) (Claim, error) {
	held := c.lockOf(a)
	held.Lock()
	defer held.Unlock()
	f, err := c.bus.Function(a)
	if err != nil {
		return Claim{}, err
	}
	if f.Class.Base() == BaseBridge {
		return Claim{}, gpuerr.New(gpuerr.Denied, "%s is a bridge; name the function behind it", a)
	}
	if err := c.bus.CheckGroup(f); err != nil {
		return Claim{}, err
	}

	claim := Claim{Address: a, ID: f.ID(), Boot: c.boot, Former: f.Driver, Override: f.Override}
	if old, ok := c.journal.get(a); ok && c.stale(old, f) == "" {
		claim.Override = old.Override // the current override may be of an unfinished claim
		if f.Driver == Driver || f.Driver == "" && old.Former != Driver {
			claim.Former = old.Former
		}
	}

	if claim.Former == Driver && f.Driver == Driver {
		return claim, c.journal.put(claim)
	}
	if f.BootVGA && f.Driver != "" && f.Driver != Driver {
		return Claim{}, gpuerr.New(gpuerr.Denied, "%s shows this host's console, and %s drives it: it is not taken from a running host; to give it away all the same, bind it to vfio-pci at boot (docs/passthrough.md says how)", a, f.Driver)
	}
	if !exists(c.bus.path("bus", "pci", "drivers", Driver)) {
		return Claim{}, gpuerr.New(gpuerr.IO, `%s cannot be claimed: the kernel has no driver vfio-pci; load it with "modprobe vfio-pci"`, a)
	}
	if err := c.journal.put(claim); err != nil {
		return Claim{}, err
	}

	if err := c.bind(f); err != nil {
		_, undo := c.releaseHeld(claim) // if that fails, it stays in the journal
		return Claim{}, errors.Join(err, undo)
	}

	return claim, nil
}

// bind takes f from its driver to vfio-pci, as far as it is not there yet.
func (c *Claimer) bind(f Function) error {
	a := f.Address
	if f.Override != Driver {
		if err := c.bus.write(c.bus.functionPath(a, "driver_override"), Driver); err != nil {
			return fmt.Errorf("claim %s: %w", a, err)
		}
	}

	if f.Driver == Driver {
		return nil
	}
	if err := c.rebind(f); err != nil {
		return fmt.Errorf("claim %s: %w", a, err)
	}

	now, err := c.bus.Function(a)
	if err != nil {
		return err
	}
	if now.Driver != Driver {
		return gpuerr.New(gpuerr.IO, "claim %s: vfio-pci did not take it, and it is driven by %q now; the kernel's log (dmesg) says why", a, now.Driver)
	}

	return nil
}

// rebind takes f from the driver it has and offers it to the others.
func (c *Claimer) rebind(f Function) error {
	if f.Driver != "" {
		if err := c.bus.write(c.bus.functionPath(f.Address, "driver", "unbind"), f.Address.String()); err != nil {
			return err
		}
	}
	return c.bus.write(c.bus.path("bus", "pci", "drivers_probe"), f.Address.String())
}

// Release gives a function back to its former driver, and returns its driver: "" when it had
// none. It must have been closed in vfio: the kernel waits for that. A function that has left
// the host is forgotten.
func (c *Claimer) Release(a Address) (driver string, err error) {
	held := c.lockOf(a)
	held.Lock()
	defer held.Unlock()
	claim, ok := c.journal.get(a)
	if !ok {
		return "", gpuerr.New(gpuerr.Invalid, "%s is not claimed", a)
	}
	return c.releaseHeld(claim)
}

// releaseHeld releases a function. The caller holds its lock.
func (c *Claimer) releaseHeld(claim Claim) (driver string, err error) {
	// The override goes first. A crash before the rest must not look like an operator's wish.
	claim.Releasing = true
	if err := c.journal.put(claim); err != nil {
		return "", err
	}

	restored := c.restore(claim)
	f, err := c.bus.Function(claim.Address)
	switch {
	case errors.Is(err, gpuerr.NoDevice): // it has left, perhaps while it was restored
	case restored != nil:
		return "", restored
	case err != nil:
		return "", err
	}

	return f.Driver, c.journal.remove(claim.Address)
}

// restore gives a function its state of before the claim, from any state in between. An
// override that another process has set meanwhile stays.
func (c *Claimer) restore(claim Claim) error {
	a := claim.Address
	f, err := c.bus.Function(a)
	if errors.Is(err, gpuerr.NoDevice) || claim.Former == Driver {
		return nil // it has gone, or was there before
	}
	if err != nil {
		return err
	}
	if f.ID() != claim.ID {
		return nil // another device was plugged in there
	}

	if f.Override == Driver && claim.Override != Driver {
		// A line without a name takes the override away.
		if err := c.bus.write(c.bus.functionPath(a, "driver_override"), claim.Override+"\n"); err != nil {
			return fmt.Errorf("release %s: %w", a, err)
		}
	}

	switch {
	case f.Driver != Driver && f.Driver != "":
		return nil // another process has set it
	case claim.Former == "":
		if f.Driver == "" {
			return nil
		}
		if err := c.bus.write(c.bus.functionPath(a, "driver", "unbind"), a.String()); err != nil {
			return fmt.Errorf("release %s: %w", a, err)
		}
		return nil
	}

	if err := c.rebind(f); err != nil {
		return fmt.Errorf("release %s: %w", a, err)
	}

	f, err = c.bus.Function(a)
	if errors.Is(err, gpuerr.NoDevice) {
		return nil
	}
	if err == nil && f.Driver == "" {
		err = gpuerr.New(gpuerr.IO, "release %s: its driver %s did not take it back; load that (modprobe) and write %s to /sys/bus/pci/drivers_probe", a, claim.Former, a)
	}

	return err
}

// bindTimeout is how long the kernel may take to take a function from a driver, or
// to give it to one: some reset the device for it.
const bindTimeout = 30 * time.Second

// write writes an attribute, and gives up on a kernel that does not come back.
func (b *Bus) write(path, value string) error {
	write := b.Write
	if write == nil {
		write = writeAttribute
	}

	done := make(chan error, 1)
	go func() { done <- write(path, value) }()
	late := time.NewTimer(bindTimeout)
	defer late.Stop()
	select {
	case err := <-done:
		if err != nil {
			return gpuerr.New(gpuerr.IO, "write %.80q to %s: %v%s", value, path, err, writeAdvice(err))
		}
		return nil
	case <-late.C:
		return gpuerr.New(gpuerr.IO, "the kernel has not come back from writing %.80q to %s for %v: the driver does not let go of the device, probably because something uses it; end that (fuser -v /dev/dri/* /dev/nvidia* shows it), or boot again", value, path, bindTimeout)
	}
}

func writeAdvice(err error) string {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return ": the device-manager must run as root, with /sys writable"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return ": the device or its driver has just gone"
	}
	return ""
}

func writeAttribute(path, value string) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
