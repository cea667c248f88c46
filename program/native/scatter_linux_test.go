package native

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimesIncludePages: the reported time for memory a page apart includes these pages,
// also if they must be faulted in first; memory that is together takes no longer
// for it.
func TestTimesIncludePages(t *testing.T) {
	nanos := func(s grainShape) uint64 {
		c, _ := s.call(t)
		_, ok := bodies[s.kernel].Items(c)
		require.True(t, ok, s.String())
		n, _ := bodies[s.kernel].Nanos(c)
		return n
	}

	const far, n = 1 << 10, 1 << 11 // rows, each in its page
	for _, c := range []struct {
		what, near grainShape
		pages      uint64
	}{
		{
			grainShape{kernel: "linear_f32", words: []uint64{1, n, n * far}, inline: []uint32{1, 1, n, 0, far, 0}},
			grainShape{kernel: "linear_f32", words: []uint64{1, n, n * far}, inline: []uint32{1, 1, n, 0, 1, 0}}, n,
		}, {
			grainShape{kernel: "linear_i8", words: []uint64{1, 3, n, n * far}, inline: []uint32{3, 1, n, 0, far, 0, 1}},
			grainShape{kernel: "linear_i8", words: []uint64{1, 3, n, n * far}, inline: []uint32{3, 1, n, 0, 3, 0, 1}}, n,
		}, {
			grainShape{kernel: "next_token_f32", words: []uint64{n, n, 2 * n, n * far}, inline: []uint32{1, n, far}},
			grainShape{kernel: "next_token_f32", words: []uint64{n, n, 2 * n, n * far}, inline: []uint32{1, n, 1}}, n,
		}, {
			grainShape{kernel: "embed_f32", words: []uint64{n * far, n, n}, inline: []uint32{1}},
			grainShape{kernel: "embed_f32", words: []uint64{n, n, n}, inline: []uint32{1}}, n,
		}, {
			grainShape{kernel: "embed_i8", words: []uint64{n * far / 4, n * far, n, n}, inline: []uint32{1, 1}},
			grainShape{kernel: "embed_i8", words: []uint64{n, n, n, n}, inline: []uint32{1, 1}}, n + n/4,
		},
		{scatteredCache("rope_cache_f32", n*far), scatteredCache("rope_cache_f32", n*2), 2 * n},
		// A row in the middle of its sequence reads half of it.
		{scatteredCache("attention_cache_f32", n*far), scatteredCache("attention_cache_f32", n*2), n},
	} {
		said, near := nanos(c.what), nanos(c.near)
		require.Greater(t, said, c.pages*pageNanos*3/4, c.what.String())
		require.Less(t, said, near+2*c.pages*pageNanos, c.what.String())
		require.Less(t, near, said-c.pages*pageNanos*3/4, c.near.String())
	}
}

// scatteredCache has places in as many pages of memory as there can be: of a batch for
// rope_cache_f32, of a row for attention_cache_f32.
func scatteredCache(kernel string, words uint64) grainShape {
	const n = 1 << 11
	if kernel == "rope_cache_f32" {
		return grainShape{kernel: kernel, words: []uint64{n * 6, 1, 2 * n, n, words, words}, inline: []uint32{1, 1, 2, n, 0, 1, n, 0x3f800000}}
	}
	return grainShape{kernel: kernel, words: []uint64{3, 2, n, words, words, 1}, inline: []uint32{1, 1, 1, 1, 1, n, 0, 0, 0}}
}

// TestALongRowStops: four thousand million positions take minutes, and end on a
// stop.
func TestALongRowStops(t *testing.T) {
	const page, pages, heads = 1 << 20, 1 << 12, 1 << 10
	s := grainShape{
		kernel: "attention_cache_f32", words: []uint64{heads + 2, 2, pages, page, page, heads},
		inline: []uint32{heads, 1, 1, 1, page, pages, 0, 0, 0},
	}

	c, _ := s.call(t)
	c.u32(1)[0] = 1<<32 - 1
	clear(c.u32(2))
	out, made := sparse(t, heads, 0)
	c.Bindings[5] = out
	k, read := sparse(t, page, 0)
	c.Bindings[3] = k
	c.Stop = new(atomic.Uint32)
	items, ok := attentionCacheBody.Items(c)
	require.True(t, ok)
	ended := make(chan bool)
	go func() { ended <- attentionCacheBody.Run(c, 0, items) }()
	for read() < 2 { // until it is beyond the first page of the first keys
		runtime.Gosched()
	}

	c.Stop.Store(1)
	require.False(t, <-ended)
	require.Zero(t, made(), "a head that is not done is not written")

	// A run that is stopped before it begins reads no keys.
	k, read = sparse(t, page, 0)
	c.Bindings[3] = k
	require.False(t, attentionCacheBody.Run(c, 0, items))
	require.Zero(t, read())
}
