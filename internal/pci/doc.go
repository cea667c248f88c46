// Package pci finds PCI functions in sysfs, takes them from their drivers for
// vfio-pci, and gives them back.
//
// A Bus reads the functions, their drivers, and the IOMMU groups that they share. A Claimer
// writes: it binds a function to vfio-pci and, later, to its former driver again. Before each
// act it notes the act in a journal, so that the next run finds functions that a crash left
// stranded.
//
// Trust: the kernel is trusted, and its files are nevertheless read with bounds and parsed
// strictly; and the folder of the journal, which only root may write.
//
// Source of every attribute: Documentation/ABI/testing/sysfs-bus-pci and
// drivers/pci/pci-sysfs.c of Linux 6.12.
package pci
