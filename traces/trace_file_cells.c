/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lengths that the pages of a trace file state for their rows, judged before SQLite adds them up: it computes the
 * number of overflow pages of a row in 32 bits, and calls a length near 2^32 a lack of memory.
 */
#include "traces/trace_file.h"

enum { PAGE = LP_TRACE_PAGE_BYTES, FILE_HEAD = 100, LEAF_HEAD = 8, INTERIOR_HEAD = 12 };
enum { INTERIOR_INDEX = 0x02, LEAF_INDEX = 0x0a, LEAF_TABLE = 0x0d }; /* the pages whose cells have a payload */

/* An SQLite varint of at most nine bytes, as far as the page goes; the ninth has eight bits. */
static uint64_t varint(const uint8_t *at, const uint8_t *end)
{
    uint64_t value = 0;
    for (int i = 0; i < 9 && at < end; i++, at++) {
        value = i < 8 ? value << 7 | (*at & 0x7f) : value << 8 | *at;
        if ((*at & 0x80) == 0)
            break;
    }
    return value;
}

/* Overflow pages begin with a page number below 2^24, so with a zero, and pass. */
static bool page_is_sound(const uint8_t *page, int head, int64_t file_bytes)
{
    const uint8_t *end = page + PAGE, type = page[head];
    if (type != INTERIOR_INDEX && type != LEAF_INDEX && type != LEAF_TABLE)
        return true;
    const int cells = page[head + 3] << 8 | page[head + 4];
    const uint8_t *pointer = page + head + (type == INTERIOR_INDEX ? INTERIOR_HEAD : LEAF_HEAD);
    for (int i = 0; i < cells && pointer + 2 <= end; i++, pointer += 2) {
        const int at = (pointer[0] << 8 | pointer[1]) + (type == INTERIOR_INDEX ? 4 : 0);
        if (at < PAGE && varint(page + at, end) > (uint64_t)file_bytes)
            return false;
    }
    return true;
}

lp_status lp_trace_check_cells(const uint8_t *image, int64_t bytes, const char *path, lp_error *err)
{
    for (int64_t off = 0; off + PAGE <= bytes; off += PAGE)
        if (!page_is_sound(image + off, off == 0 ? FILE_HEAD : 0, bytes))
            return lp_fail_at(err, LP_E_CORRUPT, path, off, "'%s' is damaged: page %lld has a row longer than the file",
                              path, (long long)(off / PAGE + 1));
    return LP_OK;
}
