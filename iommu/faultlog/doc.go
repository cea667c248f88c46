// Package faultlog tells which function tried to reach memory that it was not
// granted.
//
// vfio reports no IOMMU fault to who owns the function: all there is are the lines
// that the IOMMU's driver prints. A Reader follows the kernel's log (/dev/kmsg),
// from its end, and picks the lines of Intel's (DMAR) and AMD's (AMD-Vi) driver.
//
// Trusted is the kernel alone. A process that may write to /dev/kmsg cannot give
// its line facility 0 (kernel/printk/printk.c, devkmsg_write), so lines of every
// other facility are passed over. A line must be of a known form from its first
// byte on, of which only the reason at its end is free text; what a device or a
// process can have printed inside of another line is never taken for one.
//
// The kernel prints a fault when it serves the IOMMU's interrupt, and the device may have
// said by then that it is done. Sync waits for that, too (visitor.go).
//
// Faults get lost: the drivers print a few and then, for some seconds, none. DMAR
// prints three in 5 s, of all functions together, as each takes three of the ten
// turns of its rate limit; AMD-Vi ten in 5 s of each function. A reader that is too
// slow is overrun. A number of faults is therefore always "at least". What is known
// to be lost is counted in Fault.Lost.
package faultlog
