package native

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/program/library/librarytest"
	"golang.org/x/sys/unix"

	"capgpu/program"
)

// A client may launch extraordinary shapes, and punch all pages out of its memory
// before: no grain may keep a cancel waiting.

// sparse is a binding without resident pages; made counts the resident ones.
func sparse(t *testing.T, words, offset uint64) (binding []byte, made func() uint64) {
	t.Helper()
	fd, err := unix.MemfdCreate("sparse", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	size := (4*words + offset + 4096) &^ 4095 // at least a page
	require.NoError(t, unix.Ftruncate(fd, int64(size)))
	m, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(m) })
	_ = unix.Madvise(m, unix.MADV_NOHUGEPAGE) // where there are none it fails
	return m[offset:][:4*words], func() uint64 {
		var s unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &s))
		return uint64(s.Blocks) * 512 / 4096
	}
}

// grainShape is a call: how many words its bindings have, and where in a page they
// begin.
type grainShape struct {
	kernel string
	words  []uint64
	inline []uint32
	groups uint32
	offset uint64
	lane   bool // it is left to the lane engine
}

func (s *grainShape) String() string {
	return fmt.Sprint(s.kernel, s.words, s.inline, " at ", s.offset)
}

// call makes the call. Tokens are as far apart in their table as possible.
func (s *grainShape) call(t *testing.T) (c *Call, made func() uint64) {
	t.Helper()
	c = &Call{Grid: program.Dim3{X: max(s.groups, 1), Y: 1, Z: 1}, Block: program.Dim3{X: 1, Y: 1, Z: 1}}
	var counts []func() uint64
	for _, words := range s.words {
		b, count := sparse(t, words, s.offset)
		c.Bindings, counts = append(c.Bindings, b), append(counts, count)
	}

	c.Inline = inlineOf(s.inline)
	switch s.kernel {
	case "embed_f32", "embed_f16", "embed_bf16", "embed_q4_0", "embed_q8_0", "embed_i8", "embed_q4_k", "embed_mxfp4":
		row := s.inline[0]
		switch s.kernel {
		case "embed_q8_0":
			row = row / q8Values * q8Bytes / 4
		case "embed_q4_0":
			row = row / q4Values * q4Bytes / 4
		case "embed_q4_k":
			row = row / 256 * 144 / 4
		case "embed_mxfp4":
			row = row / 32 * 17 / 4
		}
		tokens := c.u32(len(c.Bindings) - 2)
		apart := max(1, pageWords/row)
		for i := range tokens {
			tokens[i] = uint32(i) * apart % (uint32(s.words[0]) / (row + 1))
		}
	case "rope_cache_f32", "attention_cache_f32":
		at := 1 // of the rows
		if s.kernel == "rope_cache_f32" {
			at = 2
		}
		q := cachedOf(c, at, at+3)
		most := q.pages * q.page
		if s.kernel == "attention_cache_f32" {
			most = q.most(c)
		}
		rows := q.rows
		for i := range q.batch {
			rows[2*i] = uint32(most - 1 - i%min(most, 8))
		}
		for i := range q.table { // in no order
			q.table[i] = uint32(uint64(i) * 7919 % q.held)
		}
	}

	all := func() (n uint64) {
		for _, count := range counts {
			n += count()
		}
		return n
	}

	before := all()
	return c, func() uint64 { return all() - before }
}

func inlineOf(words []uint32) []byte {
	b := make([]byte, 4*len(words))
	copy(u32s(b), words)
	return b
}

const (
	m1 = 1 << 20 // words
	g1 = 1 << 28 // words of a GiB
)

