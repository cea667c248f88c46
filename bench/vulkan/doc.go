// Package vulkan runs compute programs on a Vulkan CPU driver (Mesa's lavapipe), as
// an independent engine for comparison.
//
// The driver is a compiler and a run time of a hundred megabytes that was not made
// for hostile or endless programs: it never stops a kernel, and a wrong kernel may
// crash the process. It therefore runs in a child process that does one job after
// another. The child is killed when a job has not answered in time, or has broken
// something; the next job gets a new child. The child is the same executable,
// started again: a program that uses this package calls Main first thing in main or
// TestMain.
//
//	Process.Run ──job──► child: Main ─► openDevice ─► device.run
//	            ◄─reply─
//
// A Process belongs to one goroutine at a time; several may run beside each other.
// Close kills the child and waits for it.
//
// The package needs libvulkan.so.1 (Debian: libvulkan1) and a driver (Debian:
// mesa-vulkan-drivers) at run time, no C compiler and no headers.
package vulkan
