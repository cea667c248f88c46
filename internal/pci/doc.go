// Package pci finds PCI functions in sysfs, takes them from their drivers for
// vfio-pci, and gives them back.
//
// A Bus reads: what functions there are, who drives them, and which share an IOMMU
// group. A Claimer writes: it binds a function to vfio-pci and, later, to its former
// driver again. Before each act it notes in a journal what it is about to do, so
// that the next run finds what a crash left stranded.
//
// Who is trusted: the kernel, whose files are nevertheless read with bounds and
// parsed strictly, and the folder of the journal, which only root may write.
//
// Source of every attribute: Documentation/ABI/testing/sysfs-bus-pci and
// drivers/pci/pci-sysfs.c of Linux 6.12.
package pci