var grainShapes = []grainShape{
	{kernel: "copy", words: []uint64{g1, g1}, offset: 4},
	{kernel: "fill_u32", words: []uint64{g1}, inline: []uint32{7}, offset: 4},
	{kernel: "vecadd_f32", words: []uint64{g1, g1, g1}, offset: 4},
	{kernel: "saxpy_f32", words: []uint64{g1, g1}, inline: []uint32{0}, offset: 4},
	{kernel: "swiglu_f32", words: []uint64{g1, g1, g1}, offset: 4},

	{kernel: "reduce_f32", words: []uint64{4*g1 - 2048, 1 << 10}, groups: 1 << 10, offset: 4092},
	{kernel: "reduce_f32", words: []uint64{8 * m1, 8}, groups: 8, offset: 4092},
	{kernel: "reduce_f32", words: []uint64{m1, 1}, groups: 1},
	{kernel: "reduce_f32", words: []uint64{m1 + 1, 1}, groups: 1, lane: true},
	{kernel: "reduce_f32", words: []uint64{m1, m1}, groups: m1},
	{kernel: "reduce_f32", words: []uint64{4 * m1, m1}, groups: m1},
	{kernel: "reduce_f32", words: []uint64{g1, m1}, groups: m1, offset: 4},
	{kernel: "reduce_f32", words: []uint64{0, m1}, groups: m1},
	{kernel: "argmax_f32", words: []uint64{m1, 1}, offset: 4},
	{kernel: "argmax_f32", words: []uint64{m1 + 1, 1}, lane: true},
	{kernel: "topk_f32", words: []uint64{m1, 64, 64}, inline: []uint32{64}, offset: 4},
	{kernel: "topk_f32", words: []uint64{m1 + 1, 64, 64}, inline: []uint32{64}, lane: true},

	{kernel: "embed_f32", words: []uint64{g1, 1 << 18, 1 << 18}, inline: []uint32{1}},
	{kernel: "embed_f32", words: []uint64{g1, 1 << 16, 1 << 18}, inline: []uint32{2}, offset: 4092},
	{kernel: "embed_f32", words: []uint64{g1, 1 << 8, 1025 << 8}, inline: []uint32{1025}, offset: 4092},
	{kernel: "embed_f32", words: []uint64{g1, 4, 4 * m1}, inline: []uint32{m1}, offset: 4},
	{kernel: "embed_f32", words: []uint64{g1, 4, 8*m1 + 4}, inline: []uint32{2*m1 + 1}, lane: true},
	{kernel: "embed_q8_0", words: []uint64{g1, 1 << 13, 1 << 18}, inline: []uint32{32}, offset: 4092},
	{kernel: "embed_q8_0", words: []uint64{g1, 4, 4 * m1}, inline: []uint32{m1}, offset: 4},

	{kernel: "embed_f16", words: []uint64{g1, 1 << 8, 1025 << 8}, inline: []uint32{1025}, offset: 4092},
	{kernel: "embed_bf16", words: []uint64{g1, 4, 4 * m1}, inline: []uint32{m1}, offset: 4},
	{kernel: "embed_q4_0", words: []uint64{g1, 1 << 13, 1 << 18}, inline: []uint32{32}, offset: 4092},
	{kernel: "embed_q4_k", words: []uint64{g1, 1 << 10, 1 << 18}, inline: []uint32{256}, offset: 4092},
	{kernel: "embed_q4_k", words: []uint64{g1, 4, m1}, inline: []uint32{m1 / 4}, offset: 4},
	{kernel: "embed_mxfp4", words: []uint64{g1, 1 << 13, 1 << 18}, inline: []uint32{32}, offset: 4092},
	{kernel: "embed_i8", words: []uint64{g1, g1, 1 << 10, 1 << 20}, inline: []uint32{1 << 10, 4}, offset: 4092},
	{kernel: "embed_i8", words: []uint64{g1, g1, 4, 4 * m1}, inline: []uint32{m1 / 16, 1}, offset: 4},
	{kernel: "embed_i8", words: []uint64{g1, g1, 4, 4 * m1}, inline: []uint32{m1, 1}, lane: true},
	{kernel: "swiglu_rows_f32", words: []uint64{g1, g1 / 2}, inline: []uint32{1}},
	{kernel: "swiglu_rows_f32", words: []uint64{g1, g1 / 2}, inline: []uint32{m1}, offset: 4},
	{kernel: "swiglu_rows_f32", words: []uint64{g1, g1 / 2}, inline: []uint32{m1 + 1}, lane: true},
	{kernel: "geglu_rows_f32", words: []uint64{g1, g1 / 2}, inline: []uint32{m1}, offset: 4},
	{kernel: "head_norm_f32", words: []uint64{g1, 256, 256}, inline: []uint32{64, 8, 256, 10, 0x358637bd}},
	{kernel: "head_norm_f32", words: []uint64{g1, 257, 257}, inline: []uint32{1, 1, 257, 10, 0x358637bd}, lane: true},
	{kernel: "softcap_f32", words: []uint64{g1}, inline: []uint32{0x41f00000}, offset: 4},
	{kernel: "next_token_f32", words: []uint64{g1, 1 << 18, 1 << 19, g1}, inline: []uint32{1, 1 << 18, 1 << 10}},
	{kernel: "next_token_f32", words: []uint64{g1, 256, 512, 256}, inline: []uint32{m1, 256, 1}, offset: 4},
	{kernel: "next_token_f32", words: []uint64{g1, 256, 512, 256}, inline: []uint32{m1 + 1, 1, 1}, lane: true},

	cacheOf("attention_cache_f32", 32, 8, 128, 32, 16, 512, 0, false), // eight thousand positions
	cacheOf("attention_cache_f32", 32, 32, 128, 2, 16, 512, 4, false),
	cacheOf("attention_cache_f32", 1024, 1, 64, 2, 32, 64, 4, false),
	cacheOf("attention_cache_f32", 1, 1, 1, 100, 1, 1<<18, 4092, false),
	cacheOf("attention_cache_f32", 1, 1, 256, 100, 1<<16, 1, 4, false),
	cacheOf("attention_cache_f32", 4096, 4096, 1, 2, 16, 512, 4, false),
	cacheOf("attention_cache_f32", 1, 1, 257, 1, 16, 512, 4, true),
	cacheOf("rope_cache_f32", 32, 8, 128, 64, 16, 512, 4, false),
	cacheOf("rope_cache_f32", 4094, 1, 256, 64, 16, 4, 4, false),
	cacheOf("rope_cache_f32", 2, 2, 2, 1<<12, 1, 1<<12, 4092, false),
	cacheOf("rope_cache_f32", 4095, 1, 256, 64, 16, 4, 4, true),

	{kernel: "layernorm_f32", words: []uint64{g1, 1, 1, g1}, inline: []uint32{1, 0}},
	{kernel: "layernorm_f32", words: []uint64{g1, m1, m1, g1}, inline: []uint32{m1, 0}, offset: 4},
	{kernel: "layernorm_f32", words: []uint64{g1, 2 * m1, 2 * m1, g1}, inline: []uint32{2 * m1, 0}, lane: true},
	{kernel: "rmsnorm_f32", words: []uint64{g1, 257, g1}, inline: []uint32{257, 0}, offset: 4},
	{kernel: "rmsnorm_f32", words: []uint64{g1, m1, g1}, inline: []uint32{m1, 0}, offset: 4},
	{kernel: "softmax_f32", words: []uint64{g1, g1}, inline: []uint32{2}},
	{kernel: "softmax_f32", words: []uint64{g1, g1}, inline: []uint32{m1}, offset: 4},

	{kernel: "matvec_f32", words: []uint64{g1, 1, g1}, inline: []uint32{g1, 1}, offset: 4},
	{kernel: "matvec_f32", words: []uint64{g1, 1 << 15, 1 << 13}, inline: []uint32{1 << 13, 1 << 15}, offset: 4},
	{kernel: "matvec_f32", words: []uint64{g1, m1, 256}, inline: []uint32{256, m1}, offset: 4},
	{kernel: "matvec_wg_f32", words: []uint64{g1, m1 + 1, 1}, inline: []uint32{1, m1 + 1}, lane: true},
	{kernel: "matvec_q8_0", words: []uint64{g1, 32, m1}, inline: []uint32{m1, 32}, offset: 4},
	{kernel: "matvec_wg_q8_0", words: []uint64{g1, m1, 256}, inline: []uint32{256, m1}, offset: 4},

	linearShapeOf("linear_f32", g1, 1<<28, 1, 1, 4, false),
	linearShapeOf("linear_f32", g1, 1<<13, 1<<15, 1, 4, false),
	linearShapeOf("linear_f32", g1, 1<<13, 1<<15, 1, 4092, false),
	linearShapeOf("linear_f32", g1, 1, 1<<15+1, 1, 4, true),
	linearShapeOf("linear_f32", g1, 1<<13, 1<<15, 1<<10, 4092, false),
	linearShapeOf("linear_f32", g1, 1, 1, g1, 4, false),
	linearShapeOf("linear_f32", g1, 11008, 4096, 64, 4, false),
	// Results of each row of x in a page of their own.
	{kernel: "linear_f32", words: []uint64{1, 1 << 16, 1 << 26}, inline: []uint32{1, 1, 1 << 16, 0, 1 << 10, 0}},
	{kernel: "linear_f32", words: []uint64{16, 1 << 16, 1 << 26}, inline: []uint32{16, 1, 1 << 16, 0, 1 << 10, 0}, offset: 4092},
	{kernel: "linear_f32", words: []uint64{600, 1 << 17, 1<<27 + 600}, inline: []uint32{600, 1, 1 << 17, 0, 1 << 10, 0}, offset: 4},
	{kernel: "linear_q8_0", words: []uint64{3 * 9, 32 << 16, 1 << 26}, inline: []uint32{3, 32, 1 << 16, 0, 1 << 10, 0}, offset: 4},
	{kernel: "linear_i8", words: []uint64{1, 4, 1 << 16, 1 << 26}, inline: []uint32{4, 1, 1 << 16, 0, 1 << 10, 0, 1}, offset: 4},
	// And much of x for a row of w.
	{kernel: "linear_f32", words: []uint64{1 << 15, 1 << 28, 1 << 13}, inline: []uint32{1, 1 << 15, 1 << 13, 0, 1, 0}, offset: 4},
	linearShapeOf("linear_q8_0", g1, 1<<14, 1<<15, 64, 4, false),
	linearShapeOf("linear_q8_0", g1, m1, 32, 64, 4, false),
	linearShapeOf("linear_q4_0", g1, 1<<15, 1<<15, 1, 4, false),
	linearShapeOf("linear_q4_k", g1, 1<<14, 1<<15, 64, 4, false),
	linearShapeOf("linear_q4_k", g1, m1, 256, 1, 4, false),
	linearShapeOf("linear_mxfp4", g1, m1, 32, 64, 4, false),
	linearShapeOf("linear_f16", g1, 1<<14, 1<<15, 1<<10, 4, false),
	linearShapeOf("linear_bf16", g1, 1<<14, 1<<15, 1, 4, false),
	{kernel: "linear_i8", words: []uint64{g1, g1, 64 << 12, 64 << 16}, inline: []uint32{1 << 16, 1 << 12, 64, 0, 1 << 16, 0, 4}, offset: 4},
	{kernel: "linear_i8", words: []uint64{g1, g1, 1 << 15, 1 << 15}, inline: []uint32{1 << 15, 1 << 15, 1, 0, 0, 0, 16}, offset: 4},

	{kernel: "rope_f32", words: []uint64{g1}, inline: []uint32{1 << 20, 256, 7, 0x461c4000}, offset: 4092},
	{kernel: "rope_f32", words: []uint64{g1}, inline: []uint32{1 << 27, 2, 7, 0x461c4000}, offset: 4092},
	{kernel: "rope_f32", words: []uint64{g1}, inline: []uint32{1, g1, 7, 0x461c4000}, offset: 4092},
	{kernel: "rope_f32", words: []uint64{g1}, inline: []uint32{1 << 10, 1 << 18, 7, 0x461c4000}, offset: 4092},
	{kernel: "rope_f32", words: []uint64{g1}, inline: []uint32{12345, 2 * 9999, 7, 0x461c4000}, offset: 4092},
	{kernel: "rope_f32", words: []uint64{1}, inline: []uint32{1<<32 - 1, 0, 7, 0}},

	// A model of eight billion weights, at four thousand positions.
	attentionOf(32, 8, 128, 4096, 0, false),
	attentionOf(64, 64, 256, 5630, 0, false),
	attentionOf(64, 64, 256, 5630, 4, true),
	attentionOf(64, 64, 256, 2815, 4092, false),
	attentionOf(16, 16, 96, 2815, 4, false),
	attentionOf(2, 1, 256, 8192, 4, false),
	attentionOf(1, 1, 1, 138_000, 4, false),
	attentionOf(1, 1, 1, 139_000, 4, true),
	attentionOf(4096, 4096, 1, 5630, 4, false),
	attentionOf(1024, 1024, 1, 1<<18, 0, true),
	attentionOf(1024, 1024, 256, 16, 4, false),
	attentionOf(1<<20, 1, 1, 0, 4, false),
	attentionOf(1<<20, 1<<20, 1, 1, 4, false),
	attentionOf(1<<18, 1<<18, 1, 100, 4, false),

	matmulOf(12, 1024, 1<<17, 0, true),
	matmulOf(12, 4096, 11008, 0, false), // of a model of seven billion weights
	matmulOf(12, 4096, 11008, 4, true),
	matmulOf(512, 4096, 4096, 0, false),
	matmulOf(12, 64, 1<<17, 4, false),
	matmulOf(300, 32, 1<<17, 4, false),
	matmulOf(1, 1, 1<<17, 4, false),
	matmulOf(1, 1, 1<<17+1, 4, true),
	matmulOf(96, 8192, 5000, 4064, false),
	matmulOf(1<<14, 1<<14, 1, 4064, false),
	matmulOf(100, 1<<20, 1, 4064, false),
	matmulOf(1, g1, 1, 4, false),
	matmulOf(g1, 1, 1, 4, false),
	matmulOf(1<<20, 33, 8, 4, false),
	matmulOf(3, 1<<20, 100, 4064, false),
}

