// Package peers has the peers of the service's figures, each in a process of its
// own if the service has one: a cache line that two processes spin on, a futex that
// they sleep on, io_uring with empty operations, remote calls over a UNIX socket by
// go-capnp, gRPC-Go and ttrpc, and the life of a memfd.
//
// The processes are this same program with a hidden first argument (RunIfPeer), on
// ServerCPU; the measuring process is on ClientCPU. A peer that is not being
// measured sleeps.
package peers
