package server

import (
	"context"

	"capgpu/model/sample"
)

// runAheadLocked returns the number of tokens that r may decode on the device
// without a check by the host: limited by the request, its pages and the room in
// its stream. It takes the pages.
func (p *pass) runAheadLocked(r *request) int {
	s := p.s
	n := min(r.want.limit-len(r.gen.tokens), s.o.Ahead-len(r.out.buf))
	have := (r.turn.use.pages + s.size.pages - s.requests.shares.all.use.pages) * s.size.pagePositions
	n = min(n, have-len(r.gen.tokens)+1)
	if n <= 1 || !s.growLocked(r, len(r.gen.tokens)+n-1) {
		return 0
	}
	return n
}

// decodeRunAhead runs the tokens of r, until another request wants the device,
// nobody pulls, or r ends.
func (p *pass) decodeRunAhead(ctx context.Context, r *request, n int) error {
	at := len(r.gen.tokens) - 1
	err := p.l.greedy(ctx, r.gen.seq, r.gen.tokens[at], at, n, func(id int32) bool {
		return p.next(r, sample.Choice{ID: id}) && !p.s.signal.attention.Load()
	})
	r.gen.fed = len(r.gen.tokens) - 1 // the device's later rows are written again
	return err
}