// linearShapeOf puts each row's results in other pages than those of the row
// before.
func linearShapeOf(kernel string, words uint64, rows, cols, batch uint32, offset uint64, lane bool) grainShape {
	stride := rows
	if uint64(batch)*uint64(rows+2000) <= g1 {
		stride += 2000
	}
	y := uint64(batch-1)*uint64(stride) + uint64(rows)
	return grainShape{kernel, []uint64{words, uint64(cols) * uint64(batch), y}, []uint32{rows, cols, batch, 0, stride, 0}, 1, offset, lane}
}

// cacheOf is a batch of one sequence, with a cache of 256 MiB of keys and of values.
func cacheOf(kernel string, heads, kv, dim, batch, page, pages uint32, offset uint64, lane bool) grainShape {
	qkv, rows := uint64(batch)*uint64(heads+2*kv)*uint64(dim), 2*uint64(batch)
	s := grainShape{kernel: kernel, groups: 1, offset: offset, lane: lane}
	if kernel == "rope_cache_f32" {
		s.words = []uint64{qkv, uint64(dim), rows, uint64(pages), g1 / 4, g1 / 4}
		s.inline = []uint32{heads, kv, dim, batch, 0, page, pages, 0x3f800000}
	} else {
		s.words = []uint64{qkv, rows, uint64(pages), g1 / 4, g1 / 4, uint64(batch) * uint64(heads) * uint64(dim)}
		s.inline = []uint32{heads, kv, dim, batch, page, pages, 0, 0, 0}
	}
	return s
}

