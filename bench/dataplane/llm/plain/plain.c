// A language model of the Llama architecture as one writes it in C, before anything else:
// one thread, loops over arrays, no intrinsics. It takes checkpoints of llama2.c, version
// 1 (float) and 2 (bytes in groups with a scale each). With bytes, what is multiplied with
// a matrix is made bytes first, in groups of the same length, and whole numbers are added
// up within a group.
//
// The program serves its standard input: a line "COUNT TOKEN" is a text of so many tokens
// that follows a token, each the most likely one. The answer is a line: the nanoseconds
// that it took, and the tokens.
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { MAGIC = 0x616b3432, HEADER = 256 };

struct matrix {
	const float *values; // of version 1
	const int8_t *bytes; // of version 2
	const float *scales;
};

struct layer {
	const float *attention_norm, *ffn_norm;
	struct matrix q, k, v, o, gate, down, up;
};

static int dim, hidden, layers, heads, kv_heads, vocab, context, head_dim, kv_dim;
static int group; // elements with one scale; 0: the matrices are floats
static struct layer *layer;
static const float *final_norm;
static struct matrix embedding, classifier;

// What a pass works in.
static float *x, *normed, *query, *attended, *gated, *upped, *scores, *logits;
static float *keys, *values;           // [layer][position][kv_dim]
static float *frequency, *cosine, *sine; // of the pairs of a head
static int8_t *input_bytes;
static float *input_scales;

static void fail(const char *what) {
	fprintf(stderr, "plain: %s\n", what);
	exit(1);
}

// The checkpoint, part after part.
static const char *at, *end;

static const void *take(size_t bytes) {
	if (bytes > (size_t)(end - at))
		fail("the checkpoint is too short");
	const void *here = at;
	at += bytes;
	return here;
}

static const float *take_floats(size_t n) { return take(n * sizeof(float)); }

static struct matrix take_matrix(size_t rows, size_t cols) {
	struct matrix m = {0};
	if (group) {
		m.bytes = take(rows * cols);
		m.scales = take_floats(rows * cols / group);
	} else {
		m.values = take_floats(rows * cols);
	}
	return m;
}

static void *room(size_t n, size_t bytes) {
	void *p = calloc(n, bytes);
	if (!p)
		fail("there is no memory");
	return p;
}

static void load(const char *path) {
	int fd = open(path, O_RDONLY);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) || st.st_size < HEADER)
		fail("the checkpoint cannot be read");
	at = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (at == MAP_FAILED)
		fail("the checkpoint cannot be mapped");
	end = at + st.st_size;
	const char *header = take(HEADER);
	int32_t h[9];
	memcpy(h, header, sizeof h);
	char tied = header[sizeof h];
	if (h[0] != MAGIC || (h[1] != 1 && h[1] != 2))
		fail("this is no checkpoint of version 1 or 2");
	if (h[1] == 2)
		memcpy(&group, header + sizeof h + 1, sizeof group);
	dim = h[2], hidden = h[3], layers = h[4], heads = h[5], kv_heads = h[6], vocab = h[7], context = h[8];
	head_dim = dim / heads, kv_dim = kv_heads * head_dim;
	layer = room(layers, sizeof *layer);
#define EACH(what) for (int l = 0; l < layers; l++) layer[l].what
	EACH(attention_norm) = take_floats(dim);
	EACH(ffn_norm) = take_floats(dim);
	final_norm = take_floats(dim);
	embedding = take_matrix(vocab, dim);
	EACH(q) = take_matrix(dim, dim);
	EACH(k) = take_matrix(kv_dim, dim);
	EACH(v) = take_matrix(kv_dim, dim);
	EACH(o) = take_matrix(dim, dim);
	EACH(gate) = take_matrix(hidden, dim);
	EACH(down) = take_matrix(dim, hidden);
	EACH(up) = take_matrix(hidden, dim);
