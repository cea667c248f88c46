// Package local is the conformance suite's Stack of this project's own processes: a
// device-manager with a policy, the drivers and gates that it starts, and a client of
// one transport. The device is the mock, or QEMU's edu functions on a machine (a guest)
// that has them.
//
// A Stack owns its processes and its folder; Close ends and removes them.
package local
