// Package qemu boots capgpu in a virtual machine and believes only what it sees.
//
// The guest is a stock Debian kernel with an initramfs of our own static
// binaries: guest/init is PID 1, starts the device-manager the way a host would
// (root, policy file, sockets under /run), runs guest/smoke as its client and
// powers off. Emulation is plain TCG, so that a machine without usable KVM
// gives the same answer.
//
// A run passes when three witnesses agree: QEMU left with status 0 before the
// time was up, the transcript has every line of testdata/smoke.golden in order
// and no "not ok", and the guest's init, as its very last word, gave the
// verdict PASS. Whatever happens, no QEMU process outlives the call (or the
// caller: it dies with the thread that started it).
//
// Data flow: Kernel + Initramfs → VM.Run → Transcript → Golden.
package qemu
