package backend

import (
	"context"

	"capgpu/ddf"
)

// Mapper is a Backend that reaches only memory of the host that it was told of: engine processes
// import it.
type Mapper interface {
	// Map comes before the first job of the context's group with a span of the memory. It may
	// open what the group's jobs run in: gpuerr.Busy where there is no place for it, and
	// gpuerr.Quota where the device can map no more.
	Map(ctx context.Context, c *Context, m ddf.DMABuffer) error
	// Unmap comes when no job uses the memory, before its Free. An error says that the device may
	// still reach the memory, and the device is lost. It may be called again.
	Unmap(c *Context, m ddf.DMABuffer) error
}

// LocalMemory is a Backend with memory of its own, which the host does not see. Buffers of
// usage device lie there, and nowhere else; all other memory is the host's. Info.LocalBytes
// says how much there is.
type LocalMemory interface {
	// Local is the pool of such memory for the jobs of one context. It may be asked at any
	// time between Start and Close.
	//
	// Its buffers have no file: FD is -1. Bytes is an address range as long as the buffer
	// that the host never touches; it may have no pages. A job's Span of the buffer is a part
	// of it. The IOVAs are nobody else's, in this pool or another.
	//
	// Alloc returns memory that reads as zeros, or fails with gpuerr.Quota; it never takes the
	// host's instead. Scrub and Free make it zero. An error of Free says that the device may
	// still reach the buffer, and the device is lost. None of it waits for a job of another
	// context.
	Local(c *Context) ddf.DMAPool
}

// LocalSink is a Sink that is told when local memory is lost. The core is one.
type LocalSink interface {
	// LocalLost says that what the local memory of a group of contexts held is lost, with
	// whatever kept it: its engine, or the device's power. The device has no job of the group
	// any more: it calls this in ResetContext or in Reset, or when it has completed them all.
	// The core ends each session of the group that has local memory, as deviceLost; the
	// buffers are freed as ever.
	LocalLost(group uint32, why string)
}
