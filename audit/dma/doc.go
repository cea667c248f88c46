// Package dma is the audit log's account of DMA memory, which it has from two
// sources, and their comparison.
//
// One source is the manager, which records what it granted and took back (dma.map, dma.unmap,
// dma.summary, …). The other is the kernel: its IOMMU layer reports its maps and unmaps
// (iommu.kernel, …; the manager only writes that down). Neither knows of the other's records.
// For each function and epoch both must have mapped the same spans, and unmapped the same
// spans: Compare checks that from the log alone.
//
// Both sources write spans one by one while there are few. When there are many, a record
// holds their number and their Sum, which does not depend on their order or on how they are
// spread over records. So equality can be checked however each source divided its account;
// only the names of the spans that differ are lost.
package dma
