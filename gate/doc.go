// Package gate lets Cap'n Proto clients use the GPU service: it serves
// GpuDeviceManager of schema/capos.capnp on one connection and translates each
// call into the Go client library.
//
// # Who is trusted
//
// The client is not. A gate is a process of its own, one for each connection,
// that holds no device, no grant and no other tenant's anything: what it can do
// is what the client could do with the Go library. internal/rpcguard stands
// between the client's bytes and this package; every number and capability in a
// call is checked here, by name, before it goes further. The service on the
// other side is trusted as package client trusts it.
//
// # What a capability is
//
//	GpuDeviceManager ─ openDevice ─► session ─► buffer, fence, program, queue, list
//	                                    └─ restrict ─► session ─► ...
//
// The session has the methods of its facet and no others. All below a session
// ends with it: when it is closed, when the service revokes it, when its driver
// dies; then every capability of it fails as disconnected with the cause, at
// once; a wait that was on its way may still tell the outcome, revoked.
// GpuDeviceManager stays, and openDevice works again when the successor
// is up. A capability whose last reference the client drops is closed; a session
// lives until the references to it and to all that was made from it are gone.
//
// Calls on a session and on all made from it are served in the order in which the
// client made them, so that a wait may be sent right behind the launch whose
// promise it means. Calls that block let the others pass.
//
// A program may be handed to a session that was restricted from its own, which runs
// it although it could not have loaded it; that ends when the program is closed.
//
// Ids are numbers of this gate. They ascend and are never used twice, so that a
// stale id names nothing, and an id of another session is as unknown as any.
//
// # The default queue
//
// The session's own submissions (launchKernel, submitMemcpy, ...) go through one
// queue, made when it is first needed. What one call submits is published
// together. A goroutine takes its completions; outcomes are told by fences.
// Every fence remembers here the last value that was promised on it, which a
// queued signal counts as from the moment of its call.
//
// # Locks
//
// session.submitMu orders submissions and promises of a session; session.mu
// guards its tables; gate.mu the list of sessions; fence.mu the promise. They
// are taken in this order. Only submitMu is held across a call of the library:
// a push on a ring, or a round trip to the driver, which ends with the driver.
//
// # What survives
//
// Nothing: Serve ends all of it, also when the client just vanishes.
package gate
