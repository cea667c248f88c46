package dma

import (
	"fmt"
	"strconv"
	"strings"
)

// Kinds of the records. Their details begin with the function's name and, but for
// KindSource and KindLost, with epoch=N.
const (
	KindMap     = "dma.map"     // iova= bytes= generation=: the driver was granted it
	KindUnmap   = "dma.unmap"   // the same: it was taken back
	KindUndone  = "dma.undone"  // the same: mapped, and unmapped before the driver heard of it
	KindKept    = "dma.kept"    // the same, cause="": it could not be taken back
	KindSummary = "dma.summary" // maps= mapBytes= mapSum= unmaps= unmapBytes= unmapSum=: without records of their own

	KindKernel   = "iommu.kernel"   // actions of the kernel: see Kernel
	KindMismatch = "iommu.mismatch" // the manager's own comparison failed; cause=""
	KindLost     = "iommu.lost"     // events= operations=: actions of the kernel that could not be recorded
	KindSource   = "audit.source"   // source=iommu state=watched or state=unavailable reason=""
	KindFault    = "iommu.fault"    // iova= access= reason=""
	KindFaults   = "iommu.faults"   // faults=: without records of their own
)

// Kernel is the kernel's actions for a function in one epoch, or a part of them. In a record
// it is either spans or sums.
type Kernel struct {
	Function string
	Epoch    uint64
	// Map and Unmap are the kernel's maps and unmaps. Pieces of one operation of the manager
	// are joined.
	Map, Unmap []Span
	// Close has the unmaps at the close of the function.
	Close []Span
	// Undone has the maps that were unmapped within the same operation: the kernel tries a
	// domain when a group is attached to it, and a map can fail half-way.
	Undone []Span
	// MoreUndone is how many of those are in no list.
	MoreUndone uint64
	// Maps, Unmaps and Closes are sums of spans that are in no list.
	Maps, Unmaps, Closes Sum
}

// Empty reports whether nothing was done.
func (k *Kernel) Empty() bool {
	return len(k.Map)+len(k.Unmap)+len(k.Close)+len(k.Undone) == 0 && k.MoreUndone == 0 &&
		k.Maps == Sum{} && k.Unmaps == Sum{} && k.Closes == Sum{}
}

// MaxSpans is how many spans a record holds at most: a detail has 1,024 bytes, a
// span at most 40, and a name at most 64.
const MaxSpans = 22

// Detail is the record's text.
func (k Kernel) Detail() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s epoch=%d", k.Function, k.Epoch)
	for _, l := range k.lists() {
		for i, s := range *l.spans {
			if i == 0 {
				b.WriteString(" " + l.name + "=")
			} else {
				b.WriteByte(',')
			}
			b.WriteString(s.String())
		}
	}

	if k.MoreUndone > 0 {
		fmt.Fprintf(&b, " moreUndone=%d", k.MoreUndone)
	}
	if k.Maps != (Sum{}) || k.Unmaps != (Sum{}) {
		b.WriteString(" " + Totals(k.Maps, k.Unmaps))
	}
	if k.Closes != (Sum{}) {
		fmt.Fprintf(&b, " closes=%d closeBytes=%d closeSum=%s", k.Closes.Count, k.Closes.Bytes, k.Closes.Hash())
	}

	return b.String()
}

type spanList struct {
	name  string
	spans *[]Span
}

func (k *Kernel) lists() []spanList {
	return []spanList{{"map", &k.Map}, {"unmap", &k.Unmap}, {"close", &k.Close}, {"undone", &k.Undone}}
}

// Totals is how sums are written in records of both sources.
func Totals(maps, unmaps Sum) string {
	return fmt.Sprintf("maps=%d mapBytes=%d mapSum=%s unmaps=%d unmapBytes=%d unmapSum=%s",
		maps.Count, maps.Bytes, maps.Hash(), unmaps.Count, unmaps.Bytes, unmaps.Hash())
}

// detail is a record's text, taken apart.
type detail struct {
	function string
	fields   map[string]string
}

// parseDetail reads `NAME key=value key="quoted" …`. Lone words are passed over.
func parseDetail(s string) (d detail, err error) {
	name, rest, _ := strings.Cut(s, " ")
	d = detail{function: name, fields: map[string]string{}}
	for rest != "" {
		rest = strings.TrimLeft(rest, " ")
		end := strings.IndexAny(rest, "= ")
		if end < 0 {
			break
		}
		key, tail := rest[:end], rest[end+1:]
		if rest[end] == ' ' {
			rest = tail
			continue
		}
		value := tail
		if strings.HasPrefix(tail, `"`) {
			quoted, err := strconv.QuotedPrefix(tail)
			if err != nil {
				return d, fmt.Errorf("the value of %s has no end", key)
			}
			value, err = strconv.Unquote(quoted)
			if err != nil {
				return d, fmt.Errorf("the value of %s: %w", key, err)
			}
			rest = tail[len(quoted):]
		} else {
			value, rest, _ = strings.Cut(tail, " ")
		}
		if _, twice := d.fields[key]; twice {
			return d, fmt.Errorf("%s is there twice", key)
		}
		d.fields[key] = value
	}

	return d, nil
}

func (d detail) number(key string) (uint64, error) {
	v, err := strconv.ParseUint(d.fields[key], 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is no number", key, d.fields[key])
	}
	return v, nil
}

func (d detail) span() (s Span, err error) {
	if s.IOVA, err = d.number("iova"); err == nil {
		s.Bytes, err = d.number("bytes")
	}
	return s, err
}

// totals reads what Totals wrote.
func (d detail) totals() (maps, unmaps Sum, err error) {
	if maps, err = d.sum("map"); err == nil {
		unmaps, err = d.sum("unmap")
	}
	return maps, unmaps, err
}

// sum reads maps=, mapBytes= and mapSum=, for instance.
func (d detail) sum(of string) (s Sum, err error) {
	if s.Count, err = d.number(of + "s"); err == nil {
		s.Bytes, err = d.number(of + "Bytes")
	}
	if err == nil {
		err = s.setHash(d.fields[of+"Sum"])
	}
	return s, err
}

func parseKernel(d detail) (k Kernel, err error) {
	k.Function = d.function
	if k.Epoch, err = d.number("epoch"); err != nil {
		return Kernel{}, err
	}

	for _, l := range k.lists() {
		if text, ok := d.fields[l.name]; ok {
			if *l.spans, err = parseSpans(text); err != nil {
				return Kernel{}, err
			}
		}
	}

	if _, ok := d.fields["moreUndone"]; ok {
		if k.MoreUndone, err = d.number("moreUndone"); err != nil {
			return Kernel{}, err
		}
	}

	if _, ok := d.fields["maps"]; ok {
		if k.Maps, k.Unmaps, err = d.totals(); err != nil {
			return Kernel{}, err
		}
	}

	if _, ok := d.fields["closes"]; ok {
		k.Closes, err = d.sum("close")
	}

	return k, err
}

func parseSpans(text string) (spans []Span, err error) {
	for word := range strings.SplitSeq(text, ",") {
		at, bytes, _ := strings.Cut(word, "+")
		var s Span
		if s.IOVA, err = strconv.ParseUint(at, 0, 64); err == nil {
			s.Bytes, err = strconv.ParseUint(bytes, 10, 64)
		}
		if err != nil {
			return nil, fmt.Errorf("%q is no span such as 0x100000000+4096", word)
		}
		spans = append(spans, s)
	}
	return spans, nil
}
