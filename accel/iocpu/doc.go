// Package iocpu is the endpoint of a host's contract with an IO_CPU (docs/iocpu.md): closed lines of
// JSON that write memory, read it and launch kernels on PEs, with a completion, a trace of hops and a
// latency that is computed and never measured.
//
// A PE is a session with two buffers. The endpoint plays the machine that a topology describes: the
// bytes and the kernels are real, and the time is the model's. Equal files of requests give equal
// bytes.
//
// The host is not trusted: a line is bounded, an object is closed, every number is within bounds of
// its own before it is used. host_buffer_ref names files of one folder.
//
// Lock: Endpoint.mu is held for one request.
package iocpu
