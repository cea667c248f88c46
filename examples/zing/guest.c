/* A guest: it adds two vectors on the device, and prints the sums. Run it with `gpuctl zing`. */
#include "cloak.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 4, BYTES = 4 * COUNT, REQ = 0, RESP = 4096, DATA = 8192, OPEN = 3, BUFFER = 2, SUBMIT = 3 };

static uint8_t mem[16384];
static cloak_ctl ctl;

/* Fields of a payload, at the place where the next one goes. */
static uint8_t *h4(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
	return p + 4;
}

static uint8_t *str(uint8_t *p, const char *s)
{
	p = h4(p, (uint32_t)strlen(s));
	memcpy(p, s, strlen(s));
	return p + strlen(s);
}

/* CAPS_OPEN of accel/default: the handle, or -1 and the reason on the log. */
static int32_t open_accel(uint32_t mode, const uint8_t *params, uint32_t len)
{
	uint8_t *payload = mem + REQ + 24, *p = str(str(payload, "accel"), "default");
	p = h4(h4(p, mode), len);
	memcpy(p, params, len);
	p += len;
	memset(mem + REQ, 0, 24);
	memcpy(mem + REQ, "ZCL1\1\0\3", 7);
	h4(mem + REQ + 20, (uint32_t)(p - payload));

	int32_t n = ctl(NULL, 0, mem, sizeof mem, REQ, (int32_t)(p - mem) - REQ, RESP, DATA - RESP, 0);
	if (n < 36 || mem[RESP + 20] != 1) {
		if (n > 28)
			fprintf(stderr, "refused: %.*s\n", mem[RESP + 24], (char *)mem + RESP + 28);
		return -1;
	}
	return (int32_t)(mem[RESP + 24] | mem[RESP + 25] << 8 | mem[RESP + 26] << 16 | (uint32_t)mem[RESP + 27] << 24);
}

static int32_t buffer(void)
{
	uint8_t params[64], *p = str(str(params, "spirv"), "0");
	p = h4(h4(h4(p, BYTES), 0), 0); /* H8 bytes, H4 flags */
	return open_accel(BUFFER, params, (uint32_t)(p - params));
}

int lembeh_handle(int32_t req, int32_t res, cloak_read in, cloak_write out, cloak_end end, cloak_log log, cloak_ctl ctl_fn, void *ctx,
		  const struct zprog_sys *sys)
{
	(void)req, (void)sys;
	ctl = ctl_fn;
	int32_t buffers[3];
	float values[COUNT];
	for (int i = 0; i < 3; i++)
		if ((buffers[i] = buffer()) < 0)
			return 1;
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < COUNT; k++)
			values[k] = i == 0 ? (float)k : 0.5f;
		memcpy(mem + DATA, values, BYTES);
		if (out(ctx, buffers[i], mem, sizeof mem, DATA, BYTES) != BYTES)
			return 1;
	}

	uint8_t params[256], *p = str(str(str(str(params, "spirv"), "0"), "capgpu"), "vecadd_f32");
	const uint32_t shape[] = {1, 1, 1, 256, 1, 1, 0, 3}; /* grid, block, shared memory, arguments */
	for (int i = 0; i < 8; i++)
		p = h4(p, shape[i]);
	for (int i = 0; i < 3; i++)
		p = h4(h4(h4(p, 2), 4), (uint32_t)buffers[i]); /* a handle: kind 2, size 4 */
	p = h4(p, 0);                                        /* budget_ms: the policy's */
	int32_t work = open_accel(SUBMIT, params, (uint32_t)(p - params));
	if (work < 0)
		return 1;

	/* The record: 0 is ok. Reading it waits. */
	if (in(ctx, work, mem, sizeof mem, DATA, 64) < 1 || mem[DATA] != 0)
		return 1;
	if (in(ctx, buffers[2], mem, sizeof mem, DATA, BYTES) != BYTES)
		return 1;
	memcpy(values, mem + DATA, BYTES);
	for (int i = 0; i < 3; i++)
		end(ctx, buffers[i]);

	int n = snprintf((char *)mem + DATA, 256, "%g %g %g %g\n", values[0], values[1], values[2], values[3]);
	memcpy(mem + DATA + 512, "guestdone", 9);
	log(ctx, mem, sizeof mem, DATA + 512, 5, DATA + 517, 4);
	return out(ctx, res, mem, sizeof mem, DATA, n) == n ? 0 : 1;
}