#undef EACH
	classifier = tied ? embedding : take_matrix(vocab, dim);
	if (at != end)
		fail("the checkpoint is too long");
	x = room(dim, 4), normed = room(dim, 4), query = room(dim, 4), attended = room(dim, 4);
	gated = room(hidden, 4), upped = room(hidden, 4), scores = room(context, 4), logits = room(vocab, 4);
	size_t positions = (size_t)layers * context;
	keys = room(positions * kv_dim, 4), values = room(positions * kv_dim, 4);
	frequency = room(head_dim / 2, 4), cosine = room(head_dim / 2, 4), sine = room(head_dim / 2, 4);
	for (int i = 0; i < head_dim / 2; i++)
		frequency[i] = powf(10000, -2.0f * i / head_dim);
	input_bytes = room(dim > hidden ? dim : hidden, 1);
	input_scales = room(dim > hidden ? dim : hidden, 4);
}

static void norm(float *restrict out, const float *restrict in, const float *restrict weight) {
	float sum = 0;
	for (int i = 0; i < dim; i++)
		sum += in[i] * in[i];
	float scale = 1 / sqrtf(sum / dim + 1e-5f);
	for (int i = 0; i < dim; i++)
		out[i] = in[i] * scale * weight[i];
}

// prepare makes bytes of what several matrices are then multiplied with.
static void prepare(const float *restrict in, int n) {
	if (!group)
		return;
	for (int g = 0; g < n / group; g++) {
		const float *from = in + g * group;
		float most = 0;
		for (int i = 0; i < group; i++)
			most = fmaxf(most, fabsf(from[i]));
		float scale = most / 127, inverse = most > 0 ? 127 / most : 0;
		input_scales[g] = scale;
		for (int i = 0; i < group; i++)
			input_bytes[g * group + i] = (int8_t)roundf(from[i] * inverse);
	}
}

static void multiply_floats(float *restrict out, const float *restrict m, const float *restrict in, int rows, int cols) {
	for (int r = 0; r < rows; r++) {
		const float *row = m + (size_t)r * cols;
		float sum = 0;
		for (int c = 0; c < cols; c++)
			sum += row[c] * in[c];
		out[r] = sum;
	}
}

static void multiply_bytes(float *restrict out, const int8_t *restrict m, const float *restrict scales, int rows, int cols) {
	for (int r = 0; r < rows; r++) {
		const int8_t *row = m + (size_t)r * cols;
		const float *scale = scales + (size_t)r * cols / group;
		float sum = 0;
		for (int g = 0; g < cols / group; g++) {
			int32_t dot = 0;
			for (int i = 0; i < group; i++)
				dot += (int32_t)row[g * group + i] * (int32_t)input_bytes[g * group + i];
			sum += dot * scale[g] * input_scales[g];
		}
		out[r] = sum;
	}
}

// multiply is a matrix times in, for which prepare was called.
static void multiply(float *out, const struct matrix *m, const float *in, int rows, int cols) {
	if (group)
		multiply_bytes(out, m->bytes, m->scales, rows, cols);
	else
		multiply_floats(out, m->values, in, rows, cols);
}

static void turn(float *vector, int n) {
	for (int h = 0; h < n; h++) {
		float *head = vector + h * head_dim;
		for (int i = 0; i < head_dim / 2; i++) {
			float a = head[2 * i], b = head[2 * i + 1];
			head[2 * i] = a * cosine[i] - b * sine[i];
			head[2 * i + 1] = a * sine[i] + b * cosine[i];
		}
	}
}

static void softmax(float *restrict v, int n) {
	float most = v[0], sum = 0;
	for (int i = 1; i < n; i++)
		most = fmaxf(most, v[i]);
	for (int i = 0; i < n; i++) {
		v[i] = expf(v[i] - most);
		sum += v[i];
	}
	for (int i = 0; i < n; i++)
		v[i] /= sum;
}

