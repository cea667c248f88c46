package server

import (
	"context"

	"capgpu/model/sample"
)

// aheadLocked is how many tokens r may decode on the device without anybody looking: as
// many as it may have, and have pages and room in its stream. It takes the pages.
func (p *pass) aheadLocked(r *request) int {
	s := p.s
	n := min(r.limit-len(r.tokens), s.o.Ahead-len(r.buf))
	have := (r.turn.use.pages + s.size.pages - s.shares.all.use.pages) * s.size.pagePositions
	n = min(n, have-len(r.tokens)+1)
	if n <= 1 || !s.growLocked(r, len(r.tokens)+n-1) {
		return 0
	}
	return n
}

// decodeAhead runs the tokens of r, until another wants the device, nobody pulls, or it
// ends.
func (p *pass) decodeAhead(ctx context.Context, r *request, n int) error {
	at := len(r.tokens) - 1
	err := p.l.greedy(ctx, r.seq, r.tokens[at], at, n, func(id int32) bool {
		return p.next(r, sample.Choice{ID: id}) && !p.s.attention.Load()
	})
	r.fed = len(r.tokens) - 1 // whatever the device has put behind is written anew
	return err
}
