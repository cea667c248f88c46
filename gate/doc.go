// Package gate lets Cap'n Proto clients use the GPU service: it serves
// GpuDeviceManager of schema/capos.capnp on one connection and translates each
// call into the Go client library.
//
// # Trust
//
// The client is not trusted. A gate is a process of its own, one for each
// connection. It holds no device, no grant and nothing of another tenant: it can do
// only what the client could do with the Go library. internal/rpcguard stands
// between the client's bytes and this package; this package checks every number and
// capability in a call, by name. The service on the other side is trusted as
// package client trusts it.
//
// # Capabilities
//
//	GpuDeviceManager ─ openDevice ─► session ─► buffer, fence, program, queue, list
//	                                    └─ restrict ─► session ─► ...
//
// The session has the methods of its facet and no others. Everything below a
// session ends with it: when it is closed, when the service revokes it, or when its
// driver dies. Every capability of it then fails at once as disconnected, with the
// cause; a wait that is already running may instead return the outcome revoked.
// GpuDeviceManager stays, and openDevice works again when the successor is up. A
// capability is closed when the client drops its last reference. A session lives until
// the references to it and to all objects made from it are gone.
//
// Calls on a session and on all objects made from it are served in the order in which the
// client made them, so that a wait may be sent right behind the launch that it
// waits for. Calls that block let the others pass.
//
// A program may be passed on to a session that was restricted from its own. That
// session can run the program although it could not have loaded it, until the
// program is closed.
//
// Ids are numbers of this gate. They ascend and are never used twice, so that a
// stale id names nothing, and an id of another session is as unknown as any.
//
// # The default queue
//
// The session's own submissions (launchKernel, submitMemcpy, ...) go through one
// queue, made when it is first needed. The commands of one call are published
// together. A goroutine takes the completions; fences report the outcomes. The gate
// remembers the last promised value of every fence; a queued signal counts as
// promised from the moment of its call.
//
// # Locks
//
// session.submitMu orders submissions and promises of a session; session.mu
// guards its tables; gate.mu the list of sessions; fence.mu the promise. They
// are taken in this order. Only submitMu is held across a call of the library:
// a push on a ring, or a round trip to the driver, which ends with the driver.
//
// # Close
//
// Nothing survives Serve, also when the client just vanishes.
package gate
