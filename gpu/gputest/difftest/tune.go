package difftest

import "capgpu/gpu/gputest/refmodel"

// tune is a few submissions that make up some batches in a row, as of a client that does the
// same again and again: the driver, which knows them, then does with less and less of what it
// does for others.
type tune struct {
	left    int // batches
	entries []refmodel.Entry
	args    [][]uint64 // of each
}

// learnTune makes one. Mostly it is all good.
func (g *generator) learnTune() {
	t := &g.tune
	t.left, t.entries, t.args = 4+g.n(12), t.entries[:0], t.args[:0]
	g.rare = 1 << 30
	for range 1 + g.n(3) {
		var e refmodel.Entry
		from := g.used
		switch g.n(3) {
		case 0:
			g.launch(&e)
		case 1:
			g.copy(&e)
		default:
			g.fill(&e)
		}
		if g.n(8) == 0 {
			g.spoil(&e)
		}
		t.entries = append(t.entries, e)
		t.args = append(t.args, append([]uint64(nil), g.args[from:g.used]...))
	}
	g.used = 0
}

// playTune fills a batch with it.
func (g *generator) playTune(entries []refmodel.Entry) {
	t := &g.tune
	offs := make([]int, len(t.entries))
	for i, args := range t.args {
		offs[i] = g.used
		g.used += copy(g.args[g.used:], args)
	}
	other := 0 // one of so many; 0: none
	if g.n(4) == 0 {
		other = 1 + g.n(64)
	}
	for i := range entries {
		e, of := &entries[i], g.n(len(t.entries))
		if other > 0 && g.n(other) == 0 {
			g.entry(e)
			continue
		}
		if *e = t.entries[of]; e[0]&0xff == refmodel.OpLaunch {
			e[6] = e[6]&^0xffffffff | uint64(8*offs[of])
		}
		e[1] = g.r.Uint64()
	}
}
