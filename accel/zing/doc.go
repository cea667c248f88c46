// Package zing serves guests of the Zing ABI, version 1.0: the capabilities cap.accel.v1 and
// cap.accel.ext.v1, as ZCL1 frames in Hopper binary layouts (docs/zing.md).
//
// A Host serves one guest, in process: four calls over byte slices, no goroutine of its own. A
// WebAssembly runtime or a C cloak is a page of glue around it. Serve is the same over a stream
// socket.
//
// The guest is not trusted: every length is bounded by what is there and by what CAPS_DESCRIBE
// tells, and nothing that it sends makes a method panic or write beyond its room. Its buffers, work
// and modules are those of a session of its own on each device, which ends with the Host.
//
// Locks: Host.mu is held for one call of the guest, waits included, as a guest has one thread. Close
// ends a call that waits.
package zing
