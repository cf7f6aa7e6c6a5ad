/* SPDX-License-Identifier: Apache-2.0 */
/* Where frames of changes end, and how they are read. */
#include "replayer/sync_delta.h"

#include "replayer/transport_wire.h"

enum { TAIL = 8, ENTRY = 8, WINDOWS = 16 /* in a frame that is full */ };
enum { FRAMES = 16 /* of an epoch, where elements are bytes */, LEAST = 16 /* stretches */ };

lp_delta_rule lp_delta_rule_of(int64_t bucket, int64_t share)
{
    const int64_t most = LP_CHANGE_STRETCH, room = bucket - TAIL - ENTRY - LP_CHANGE_HEAD - 7;
    lp_delta_rule r = {.bucket = bucket < 1 << 30 ? bucket : 1 << 30, .stretch = (room < most ? room : most) / 64 * 64};
    const int64_t one = lp_delta_room(r.stretch);
    r.window = r.bucket / WINDOWS > one ? r.bucket / WINDOWS : one;
    const int64_t part = share / FRAMES > r.bucket ? share / FRAMES : r.bucket;
    r.reach = part / lp_delta_most(&r, 1) > LEAST ? part / lp_delta_most(&r, 1) : LEAST;
    return r;
}

static void put_entry(uint8_t *out, uint32_t a, uint32_t b)
{
    lp_wire_put_u32(out, a);
    lp_wire_put_u32(out + 4, b);
}

void lp_delta_put_table(uint8_t *out, const lp_change_place *place, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        put_entry(out + (size_t)ENTRY * i, place[i].begin, place[i].bytes);
    put_entry(out + (size_t)ENTRY * count, first, count);
}

static lp_status corrupt(lp_error *err)
{
    return lp_fail(err, LP_E_CORRUPT, "changes that came are damaged: their places do not fit");
}

lp_status lp_delta_get_frame(const uint8_t *data, int64_t bytes, const lp_checkpoint *catalogue, lp_change_write write,
                             void *context, lp_error *err)
{
    const int64_t count = bytes < TAIL ? -1 : (int64_t)lp_wire_get_u32(data + bytes - 4);
    if (count < 0 || count > (bytes - TAIL) / ENTRY)
        return corrupt(err);
    const int64_t records = bytes - TAIL - ENTRY * count;
    int64_t all = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = lp_wire_get_u32(data + records + ENTRY * i),
                      size = lp_wire_get_u32(data + records + ENTRY * i + 4);
        int64_t used = 0;
        if (size == 0)
            continue;
        if (begin > records || size > records - begin)
            return corrupt(err);
        LP_TRY(lp_change_get(data + begin, size, catalogue, write, context, &used, err));
        if (used != size)
            return corrupt(err);
        all += size;
    }
    return all == records ? LP_OK : corrupt(err);
}
