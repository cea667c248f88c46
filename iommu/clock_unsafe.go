package iommu

import _ "unsafe" // for go:linkname

// monotonic is CLOCK_MONOTONIC in nanoseconds. Package time has the same clock, but
// only as a distance from the start of the process; the system call costs as much
// as a tenth of a map.
func monotonic() uint64 { return uint64(nanotime()) }

// nanotime is the clock of time.Now. The runtime keeps its name and type for packages that
// link to it (go.dev/issue/67401).
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64