func attentionOf(heads, kv, dim, length uint32, offset uint64, lane bool) grainShape {
	q, k := uint64(heads)*uint64(dim), uint64(length)*uint64(kv)*uint64(dim)
	return grainShape{"attention_f32", []uint64{q, k, k, q}, []uint32{heads, kv, dim, length}, 1, offset, lane}
}

func matmulOf(m, n, k uint32, offset uint64, lane bool) grainShape {
	a, b, c := uint64(m)*uint64(k), uint64(k)*uint64(n), uint64(m)*uint64(n)
	return grainShape{"matmul_f32", []uint64{a, b, c}, []uint32{m, n, k}, 1, offset, lane}
}

// wordsOfItem bounds the words that an item reads or writes, each counted once.
func wordsOfItem(kernel string, c *Call) uint64 {
	switch kernel {
	case "reduce_f32":
		groups, _ := c.groups()
		return 1 + min(c.words(0), ceilDiv(c.words(0), groups*reduceLanes)*reduceLanes)

	case "argmax_f32":
		return 2 * c.words(0)
	case "topk_f32":
		return c.words(0) + mostInserts*mostK

	case "embed_f32", "embed_f16", "embed_bf16", "embed_q4_0", "embed_q8_0", "embed_q4_k", "embed_mxfp4":
		return startWords + 2*c.inline(0)
	case "embed_i8":
		return startWords + c.inline(0)*(2+runWords/min(runWords, c.inline(1)))

	case "swiglu_rows_f32", "geglu_rows_f32":
		return startWords + 6*c.inline(0)
	case "head_norm_f32":
		_, _, _, _, row := headNormSizes(c)
		return startWords + 6*row
	case "next_token_f32":
		return startWords + 2*c.inline(0)

	case "rope_cache_f32":
		return startWords + 3*(c.inline(0)+2*c.inline(1))*c.inline(2) + c.inline(2)*angleWords/2
	case "attention_cache_f32":
		q := cachedOf(c, 1, 4)
		return startWords + 2*q.dim + 2*q.most(c)*(q.dim+positionWords)

	case "layernorm_f32", "rmsnorm_f32", "softmax_f32":
		return startWords + 6*c.inline(0)
	case "matvec_f32", "matvec_wg_f32", "matvec_q8_0", "matvec_wg_q8_0":
		return 16 + c.inline(1)

	case "linear_bf16", "linear_f16", "linear_f32", "linear_i8", "linear_q4_0", "linear_q8_0", "linear_q4_k", "linear_mxfp4":
		return 16 + c.inline(1)*(1+min(c.inline(2), batchBlock)/tileFlops)
	case "rope_f32":
		tiles := ropeTilesOf(c)
		return tiles.heads*(16+2*tiles.pairs) + tiles.pairs*angleWords

	case "attention_f32":
		return startWords + 2*c.inline(2) + 2*c.inline(3)*(c.inline(2)+positionWords)
	case "matmul_f32":
		p, _ := productOf(c)
		return p.flops() / 16
	}
	return uint64(len(c.Bindings)) * blockWords
}

