// Package faultlog reports which function tried to reach memory that was not granted to it.
//
// vfio reports no IOMMU fault to the owner of a function: the only trace are the lines that
// the IOMMU's driver prints. A Reader follows the kernel's log (/dev/kmsg), from its end, and
// picks the lines of Intel's (DMAR) and AMD's (AMD-Vi) driver.
//
// Trust: the kernel alone is trusted. A process that may write to /dev/kmsg cannot give its
// line facility 0 (kernel/printk/printk.c, devkmsg_write), so lines of every other facility
// are passed over. A line must be of a known form from its first byte on, and only the reason
// at its end is free text; text of a device or a process inside another line is never taken
// for a fault.
//
// The kernel prints a fault when it serves the IOMMU's interrupt, and the device may have
// reported completion by then. Sync waits for that, too (visitor.go).
//
// Faults get lost: the drivers print a few and then, for some seconds, none. DMAR prints
// three in 5 s, of all functions together, as each takes three of the ten turns of its rate
// limit; AMD-Vi ten in 5 s of each function. A reader that is too slow is overrun. A number
// of faults is therefore always "at least". Known losses are counted in Fault.Lost.
package faultlog
