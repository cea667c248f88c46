package manager

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"capgpu/audit/dma"
	"capgpu/iommu"
	"capgpu/iommu/trace"
)

// maxPieces bounds the remembered pieces of one operation that are not adjacent. A correct
// operation has a single piece.
const maxPieces = 256

// opAccount is the kernel's actions during one operation.
type opAccount struct {
	endedOp
	mapped, unmapped pieces
	short            *trace.Event // an unmap that found less than it was asked to
}

// pieces are spans in the order of arrival, joined where they are adjacent.
type pieces struct {
	spans []dma.Span
	more  bool // some did not fit
}

func (p *pieces) add(s dma.Span) {
	if n := len(p.spans); n > 0 && p.spans[n-1].IOVA+p.spans[n-1].Bytes == s.IOVA {
		p.spans[n-1].Bytes += s.Bytes
		return
	}
	if len(p.spans) >= maxPieces {
		p.more = true
		return
	}
	p.spans = append(p.spans, s)
}

// joined sorts the pieces and joins adjacent ones. Overlapping pieces stay apart.
func joined(spans []dma.Span) []dma.Span {
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b dma.Span) int { return cmp.Compare(a.IOVA, b.IOVA) })
	var p pieces
	for _, s := range sorted {
		p.add(s)
	}
	return p.spans
}

// covers reports whether every piece of spans lies in one of by. Both are joined.
func covers(by, spans []dma.Span) bool {
	for _, s := range spans {
		if !slices.ContainsFunc(by, func(b dma.Span) bool { return b.IOVA <= s.IOVA && s.IOVA+s.Bytes <= b.IOVA+b.Bytes }) {
			return false
		}
	}
	return true
}

// take adds an event of this operation.
func (a *opAccount) take(e trace.Event) {
	if e.Kind == trace.Map {
		a.mapped.add(dma.Span{IOVA: uint64(e.IOVA), Bytes: e.Bytes})
		return
	}
	if e.Unmapped < e.Bytes && a.short == nil {
		a.short = &e
	}
	if e.Unmapped > 0 {
		a.unmapped.add(dma.Span{IOVA: uint64(e.IOVA), Bytes: e.Unmapped})
	}
}

// verdict is the result of comparing one operation.
type verdict struct {
	kernel  dma.Kernel // the kernel's actions
	missing string     // actions that the kernel did not report; a lost event can be the reason
	wrong   string     // actions that the kernel should not have taken
}

// judge compares an operation with the kernel's actions during it. live is the set of
// mappings before the operation; nil if it is unknown.
func (a *opAccount) judge(live map[dma.Span]struct{}) (v verdict) {
	mapped, unmapped := joined(a.mapped.spans), joined(a.unmapped.spans)
	want := []dma.Span{{IOVA: uint64(a.IOVA), Bytes: a.Bytes}}
	failed := a.err != nil
	switch {
	case a.Kind == iommu.OpAttach, a.Kind == iommu.OpMap && failed:
		// The kernel tries a domain with two pages when a group is attached
		// (vfio_test_domain_fgsp in drivers/vfio/vfio_iommu_type1.c, Linux 6.12), and
		// takes back what it had mapped when a map fails.
		if v.kernel.Undone = mapped; !covers(unmapped, mapped) {
			v.kernel.Undone, v.kernel.Map, v.kernel.Unmap = nil, mapped, unmapped
			v.missing = fmt.Sprintf("the kernel mapped %s and unmapped only %s", list(mapped), list(unmapped))
		}
	case a.Kind == iommu.OpMap:
		v.kernel.Map, v.kernel.Unmap = mapped, unmapped
		if !slices.Equal(mapped, want) {
			v.missing, v.wrong = difference("mapped", mapped, want)
		}
		if len(unmapped) > 0 {
			v.wrong = "the kernel unmapped " + list(unmapped)
		}
	case a.Kind == iommu.OpUnmap:
		v.kernel.Map, v.kernel.Unmap = mapped, unmapped
		if !failed && !slices.Equal(unmapped, want) {
			v.missing, v.wrong = difference("unmapped", unmapped, want)
		}
		if !failed && a.short != nil && v.missing == "" {
			v.wrong = fmt.Sprintf("the kernel found only %d of %d bytes at %#x", a.short.Unmapped, a.short.Bytes, uint64(a.short.IOVA))
		}
	case a.Kind == iommu.OpClose:
		v.kernel.Map, v.kernel.Close = mapped, unmapped
		if live != nil {
			var left []dma.Span
			for s := range live {
				left = append(left, s)
			}
			if left = joined(left); !slices.Equal(left, unmapped) {
				v.missing, v.wrong = difference("unmapped", unmapped, left)
			}
		}
	}

	if len(v.kernel.Map) > 0 && a.Kind != iommu.OpMap && v.wrong == "" && v.missing == "" {
		v.wrong = "the kernel mapped " + list(mapped)
	}
	if a.mapped.more || a.unmapped.more {
		v.wrong = fmt.Sprintf("the kernel mapped and unmapped more than %d pieces that do not lie side by side", maxPieces)
	}

	return v
}

// difference describes how got differs from want: missing if the kernel did too little, wrong
// if it did too much.
func difference(did string, got, want []dma.Span) (missing, wrong string) {
	text := fmt.Sprintf("the kernel %s %s instead of %s", did, list(got), list(want))
	if covers(want, got) {
		return text, ""
	}
	return "", text
}

// list formats the first few spans.
func list(spans []dma.Span) string {
	const most = 4
	if len(spans) == 0 {
		return "nothing"
	}

	var b strings.Builder
	for i, s := range spans[:min(len(spans), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.String())
	}

	if len(spans) > most {
		fmt.Fprintf(&b, " and %d more", len(spans)-most)
	}

	return b.String()
}
