package native

// pace is the speed of a body, for Nanos: figures of an x86 server of 2023 with
// AVX-512, its data in the L2 cache.
type pace struct {
	words uint64 // 1/1024 ns for each element
	exps  bool   // it computes exponentials: without assembly their time depends on the data
}

const (
	callNanos = 20 // to enter a body
	rowNanos  = 6  // to begin a row
	farNanos  = 96 // and one that lies anywhere, in no cache
	goFactor  = 8  // how much slower it is without assembly, at the most
)

// nanos is the time of this many rows with this many elements in all, which were
// checked to be within the bindings: less than 2^30.
func (p pace) nanos(rows, words uint64) (uint64, bool) {
	n := callNanos + rowNanos*rows + words*p.words>>10
	if !assembly() {
		return n * goFactor, !p.exps
	}
	return n, true
}
