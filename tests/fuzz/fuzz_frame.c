/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a frame of a trace file, or as what stands in one: the first byte says as what, the second how many
 * rows. What is accepted as a column or as rows packs again to something that reads the same.
 */
#include "tests/fuzz/demand.h"
#include "traces/row_codec.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { AS_FRAME, AS_COLUMN, AS_NAMES, AS_MAP, AS_DESTINATIONS, AS_DERIVES, AS_REFUSALS, AS_CATALOGUE, AS_COUNT };

static void as_frame(const uint8_t *data, size_t bytes)
{
    lp_codec codec = {0};
    int64_t budget = 1 << 20, raw_bytes;
    uint8_t *raw = NULL;
    lp_error err = {0};
    const lp_status status =
        lp_frame_unpack(&codec, NULL, data, (int64_t)bytes, &budget, "the frame", &raw, &raw_bytes, &err);
    if (status != LP_OK)
        demand_error(status, &err);
    else
        demand(raw_bytes + budget == 1 << 20);
    lp_release(NULL, raw);
    lp_codec_free(&codec);
}

static void as_column(lp_unpacker in, int64_t count)
{
    int64_t value[256], again[256];
    lp_text text;
    lp_unpack_column(&in, value, count);
    if (in.failed || count == 0)
        return;
    lp_text_init(&text, NULL);
    lp_pack_column(&text, value, count);
    in = (lp_unpacker){.at = (const uint8_t *)text.data, .end = (const uint8_t *)text.data + text.bytes};
    lp_unpack_column(&in, again, count);
    demand(!in.failed && in.at == in.end);
    demand(memcmp(value, again, (size_t)count * sizeof *value) == 0);
    lp_text_free(&text);
}

static void as_map(lp_unpacker in)
{
    const lp_map *map = NULL, *again = NULL;
    lp_error err = {0};
    lp_text text;
    demand(lp_unpack_map(&in, NULL, &map, &err) == LP_OK);
    if (in.failed)
        return;
    lp_text_init(&text, NULL);
    lp_pack_map(&text, map);
    in = (lp_unpacker){.at = (const uint8_t *)text.data, .end = (const uint8_t *)text.data + text.bytes};
    demand(lp_unpack_map(&in, NULL, &again, &err) == LP_OK);
    demand(!in.failed && in.at == in.end);
    demand(lp_map_equal(map, again));
    lp_map_free(map, NULL);
    lp_map_free(again, NULL);
    lp_text_free(&text);
}

static void as_catalogue(lp_unpacker in, int64_t count)
{
    lp_place place[256];
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    int64_t budget = 1 << 20;
    bool fits;
    demand(lp_checkpoint_new(&c, NULL, &err) == LP_OK);
    demand(lp_checkpoint_add_file(c, &(lp_checkpoint_file){.path = "a", .size_bytes = 1000}, &err) == LP_OK);
    const lp_status status = lp_unpack_catalogue(&in, count, 1, &budget, c, place, &err);
    if (status == LP_OK && !in.failed)
        demand(lp_catalogue_offsets(c, place, &fits, &err) == LP_OK);
    lp_checkpoint_close(c);
}

static void as_rows(int what, lp_unpacker in, int64_t count)
{
    lp_arena arena;
    lp_error err = {0};
    lp_destination *dest = NULL;
    lp_derive *derive = NULL;
    lp_refusal *refusal = NULL;
    lp_text text;
    int64_t budget = 1 << 20;
    lp_text_init(&text, NULL);
    lp_arena_init(&arena, NULL);
    if (what == AS_DESTINATIONS) {
        demand(lp_unpack_destinations(&in, count, &budget, &arena, &dest, &err) == LP_OK);
        if (!in.failed)
            demand(lp_pack_destinations(&text, dest, count, NULL, &err) == LP_OK);
    } else if (what == AS_DERIVES) {
        demand(lp_unpack_derives(&in, count, &arena, &derive, &err) == LP_OK);
        if (!in.failed)
            lp_pack_derives(&text, derive, count);
    } else {
        demand(lp_unpack_refusals(&in, count, &arena, &refusal, &err) == LP_OK);
        if (!in.failed)
            lp_pack_refusals(&text, refusal, count);
    }
    demand(!text.failed);
    lp_text_free(&text);
    lp_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    const int what = data[0] % AS_COUNT;
    const int64_t count = data[1];
    const lp_unpacker in = {.at = data + 2, .end = data + bytes};
    if (what == AS_FRAME) {
        as_frame(data + 2, bytes - 2);
    } else if (what == AS_COLUMN) {
        as_column(in, count);
    } else if (what == AS_NAMES) {
        const char *name[256];
        lp_unpacker at = in;
        lp_arena arena;
        lp_error err = {0};
        int64_t budget = 1 << 20;
        lp_arena_init(&arena, NULL);
        demand(lp_unpack_names(&at, name, count, true, &budget, &arena, &err) == LP_OK);
        for (int64_t i = 1; i < count && !at.failed; i++)
            demand(strcmp(name[i - 1], name[i]) < 0);
        lp_arena_free(&arena);
    } else if (what == AS_MAP) {
        as_map(in);
    } else if (what == AS_CATALOGUE) {
        as_catalogue(in, count);
    } else {
        as_rows(what, in, count);
    }
    return 0;
}
