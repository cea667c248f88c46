// Package sandbox takes every authority from a process but the descriptors that
// it holds.
//
// It has two ends. The parent (device-manager) makes a Jailer once and a Cell for
// each child; the child (a driver or a gate) calls Enter as soon as it has found
// its descriptors.
//
//	Jailer.Cell ──► Cell.Start ──► fork, exec ──► Enter ──► serves
//	                  namespaces                    empty root        │
//	                  a user of its own             no capabilities   ▼
//	                  cgroup: memory, pids,         landlock       Cell.Check
//	                  no device node                seccomp        (what /proc says)
//	Cell.Close ◄───────────────────────────────────────── exit, or a kill
//
// Each Mechanism stands by itself: an act that one of them lets through, another one stops. A
// mechanism that the host lacks is left out with a logged reason, unless it is required: then
// New, or Enter, or Check fails and nothing is served.
//
// Trust: the parent is trusted, and the child until Enter has returned. From then on the
// child's words do not count: Check reads the kernel's record of it. Landlock has no such
// record; for it Check takes the child's own word, from before the child has read a byte of
// input.
//
// Enter works in static programs (CGO_ENABLED=0): only there does Go know every
// thread of the process, and only there is the table of system calls complete.
//
// Locks: Cell.mu before uidPool.mu, which is a leaf.
package sandbox
