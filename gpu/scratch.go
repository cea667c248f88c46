package gpu

import (
	"capgpu/gpu/backend"
	"capgpu/ring"
)

// scratch is what a queue needs only while it is served: those that a sweeper serves have one
// between them, in turn.
type scratch struct {
	batch    *ring.Batch       // what was taken from the ring last
	mostArgs uint32            // that an entry of the batch may have, in bytes
	told     []ring.Completion // not written yet; like what follows it is made when first used
	// Of the burst that was picked last.
	picked []*resolved
	ready  []backend.Ready
	ends   []backend.End
	nanos  []uint64 // device time of each
}

func newScratch(mostArgs uint32) *scratch {
	return &scratch{batch: ring.NewBatch(mostArgs), mostArgs: mostArgs}
}

// forBurst makes room for one.
func (s *scratch) forBurst() {
	if s.picked == nil {
		s.picked, s.ready, s.ends = make([]*resolved, maxBurst), make([]backend.Ready, maxBurst), make([]backend.End, maxBurst)
		s.nanos = make([]uint64, maxBurst)
	}
}

// clean leaves nothing of a queue in it. What one leaves there the next one hardly looks at,
// and most of it is soon written over; but what it used may be released, and so may the queue,
// and the rest would be kept as long as the sweep.
func (s *scratch) clean() {
	s.batch.Forget()
	clear(s.ready)
	clear(s.picked)
}
