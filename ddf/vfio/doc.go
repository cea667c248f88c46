// Package vfio is a real PCI function behind the kernel's vfio: its registers, its
// interrupts, its reset and its power over the bus.
//
// A Function is the device-manager's. It is on vfio-pci already (internal/pci claims it), and
// stays open while drivers come and go: the time of each begins with Begin and ends with
// Quiesce. A driver gets little of it: windows of memory BARs, and eventfds. Configuration
// space, IRQ set-up, reset and mappings of memory never leave the process that holds the
// Function.
//
//	        ┌──────────────────────────────────────────────┐
//	Open ─► idle ──Begin──► live ──Quiesce──► idle … ──Close──► closed
//	           │              │
//	           └──── Removed ─┴──► quiet, refuses everything but Quiesce and Close
//
// Trust: the kernel is trusted with its word on its actions, not with sizes and offsets,
// which are bounded before they are used. The device is not trusted: its registers may answer
// anything and may go away under any access (a fault is an error here, not the end of the
// process), and its configuration space is walked within bounds.
//
// Lock order: opMu (one act upon the function at a time, held across system calls),
// then a window's mu.
//
// Source of the kernel's behaviour: drivers/vfio/pci of Linux 6.12.
package vfio
