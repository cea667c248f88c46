/* The calls of the Zing ABI v1.0, as a program linked with a cloak has them. Addresses are offsets
 * into the memory of the guest, mem[0..mem_cap). The shapes are those of the public ABI. */
#ifndef CAPGPU_EXAMPLES_ZING_CLOAK_H
#define CAPGPU_EXAMPLES_ZING_CLOAK_H

#include <stddef.h>
#include <stdint.h>

/* Bytes read, 0 at the end, -1 for what is no readable handle. */
typedef int32_t (*cloak_read)(void *ctx, int32_t handle, uint8_t *mem, size_t mem_cap, int32_t ptr, int32_t cap);

/* Bytes written, or -1 and nothing. */
typedef int32_t (*cloak_write)(void *ctx, int32_t handle, uint8_t *mem, size_t mem_cap, int32_t ptr, int32_t len);

typedef void (*cloak_end)(void *ctx, int32_t handle);

typedef void (*cloak_log)(void *ctx, uint8_t *mem, size_t mem_cap, int32_t topic, int32_t topic_len, int32_t msg, int32_t msg_len);

/* Bytes of the answer, or -1. */
typedef int32_t (*cloak_ctl)(void *ctx, int32_t handle, uint8_t *mem, size_t mem_cap, int32_t req, int32_t req_len,
			     int32_t resp, int32_t resp_cap, int32_t timeout_ms);

typedef int32_t (*cloak_alloc)(void *ctx, uint8_t *mem, size_t mem_cap, int32_t size);
typedef void (*cloak_free)(void *ctx, uint8_t *mem, size_t mem_cap, int32_t ptr);

struct zprog_sys {
	void *ctx;
	cloak_alloc alloc_fn;
	cloak_free free_fn;
};

/* The guest. */
int lembeh_handle(int32_t req, int32_t res, cloak_read in, cloak_write out, cloak_end end, cloak_log log, cloak_ctl ctl, void *ctx,
		  const struct zprog_sys *sys);

#endif
