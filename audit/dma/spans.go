package dma

import (
	"cmp"
	"slices"
	"time"
)

// entry is spans that are equal.
type entry struct {
	count int
	last  time.Time
}

func add(to *map[Span]entry, s Span, at time.Time) {
	if *to == nil {
		*to = map[Span]entry{}
	}
	e := (*to)[s]
	(*to)[s] = entry{e.count + 1, at}
}

func total(spans map[Span]entry, sum Sum) Sum {
	for s, e := range spans {
		for range e.count {
			sum.Add(s)
		}
	}
	return sum
}

// comparison is the comparison of one row.
type comparison struct {
	report *Report
	row    *Row
	where  string
	grace  time.Time // later actions may be pending; zero: none may
	last   time.Time // of the row's records
}

func (c *comparison) compare(what string, manager, kernel map[Span]entry, managerSums, kernelSums Sum) {
	all, seen := total(manager, managerSums), total(kernel, kernelSums)
	if all == seen {
		c.row.Matched += all.Count
		return
	}

	summed := managerSums != (Sum{}) || kernelSums != (Sum{})
	if !summed {
		c.each(what, "missing: the manager did it, the kernel did not", manager, kernel, &c.row.Missing)
		c.each(what, "unexpected: the kernel did it, the manager did not", kernel, manager, &c.row.Unexpected)
		return
	}

	// Sums do not say which.
	both := min(all.Count, seen.Count)
	missing, unexpected := all.Count-both, seen.Count-both
	if missing+unexpected == 0 {
		missing, unexpected = 1, 1 // at least
		both--
	}

	c.row.Matched += both
	if !c.grace.IsZero() && c.last.After(c.grace) {
		c.row.Pending += missing + unexpected
		return
	}

	c.row.Missing += missing
	c.row.Unexpected += unexpected
	c.report.differ("%s: %ss differ: %d of %d bytes (sum %s) by the manager, %d of %d bytes (sum %s) by the kernel",
		c.where, what, all.Count, all.Bytes, all.Hash(), seen.Count, seen.Bytes, seen.Hash())
}

// each spells out what of one side the other does not have.
func (c *comparison) each(what, problem string, of, other map[Span]entry, to *uint64) {
	spans := make([]Span, 0, len(of))
	for s := range of {
		spans = append(spans, s)
	}

	slices.SortFunc(spans, func(a, b Span) int { return cmp.Or(cmp.Compare(a.IOVA, b.IOVA), cmp.Compare(a.Bytes, b.Bytes)) })
	for _, s := range spans {
		e := of[s]
		more := e.count - other[s].count
		if to == &c.row.Missing {
			c.row.Matched += uint64(min(e.count, other[s].count))
		}
		if more <= 0 {
			continue
		}
		if !c.grace.IsZero() && e.last.After(c.grace) {
			c.row.Pending += uint64(more)
			continue
		}
		*to += uint64(more)
		for range more {
			c.report.differ("%s: %s %v is %s", c.where, what, s, problem)
		}
	}
}