func TestNoGrainTakesLong(t *testing.T) {
	seen := map[*Body]bool{}
	for _, s := range grainShapes {
		c, _ := s.call(t)
		b := bodies[s.kernel]
		items, ok := b.Items(c)
		require.Equal(t, !s.lane, ok, s.String())
		if !ok {
			continue
		}

		seen[b] = true
		if items == 0 {
			continue
		}

		grain := min(b.Grain(c), items)
		require.LessOrEqual(t, grain*wordsOfItem(s.kernel, c), uint64(7*mostWords), s.String())
		starts := []uint64{0, (items - 1) / grain * grain}
		for _, lo := range slices.Compact(starts) {
			c, made := s.call(t)
			_, _ = b.Items(c)
			start := time.Now()
			require.True(t, b.Run(c, lo, min(lo+grain, items)), s.String())
			took := time.Since(start) // to be seen, not judged
			t.Log(s.String(), ": ", grain, " of ", items, " items from ", lo, ": ", made(), " pages in ", took)
			require.LessOrEqual(t, made(), uint64(mostPages), s.String())
		}
	}

	// The bodies of blocks differ only in their tables.
	table := map[string]string{}
	for _, name := range librarytest.BlockNames {
		table["embed_"+name], table["linear_"+name] = "embed_q4_k", "linear_q4_k"
	}
	for _, name := range names {
		require.True(t, seen[bodies[name]] || seen[bodies[table[name]]], name)
	}
}

// TestPages: the bound is valid.
func TestPages(t *testing.T) {
	memory, _ := sparse(t, 64*pageWords, 0)
	for _, words := range []uint64{1, 2, 3, 32, 1000, 1024, 1025, 1026, 3000} {
		for _, stride := range []uint64{words, words + 1, 1024, 2048, 4096} {
			for _, first := range []uint64{0, 1, 31, 512, 1023} {
				const rows = 7
				touched := map[uint64]bool{}
				for r := range uint64(rows) {
					for w := range words {
						touched[(first+r*stride+w)/pageWords] = true
					}
				}
				bound := pages(memory[4*first:], rows, words, stride)
				require.GreaterOrEqual(t, bound, uint64(len(touched)), fmt.Sprint(words, stride, first))
				require.LessOrEqual(t, bound, uint64(2*len(touched)+1), fmt.Sprint(words, stride, first))
			}
		}
	}

	require.Zero(t, pages(memory, 0, 5, 5))
}
