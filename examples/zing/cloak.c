/* A cloak: the process around a guest that `gpuctl zing` starts. Standard input, output and log are
 * the process's own; all other handles, and _ctl, go over the wire that is descriptor 3. */
#include "cloak.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIRE = 3, REQUEST = 24, RESPONSE = 20, READ = 1001, WRITE = 1002, END = 1003, LOG = 1004, MOST = 1 << 20 };

static void put4(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static uint32_t get4(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int all_of(int fd, uint8_t *p, size_t n, int out)
{
	while (n > 0) {
		ssize_t did = out ? write(fd, p, n) : read(fd, p, n);
		if (did <= 0)
			return -1;
		p += did;
		n -= (size_t)did;
	}
	return 0;
}

/* Sends a frame and takes its answer, as much of it as there is room for; -1 if that is less. */
static int32_t frame(const uint8_t *req, size_t len, uint8_t *resp, size_t cap)
{
	uint8_t head[RESPONSE], rest[256];
	if (all_of(WIRE, (uint8_t *)req, len, 1) || all_of(WIRE, head, sizeof head, 0))
		return -1;
	size_t n = get4(head + 16);
	if (cap >= sizeof head + n) {
		memcpy(resp, head, sizeof head);
		return all_of(WIRE, resp + sizeof head, n, 0) ? -1 : (int32_t)(sizeof head + n);
	}
	while (n > 0) {
		size_t some = n < sizeof rest ? n : sizeof rest;
		if (all_of(WIRE, rest, some, 0))
			return -1;
		n -= some;
	}
	return -1;
}

/* One of the operations of the wire: H4 first, then bytes with their length if there are any. */
static int32_t call(uint16_t op, uint32_t first, const uint8_t *bytes, uint32_t len, int has_bytes, uint8_t *resp, size_t cap)
{
	size_t n = 4 + (has_bytes ? 4 + (size_t)len : 0);
	uint8_t *req = calloc(1, REQUEST + n);
	if (req == NULL)
		return -1;
	memcpy(req, "ZCL1\1\0", 6);
	req[6] = (uint8_t)op;
	req[7] = (uint8_t)(op >> 8);
	put4(req + 20, (uint32_t)n);
	put4(req + REQUEST, first);
	if (has_bytes) {
		put4(req + REQUEST + 4, len);
		memcpy(req + REQUEST + 8, bytes, len);
	}
	int32_t did = frame(req, REQUEST + n, resp, cap);
	free(req);
	return did >= RESPONSE + 4 && resp[RESPONSE] == 1 ? did : -1;
}

static int within(size_t cap, int32_t ptr, int32_t len)
{
	return ptr >= 0 && len >= 0 && (size_t)ptr <= cap && (size_t)len <= cap - (size_t)ptr;
}

static int32_t on_read(void *ctx, int32_t handle, uint8_t *mem, size_t mem_cap, int32_t ptr, int32_t cap)
{
	(void)ctx;
	if (!within(mem_cap, ptr, cap))
		return -1;
	if (cap > MOST)
		cap = MOST;
	if (handle == 0)
		return (int32_t)read(0, mem + ptr, (size_t)cap);

	/* A READ is two numbers, and its answer the result, a length and the bytes. */
	uint8_t req[REQUEST + 8] = "ZCL1\1\0\xe9\3";
	put4(req + 20, 8);
	put4(req + REQUEST, (uint32_t)handle);
	put4(req + REQUEST + 4, (uint32_t)cap);
	size_t room = RESPONSE + 12 + (size_t)cap;
	uint8_t *resp = malloc(room);
	if (resp == NULL)
		return -1;
	int32_t n = -1, did = frame(req, sizeof req, resp, room);
	if (did >= RESPONSE + 12 && resp[RESPONSE] == 1) {
		n = (int32_t)get4(resp + RESPONSE + 4);
		if (n > cap || n > did - RESPONSE - 12)
			n = -1;
		if (n > 0)
			memcpy(mem + ptr, resp + RESPONSE + 12, (size_t)n);
	}
	free(resp);
	return n;
}

static int32_t on_write(void *ctx, int32_t handle, uint8_t *mem, size_t mem_cap, int32_t ptr, int32_t len)
{
	(void)ctx;
	if (!within(mem_cap, ptr, len) || len > MOST)
		return -1;
	if (handle == 1 || handle == 2)
		return all_of(handle, mem + ptr, (size_t)len, 1) ? -1 : len;
	uint8_t resp[RESPONSE + 8];
	int32_t did = call(WRITE, (uint32_t)handle, mem + ptr, (uint32_t)len, 1, resp, sizeof resp);
	return did == (int32_t)sizeof resp ? (int32_t)get4(resp + RESPONSE + 4) : -1;
}

static void on_end(void *ctx, int32_t handle)
{
	(void)ctx;
	uint8_t resp[RESPONSE + 4];
	if (handle > 2)
		call(END, (uint32_t)handle, NULL, 0, 0, resp, sizeof resp);
}

static void on_log(void *ctx, uint8_t *mem, size_t mem_cap, int32_t topic, int32_t topic_len, int32_t msg, int32_t msg_len)
{
	(void)ctx;
	if (!within(mem_cap, topic, topic_len) || !within(mem_cap, msg, msg_len) || topic_len > MOST || msg_len > MOST)
		return;
	all_of(2, mem + topic, (size_t)topic_len, 1);
	all_of(2, (uint8_t *)": ", 2, 1);
	all_of(2, mem + msg, (size_t)msg_len, 1);
	all_of(2, (uint8_t *)"\n", 1, 1);
}

static int32_t on_ctl(void *ctx, int32_t handle, uint8_t *mem, size_t mem_cap, int32_t req, int32_t req_len, int32_t resp, int32_t resp_cap,
		      int32_t timeout_ms)
{
	(void)ctx, (void)handle, (void)timeout_ms; /* the frame has its own */
	if (!within(mem_cap, req, req_len) || !within(mem_cap, resp, resp_cap) || req_len < REQUEST)
		return -1;
	return frame(mem + req, (size_t)req_len, mem + resp, (size_t)resp_cap);
}

int main(void)
{
	struct zprog_sys sys = {0}; /* the guest has its memory */
	return lembeh_handle(0, 1, on_read, on_write, on_end, on_log, on_ctl, NULL, &sys);
}
