/* SPDX-License-Identifier: Apache-2.0 */
/* Long runs, and fills. */
#include "replayer/exec_fast.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    SEGMENT = 128 << 10, /* longer runs are split, so that threads can share them */
    CLEAR_BYTES = 1 << 20,
    PAGE = 4096, /* what the copy is blocked by; correct for pages of any size */
    AHEAD = 512, /* bytes fetched ahead */
    RUNS_AT_ONCE = 4,
    STREAM_RUN = 256 /* shorter runs end in too many half-written cache lines to bypass the cache */
};

/* ---- copies around the cache ---- */

#ifdef __SSE2__
static inline void stream_line(uint8_t *dst, const uint8_t *src)
{
    const __m128i *from = (const void *)src;
    __m128i *to = (void *)dst;
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1), c = _mm_loadu_si128(from + 2),
                  d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
}

/* Line by line over several pages at once: what fetches ahead does so within a page. */
static inline void stream_pages(uint8_t *dst, const uint8_t *src, size_t pages)
{
    for (size_t off = 0; off < PAGE; off += 64)
        for (size_t page = 0; page < pages * PAGE; page += PAGE) {
            __builtin_prefetch(src + page + off + AHEAD);
            stream_line(dst + page + off, src + page + off);
        }
}

void lp_stream_copy(uint8_t *dst, const uint8_t *src, size_t bytes, const uint8_t *next)
{
    const size_t head = (size_t)(-(uintptr_t)dst & 63);
    if (bytes < head + 64) {
        memcpy(dst, src, bytes);
        return;
    }
    memcpy(dst, src, head);
    dst += head;
    src += head;
    bytes -= head;
    while (bytes >= 2 * PAGE) {
        const size_t lanes = bytes >= 4 * PAGE ? 4 : 2;
        stream_pages(dst, src, lanes);
        bytes -= lanes * PAGE;
        dst += lanes * PAGE;
        src += lanes * PAGE;
        next += lanes * PAGE;
    }
    for (; bytes >= 64; bytes -= 64, dst += 64, src += 64, next += 64) {
        __builtin_prefetch(next);
        stream_line(dst, src);
    }
    memcpy(dst, src, bytes);
}
#else
void lp_stream_copy(uint8_t *dst, const uint8_t *src, size_t bytes, const uint8_t *next)
{
    (void)next;
    memcpy(dst, src, bytes);
}
#endif

void lp_stream_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

/* ---- runs ---- */

static void copy_run(const lp_piece *p, uint8_t *dst, const uint8_t *src, int64_t bytes, const uint8_t *next)
{
    if (p->streams && bytes >= STREAM_RUN)
        lp_stream_copy(dst, src, (size_t)bytes, next);
    else
        memcpy(dst, src, (size_t)bytes);
}

/* Units are runs. */
static void move_runs(const lp_piece *p, int64_t first, int64_t end)
{
    lp_odometer o;
    lp_odometer_set(&o, p->mode, p->rank, first);
    for (int64_t i = first; i < end; i++) {
        uint8_t *dst = p->dst + o.dst;
        const uint8_t *src = p->src + o.src;
        lp_odometer_next(&o);
        copy_run(p, dst, src, p->run, p->src + o.src);
    }
}

#ifdef __SSE2__
/* Units are runs of whole cache lines, streamed line by line over several of them at once. */
static void stream_runs(const lp_piece *p, int64_t first, int64_t end)
{
    uint8_t *dst[RUNS_AT_ONCE];
    const uint8_t *src[RUNS_AT_ONCE + 1];
    lp_odometer o;
    lp_odometer_set(&o, p->mode, p->rank, first);
    for (int64_t i = first; i < end;) {
        int64_t runs = 0;
        for (; runs < RUNS_AT_ONCE && i < end; runs++, i++, lp_odometer_next(&o)) {
            dst[runs] = p->dst + o.dst;
            src[runs] = p->src + o.src;
        }
        for (int64_t off = 0; off < p->run; off += 64)
            for (int64_t r = 0; r < runs; r++) {
                __builtin_prefetch(src[r] + off + AHEAD);
                stream_line(dst[r] + off, src[r] + off);
            }
    }
}

