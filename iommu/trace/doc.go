// Package trace reports the maps and unmaps of the kernel's IOMMU layer for a process, in the
// kernel's own words. It is the second source of the audit, and knows nothing of the
// process's own account.
//
// eBPF programs on the raw tracepoints map and unmap (include/trace/events/iommu.h,
// Linux 6.12) write an Event per call into a ring buffer. They need no tracefs. They
// take the calls that
//
//   - a watched process caused, which is at least the one that called Open, and
//   - vfio asked for: the return addresses nearest to the tracepoint are looked up
//     in vfio_iommu_type1's text. If a host's disks and network cards are behind the
//     IOMMU, it maps memory for them all the time, in the context of any process, in
//     its system calls and in interrupts on top of them. If the text is not known
//     (symbols hidden), every call counts.
//
// Nothing waits for a reader: an event for which the ring has no room is counted in
// Lost. A reader is woken when the ring is half full; otherwise it comes by itself.
//
// Trust: the kernel alone is trusted. The programs cost a map or unmap some microseconds.
package trace
