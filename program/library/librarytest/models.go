package librarytest

import (
	"math"
	"math/rand/v2"
)

var models = map[string]model{
	"copy":                {[]string{"src", "dst"}, pairs, drawPair, fillCopy},
	"fill_u32":            {[]string{"n"}, lengths, drawLength, fillFill},
	"vecadd_f32":          {[]string{"a", "b", "c"}, triples, drawTriple, fillVecadd},
	"saxpy_f32":           {[]string{"x", "y"}, pairs, drawPair, fillSaxpy},
	"swiglu_f32":          {[]string{"a", "b", "y"}, triples, drawTriple, fillSwiglu},
	"reduce_f32":          {[]string{"n", "groups"}, reduceEdges, drawReduce, fillReduce},
	"scan_u32":            {[]string{"x", "y"}, pairs, drawPair, fillScanU32},
	"scan_f32":            {[]string{"x", "y"}, pairs, drawPair, fillScanF32},
	"histogram_u32":       {[]string{"keys", "bins"}, histogramEdges, drawHistogram, fillHistogram},
	"matmul_f32":          {[]string{"m", "n", "k"}, matmulEdges, drawMatmul, fillMatmul},
	"matmul_tiled_f32":    {[]string{"m", "n", "k"}, matmulEdges, drawMatmul, fillMatmul},
	"matvec_f32":          {[]string{"rows", "cols"}, matvecEdges, drawMatvec, fillMatvec},
	"matvec_wg_f32":       {[]string{"rows", "cols"}, matvecEdges, drawMatvec, fillMatvec},
	"matvec_q8_0":         {[]string{"rows", "cols"}, q8Edges, drawQ8, fillMatvecQ8},
	"matvec_wg_q8_0":      {[]string{"rows", "cols"}, q8Edges, drawQ8, fillMatvecQ8},
	"rmsnorm_f32":         {[]string{"rows", "n", "rest"}, rowEdges, drawRows, fillRMSNorm},
	"layernorm_f32":       {[]string{"rows", "n", "rest"}, rowEdges, drawRows, fillLayerNorm},
	"softmax_f32":         {[]string{"rows", "n", "rest"}, rowEdges, drawRows, fillSoftmax},
	"rope_f32":            {[]string{"heads", "head_dim", "pos"}, ropeEdges, drawRope, fillRope},
	"attention_f32":       {[]string{"heads", "kv_heads", "head_dim", "length"}, attentionEdges, drawAttention, fillAttention},
	"embed_f32":           {[]string{"rows", "tokens", "dim"}, embedEdges, drawEmbed, fillEmbed},
	"embed_q8_0":          {[]string{"rows", "tokens", "dim"}, embedQ8Edges, drawEmbedQ8, fillEmbedQ8},
	"embed_f16":           {[]string{"rows", "tokens", "dim"}, embedEdges, drawEmbed, fillEmbedOf(storedF16)},
	"embed_bf16":          {[]string{"rows", "tokens", "dim"}, embedEdges, drawEmbed, fillEmbedOf(storedBF16)},
	"embed_q4_0":          {[]string{"rows", "tokens", "dim"}, embedQ8Edges, drawEmbedQ8, fillEmbedOf(storedQ4)},
	"embed_i8":            {[]string{"rows", "tokens", "dim", "group"}, embedI8Edges, drawEmbedI8, fillEmbedI8},
	"linear_f32":          {linearNames, linearEdges, drawLinear, fillLinear(storedF32)},
	"linear_f16":          {linearNames, linearEdges, drawLinear, fillLinear(storedF16)},
	"linear_bf16":         {linearNames, linearEdges, drawLinear, fillLinear(storedBF16)},
	"linear_q8_0":         {linearNames, linearBlockEdges, drawLinearBlocks, fillLinear(storedQ8)},
	"linear_q4_0":         {linearNames, linearBlockEdges, drawLinearBlocks, fillLinear(storedQ4)},
	"linear_i8":           {append(linearNames[:6:6], "group"), linearI8Edges, drawLinearI8, fillLinearI8},
	"rope_cache_f32":      {ropeCacheNames, ropeCacheEdges, drawRopeCache, fillRopeCache},
	"attention_cache_f32": {attentionCacheNames, attentionCacheEdges, drawAttentionCache, fillAttentionCache},
	"swiglu_rows_f32":     {[]string{"x rows", "y rows", "n", "rest"}, swigluRowsEdges, drawSwigluRows, fillSwigluRows},
	"geglu_rows_f32":      {[]string{"x rows", "y rows", "n", "rest"}, swigluRowsEdges, drawSwigluRows, fillGegluRows},
	"head_norm_f32":       {[]string{"heads", "kv_heads", "head_dim", "batch"}, headNormEdges, drawHeadNorm, fillHeadNorm},
	"softcap_f32":         {[]string{"n"}, lengths, drawLength, fillSoftcap},
	"next_token_f32":      {[]string{"vocab", "batch", "keep"}, nextEdges, drawNext, fillNext},
	"argmax_f32":          {[]string{"n"}, lengths, drawLength, fillArgmax},
	"topk_f32":            {[]string{"n", "k"}, topkEdges, drawTopk, fillTopk},
	"sample_topk_f32":     {[]string{"n", "k"}, sampleEdges, drawSample, fillSample},
}

const longest = 5000 // elements of a random case's vectors

