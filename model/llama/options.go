package llama

import (
	"capgpu/gpuerr"
	"capgpu/model"
)

// The bounds of Options.
const (
	MaxSequences     = 1024
	MaxBatch         = 512
	MaxPagePositions = 256
)

// The defaults of Options.
const (
	DefaultSequences     = 4
	DefaultBatch         = 32
	DefaultPagePositions = 32
)

// Options say how much a loaded model can do at a time. Zero fields take defaults.
type Options struct {
	// Sequences is how many there are at a time at most.
	Sequences int
	// Context is how many positions a sequence has at most; 0: those of the model.
	Context int
	// Positions are those that the cache has room for, of all sequences together. 0: as
	// many as the session's budget leaves, at most the context of every sequence.
	Positions int
	// Batch is how many rows a pass has at most.
	Batch int
	// PagePositions is how many positions a page of the cache has: a power of two.
	PagePositions int
	// Progress is told how many bytes of the weights are in the device, now and then.
	Progress func(done, total uint64)
}

// withDefaults checks o for a model.
func (o Options) withDefaults(c *model.Config) (Options, error) {
	for _, f := range []struct {
		name           string
		value          *int
		standard, most int
	}{
		{"sequences", &o.Sequences, DefaultSequences, MaxSequences},
		{"context", &o.Context, c.Context, c.Context},
		{"batch", &o.Batch, DefaultBatch, MaxBatch},
		{"pagePositions", &o.PagePositions, DefaultPagePositions, MaxPagePositions},
	} {
		if *f.value == 0 {
			*f.value = f.standard
		}
		if *f.value < 1 || *f.value > f.most {
			return o, gpuerr.New(gpuerr.Invalid, "%s: %d is not within 1 to %d", f.name, *f.value, f.most)
		}
	}
	if o.PagePositions&(o.PagePositions-1) != 0 {
		return o, gpuerr.New(gpuerr.Invalid, "pagePositions: %d is no power of two", o.PagePositions)
	}
	if o.Positions < 0 || o.Positions > o.mostPositions() {
		return o, gpuerr.New(gpuerr.Invalid, "positions: %d is not within 1 to %d, the context of all sequences", o.Positions, o.mostPositions())
	}
	return o, nil
}

// tablePages is how many pages a sequence has at most.
func (o *Options) tablePages() int { return pagesFor(o.Context, o.PagePositions) }

// mostPositions are those that all sequences together can use, in whole pages.
func (o *Options) mostPositions() int { return o.Sequences * o.tablePages() * o.PagePositions }

func pagesFor(positions, page int) int { return (positions + page - 1) / page }

// batchSizes are those that passes are recorded for, ascending; the last is batch.
func batchSizes(batch int) []int {
	var sizes []int
	for n := 1; n < batch; n *= 2 {
		sizes = append(sizes, n)
		if half := n + n/2; n > 1 && half < batch {
			sizes = append(sizes, half)
		}
	}
	return append(sizes, batch)
}
