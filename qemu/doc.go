// Package qemu boots capgpu in a virtual machine and judges its observable behaviour.
//
// A guest is a stock Debian kernel with an initramfs of our own static
// binaries: guest/init is PID 1, starts the device-manager the way a host would
// (root, policy file, sockets under /run), runs guest/smoke as its client and
// powers off. Emulation is plain TCG, so that a machine without usable KVM
// gives the same answer.
//
// A run passes when three witnesses agree: QEMU left with status 0 before the time was up,
// the transcript has every line of its golden file in order and no "not ok", and the guest's
// init, as its very last word, gave the verdict PASS. In any case, no QEMU process outlives
// the call (or the caller: it dies with the thread that started it). A machine that has run
// out of time, or has been silent for too long, is inspected before it is killed, and its
// last lines tell what it was waiting for (autopsy). A machine that a known flaw of the
// emulator has ended is booted again, and its earlier output does not count.
//
// There are three guests. The smoke guest has the fake function (Smoke). The hardware
// guest has two edu functions behind an IOMMU, an honest and a hostile driver
// (Hardware; guest/hw, guest/hostile-driver); its client starts, kills and stops the
// manager, and asks the host, by a line on the console, to pull a function out. And
// any static program runs in a guest with vfio (GuestRun): the tests of other packages
// that need real hardware do, all in one boot.
//
// Data flow: FindKernel + files → initramfs → VM.Run → Transcript → Golden.
package qemu
