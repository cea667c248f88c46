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
	// Sequences is the maximal number of sequences.
	Sequences int
	// Context is the maximal number of positions of a sequence; 0: the model's.
	Context int
	// Positions is the capacity of the cache, over all sequences. 0: as much as the
	// session's budget allows, at most the full context of every sequence.
	Positions int
	// Batch is the maximal number of rows of a pass.
	Batch int
	// PagePositions is the number of positions in a page of the cache: a power of
	// two.
	PagePositions int
	// Progress is called now and then with how many bytes of the weights are in the
	// device.
	Progress func(done, total uint64)
}

// withDefaults checks o for a model and fills in the defaults.
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

// tablePages is the maximal number of pages of a sequence.
func (o *Options) tablePages() int { return pagesFor(o.Context, o.PagePositions) }

// mostPositions is the number of positions that all sequences together can use, in
// whole pages.
func (o *Options) mostPositions() int { return o.Sequences * o.tablePages() * o.PagePositions }

func pagesFor(positions, page int) int { return (positions + page - 1) / page }

// batchSizes are the batch sizes for which passes are recorded, ascending; the last
// is batch.
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