// attend is the attention of all heads to the positions so far of a layer.
static void attend(const float *restrict layer_keys, const float *restrict layer_values, int position) {
	float scale = 1 / sqrtf(head_dim);
	for (int h = 0; h < heads; h++) {
		const float *q = query + h * head_dim;
		int shared = h / (heads / kv_heads) * head_dim;
		for (int t = 0; t <= position; t++) {
			const float *k = layer_keys + (size_t)t * kv_dim + shared;
			float dot = 0;
			for (int i = 0; i < head_dim; i++)
				dot += q[i] * k[i];
			scores[t] = dot * scale;
		}
		softmax(scores, position + 1);
		float *out = attended + h * head_dim;
		memset(out, 0, sizeof(float) * head_dim);
		for (int t = 0; t <= position; t++) {
			const float *v = layer_values + (size_t)t * kv_dim + shared;
			float weight = scores[t];
			for (int i = 0; i < head_dim; i++)
				out[i] += weight * v[i];
		}
	}
}

static void add(float *restrict to, const float *restrict from) {
	for (int i = 0; i < dim; i++)
		to[i] += from[i];
}

static void swiglu(float *restrict g, const float *restrict u) {
	for (int i = 0; i < hidden; i++)
		g[i] = g[i] / (1 + expf(-g[i])) * u[i];
}

static void embed(int token) {
	size_t from = (size_t)token * dim;
	for (int i = 0; i < dim; i++)
		x[i] = group ? embedding.bytes[from + i] * embedding.scales[(from + i) / group] : embedding.values[from + i];
}

// pass is one token at one position; then logits are of the next.
static void pass(int token, int position) {
	embed(token);
	for (int i = 0; i < head_dim / 2; i++) {
		cosine[i] = cosf(position * frequency[i]);
		sine[i] = sinf(position * frequency[i]);
	}
	for (int l = 0; l < layers; l++) {
		const struct layer *w = &layer[l];
		float *layer_keys = keys + (size_t)l * context * kv_dim, *layer_values = values + (size_t)l * context * kv_dim;
		float *k = layer_keys + (size_t)position * kv_dim, *v = layer_values + (size_t)position * kv_dim;
		norm(normed, x, w->attention_norm);
		prepare(normed, dim);
		multiply(query, &w->q, normed, dim, dim);
		multiply(k, &w->k, normed, kv_dim, dim);
		multiply(v, &w->v, normed, kv_dim, dim);
		turn(query, heads);
		turn(k, kv_heads);
		attend(layer_keys, layer_values, position);
		prepare(attended, dim);
		multiply(normed, &w->o, attended, dim, dim);
		add(x, normed);
		norm(normed, x, w->ffn_norm);
		prepare(normed, dim);
		multiply(gated, &w->gate, normed, hidden, dim);
		multiply(upped, &w->up, normed, hidden, dim);
		swiglu(gated, upped);
		prepare(gated, hidden);
		multiply(normed, &w->down, gated, dim, hidden);
		add(x, normed);
	}
	norm(normed, x, final_norm);
	prepare(normed, dim);
	multiply(logits, &classifier, normed, vocab, dim);
}

static int largest(const float *v, int n) {
	int best = 0;
	for (int i = 1; i < n; i++)
		if (v[i] > v[best])
			best = i;
	return best;
}

int main(int argc, char **argv) {
	if (argc != 2)
		fail("usage: plain CHECKPOINT");
	load(argv[1]);
	int *text = room(context, sizeof *text);
	int count, token;
	while (scanf("%d %d", &count, &token) == 2) {
		if (count < 1 || count > context || token < 0 || token >= vocab)
			fail("there are no such texts");
		struct timespec from, to;
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int i = 0; i < count; i++) {
			pass(token, i);
			text[i] = token = largest(logits, vocab);
		}
		clock_gettime(CLOCK_MONOTONIC, &to);
		printf("%lld", (to.tv_sec - from.tv_sec) * 1000000000ll + (to.tv_nsec - from.tv_nsec));
		for (int i = 0; i < count; i++)
			printf(" %d", text[i]);
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