static bool has_whole_lines(const lp_piece *p)
{
    int64_t strides = p->run;
    for (int32_t m = 0; m < p->rank; m++)
        strides |= p->mode[m].dst_stride;
    return strides % 64 == 0 && (uintptr_t)p->dst % 64 == 0;
}
#endif

/* Units are segments of runs. */
static void move_segments(const lp_piece *p, int64_t first, int64_t end)
{
    lp_odometer o;
    lp_odometer_set(&o, p->mode, p->rank, first / p->segments);
    for (int64_t i = first; i < end; i++) {
        const int64_t off = i % p->segments * p->segment;
        const int64_t bytes = p->run - off < p->segment ? p->run - off : p->segment;
        copy_run(p, p->dst + o.dst + off, p->src + o.src + off, bytes, p->src + o.src);
        if (i % p->segments == p->segments - 1)
            lp_odometer_next(&o);
    }
}

void lp_piece_plan_rows(lp_piece *p)
{
    p->segment = SEGMENT;
    p->segments = (p->run + SEGMENT - 1) / SEGMENT;
    p->units = p->bytes / p->run * p->segments;
    p->move = p->segments == 1 ? move_runs : move_segments;
#ifdef __SSE2__
    if (p->streams && p->run < 4 * PAGE && has_whole_lines(p))
        p->move = stream_runs;
#endif
}

/* ---- fills ---- */

static void fill_bytes(const lp_piece *p, uint8_t *dst, int64_t off, int64_t bytes)
{
    uint8_t block[64];
    for (int i = 0; i < 64; i++) /* off is a multiple of the element */
        block[i] = (uint8_t)(p->fill_bits >> (8 * (i % p->dst_elem)));
    if (p->dst_elem == 1) {
        memset(dst + off, block[0], (size_t)bytes);
        return;
    }
    int64_t done = 0;
    for (; done + 64 <= bytes; done += 64)
        memcpy(dst + off + done, block, 64);
    memcpy(dst + off + done, block, (size_t)(bytes - done));
}

/* Units are segments of runs. */
static void move_fill(const lp_piece *p, int64_t first, int64_t end)
{
    const int64_t run = p->run * p->dst_elem;
    lp_odometer o;
    lp_odometer_set(&o, p->mode, p->rank, first / p->segments);
    for (int64_t i = first; i < end; i++) {
        const int64_t off = i % p->segments * p->segment;
        fill_bytes(p, p->dst + o.dst, off, run - off < p->segment ? run - off : p->segment);
        if (i % p->segments == p->segments - 1)
            lp_odometer_next(&o);
    }
}

void lp_piece_plan_fill(lp_piece *p)
{
    const int64_t run = p->run * p->dst_elem;
    p->segment = SEGMENT;
    p->segments = (run + SEGMENT - 1) / SEGMENT;
    p->units = p->bytes / run * p->segments;
    p->streams = false;
    p->move = move_fill;
}

/* ---- clearing ---- */

typedef struct clearing {
    uint8_t *base;
    int64_t bytes;
} clearing;

static void clear_part(void *context, int64_t index)
{
    const clearing *c = context;
    const int64_t off = index * CLEAR_BYTES, left = c->bytes - off;
    memset(c->base + off, 0, (size_t)(left < CLEAR_BYTES ? left : CLEAR_BYTES));
}

void lp_exec_clear(lp_pool *pool, uint8_t *base, int64_t bytes)
{
    clearing c = {base, bytes};
    lp_pool_run(pool, (bytes + CLEAR_BYTES - 1) / CLEAR_BYTES, clear_part, &c);
}