var (
	lengths = [][]uint32{{0}, {1}, {2}, {255}, {256}, {257}, {4099}}
	pairs   = [][]uint32{{0, 0}, {0, 3}, {3, 0}, {1, 1}, {255, 255}, {256, 256}, {257, 300}, {4099, 513}, {4099, 4099}}
	triples = [][]uint32{{0, 0, 0}, {1, 1, 1}, {3, 2, 0}, {256, 256, 256}, {257, 300, 259}, {4099, 4100, 4101}}
)

func drawLength(r *rand.Rand) []uint32 { return []uint32{upTo(r, longest)} }

func drawPair(r *rand.Rand) []uint32 {
	n := upTo(r, longest)
	return []uint32{n + slack(r), n + slack(r)}
}

func drawTriple(r *rand.Rand) []uint32 {
	n := upTo(r, longest)
	return []uint32{n + slack(r), n + slack(r), n + slack(r)}
}

func fillCopy(r *rand.Rand, size []uint32, c *Case) {
	src, dst := bits(r, size[0]), bits(r, size[1])
	c.Bindings = [][]byte{raw(src), raw(dst)}
	copy(dst, src)
	c.Want[1] = raw(dst)
}

func fillFill(r *rand.Rand, size []uint32, c *Case) {
	dst, pattern := bits(r, size[0]), r.Uint32()
	c.Bindings = [][]byte{raw(dst)}
	c.Inline = inline(pattern)
	for i := range dst {
		dst[i] = pattern
	}
	c.Want[0] = raw(dst)
}

func fillVecadd(r *rand.Rand, size []uint32, c *Case) {
	a, b, sum := mixed(r, size[0]), mixed(r, size[1]), ones(r, size[2])
	c.Bindings = [][]byte{raw(a), raw(b), raw(sum)}
	for i := range min(len(a), len(b), len(sum)) {
		sum[i] = a[i] + b[i]
	}
	c.Want[2] = raw(sum)
}

func fillSaxpy(r *rand.Rand, size []uint32, c *Case) {
	x, y, a := mixed(r, size[0]), mixed(r, size[1]), float32(4*r.Float64()-2)
	c.Bindings = [][]byte{raw(x), raw(y)}
	c.Inline = inline(a)
	for i := range min(len(x), len(y)) {
		product := float32(a * x[i]) // the conversion keeps the compiler from fusing
		y[i] = product + y[i]
	}
	c.Want[1] = raw(y)
}

func fillSwiglu(r *rand.Rand, size []uint32, c *Case) {
	a, b, y := scaled(r, size[0], 8), ones(r, size[1]), ones(r, size[2])
	if len(a) > 2 {
		a[1], a[2] = 200, -200 // exp overflows
	}
	c.Bindings = [][]byte{raw(a), raw(b), raw(y)}
	for i := range min(len(a), len(b), len(y)) {
		v := float64(a[i])
		y[i] = float32(v / (1 + math.Exp(-v)) * float64(b[i]))
	}
	c.Want[2] = raw(y)
}

var reduceEdges = [][]uint32{{0, 1}, {1, 1}, {255, 1}, {256, 1}, {257, 1}, {4099, 1}, {4099, 3}, {100, 5}, {0, 2}}

func drawReduce(r *rand.Rand) []uint32 {
	return []uint32{upTo(r, 2*longest), 1 + r.Uint32N(9)}
}

func fillReduce(r *rand.Rand, size []uint32, c *Case) {
	x, out := ones(r, size[0]), ones(r, size[1]+slack(r))
	c.Bindings = [][]byte{raw(x), raw(out)}
	groups := size[1]
	c.Grid.X, c.Grid.Y, c.Grid.Z = groups, 1, 1
	sums := make([]float64, groups)
	for i, v := range x {
		sums[uint32(i)/256%groups] += float64(v)
	}
	for g, sum := range sums {
		out[g] = float32(sum)
	}
	c.Want[1] = raw(out)
}

func fillScanU32(r *rand.Rand, size []uint32, c *Case) {
	x, y := bits(r, size[0]), bits(r, size[1])
	c.Bindings = [][]byte{raw(x), raw(y)}
	var sum uint32
	for i := range min(len(x), len(y)) {
		sum += x[i]
		y[i] = sum
	}
	c.Want[1] = raw(y)
}

func fillScanF32(r *rand.Rand, size []uint32, c *Case) {
	x, y := ones(r, size[0]), ones(r, size[1])
	c.Bindings = [][]byte{raw(x), raw(y)}
	var sum float64
	for i := range min(len(x), len(y)) {
		sum += float64(x[i])
		y[i] = float32(sum)
	}
	c.Want[1] = raw(y)
}

var histogramEdges = [][]uint32{{0, 0}, {0, 5}, {9, 0}, {300, 1}, {5000, 1024}, {5000, 1025}, {257, 3000}, {1, 256}}

func drawHistogram(r *rand.Rand) []uint32 { return []uint32{upTo(r, longest), upTo(r, 2000)} }

func fillHistogram(r *rand.Rand, size []uint32, c *Case) {
	keys, bins := make([]uint32, size[0]), bits(r, size[1])
	for i := range keys {
		keys[i] = r.Uint32N(size[1] + size[1]/8 + 2) // some are no bin
		if r.IntN(50) == 0 {
			keys[i] = r.Uint32()
		}
	}
	c.Bindings = [][]byte{raw(keys), raw(bins)}
	for _, key := range keys {
		if uint64(key) < uint64(len(bins)) {
			bins[key]++
		}
	}
	c.Want[1] = raw(bins)
}
