/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps in the text form of traces. A box is its modes, outermost first, and its run: "12x1024:2048,512" is 12 runs of
 * 512 elements, 1024 bytes apart in the source and 2048 in the destination. "64+128:" in front of it is where it starts
 * in source and destination, where that is not 0+0. "2>4|" in front of a map are its element sizes where they are not
 * 1 and 1.
 */
#include "traces/dump_text.h"

#include <inttypes.h>

enum { BOX_RANK_MAX = 64 };

static void dump_box(lp_text *out, const lp_box *box)
{
    if (box->src_off != 0 || box->dst_off != 0)
        lp_text_format(out, "%" PRId64 "+%" PRId64 ":", box->src_off, box->dst_off);
    for (int32_t m = 0; m < box->rank; m++)
        lp_text_format(out, "%" PRId64 "x%" PRId64 ":%" PRId64 ",", box->mode[m].extent, box->mode[m].src_stride,
                       box->mode[m].dst_stride);
    lp_text_format(out, "%" PRId64, box->run);
}

uint64_t lp_dump_map_id(const lp_map *map)
{
    uint8_t digest[32];
    uint64_t id = 0;
    lp_map_digest(map, digest);
    for (int i = 0; i < 8; i++)
        id = id << 8 | digest[i];
    return id;
}

void lp_dump_map_ref(lp_text *out, const lp_map *map)
{
    if (map->nbox != 1) {
        lp_text_format(out, "@%016" PRIx64, lp_dump_map_id(map));
        return;
    }
    if (map->src_elem != 1 || map->dst_elem != 1)
        lp_text_format(out, "%" PRId32 ">%" PRId32 "|", map->src_elem, map->dst_elem);
    dump_box(out, &map->box[0]);
}

void lp_dump_map_boxes(lp_text *out, const lp_map *map)
{
    lp_text_format(out, "%" PRId32 ">%" PRId32, map->src_elem, map->dst_elem);
    for (int32_t b = 0; b < map->nbox; b++) {
        lp_text_add(out, " ", 1);
        dump_box(out, &map->box[b]);
    }
}

/* ---- reading ---- */

void lp_map_texts_init(lp_map_texts *m, const lp_alloc *alloc)
{
    *m = (lp_map_texts){.alloc = alloc};
    lp_strings_init(&m->text, alloc);
}

void lp_map_texts_free(lp_map_texts *m)
{
    for (int64_t i = 0; i < m->text.count && i < m->capacity; i++)
        lp_map_free(m->map[i], m->alloc);
    lp_release(m->alloc, m->map);
    lp_strings_free(&m->text);
    *m = (lp_map_texts){.alloc = m->alloc};
}

static lp_status read_box(lp_line *l, lp_box *box)
{
    lp_mode mode[BOX_RANK_MAX];
    int64_t value;
    *box = (lp_box){0};
    LP_TRY(lp_line_integer(l, INT64_MIN, INT64_MAX, &value));
    if (lp_line_take(l, "+")) {
        box->src_off = value;
        LP_TRY(lp_line_integer(l, INT64_MIN, INT64_MAX, &box->dst_off));
        LP_TRY(lp_line_expect(l, ":"));
        LP_TRY(lp_line_integer(l, 1, INT64_MAX, &value));
    }
    while (lp_line_take(l, "x")) {
        if (box->rank >= BOX_RANK_MAX)
            return lp_line_fail(l, "a box has more than %d modes", BOX_RANK_MAX);
        lp_mode *at = &mode[box->rank++];
        at->extent = value;
        LP_TRY(lp_line_integer(l, INT64_MIN, INT64_MAX, &at->src_stride));
        LP_TRY(lp_line_expect(l, ":"));
        LP_TRY(lp_line_integer(l, INT64_MIN, INT64_MAX, &at->dst_stride));
        LP_TRY(lp_line_expect(l, ","));
        LP_TRY(lp_line_integer(l, 1, INT64_MAX, &value));
    }
    box->run = value;
    box->mode = lp_arena_copy(l->arena, mode, (size_t)box->rank * sizeof *mode);
    return box->mode == NULL ? lp_fail_memory(l->err) : LP_OK;
}

/* Remembers `map` (which it takes over, also on failure) under a text. */
static lp_status remember(lp_line *l, lp_map_texts *m, const char *text, size_t bytes, const lp_map *map)
{
    const int64_t count = m->text.count;
    if (!lp_grow(m->alloc, (void **)&m->map, &m->capacity, count + 1, sizeof *m->map)) {
        lp_map_free(map, m->alloc);
        return lp_fail_memory(l->err);
    }
    m->map[count] = map;
    const int64_t number = lp_strings_add(&m->text, text, bytes);
    if (number == count)
        return LP_OK;
    lp_map_free(map, m->alloc);
    return number < 0 ? lp_fail_memory(l->err) : lp_line_fail(l, "map '%.*s' is given twice", (int)bytes, text);
}

static lp_status make_map(lp_line *l, const lp_alloc *alloc, int64_t src_elem, int64_t dst_elem, int32_t count,
                          const lp_box *box, const lp_map **map)
{
    lp_error inner = {0};
    const lp_status status = lp_map_from_boxes(map, (int32_t)src_elem, (int32_t)dst_elem, count, box, alloc, &inner);
    if (status == LP_E_MEMORY)
        return lp_fail_memory(l->err);
    if (status != LP_OK)
        return lp_line_fail(l, "no legal map: %s", inner.text);
    if ((*map)->nbox > 0)
        return LP_OK;
    lp_map_free(*map, alloc);
    return lp_line_fail(l, "a map without bytes");
}

static lp_status read_inline(lp_line *l, lp_map_texts *m, const lp_map **map)
{
    const char *start = l->at, *bar = start;
    int64_t src_elem = 1, dst_elem = 1;
    lp_box box;
    while (bar < l->end && *bar != '|' && *bar != ' ')
        bar++;
    if (bar < l->end && *bar == '|') {
        LP_TRY(lp_line_integer(l, 0, 8, &src_elem));
        LP_TRY(lp_line_expect(l, ">"));
        LP_TRY(lp_line_integer(l, 1, 8, &dst_elem));
        LP_TRY(lp_line_expect(l, "|"));
    }
    LP_TRY(read_box(l, &box));
    LP_TRY(make_map(l, m->alloc, src_elem, dst_elem, 1, &box, map));
    return remember(l, m, start, (size_t)(l->at - start), *map);
}

lp_status lp_line_map_ref(lp_line *l, lp_map_texts *m, const lp_map **map)
{
    const char *end = l->at;
    while (end < l->end && *end != ' ' && *end != ';' && *end != ')')
        end++;
    const int64_t known = lp_strings_find(&m->text, l->at, (size_t)(end - l->at));
    if (known >= 0) {
        l->at = end;
        *map = m->map[known];
        return LP_OK;
    }
    if (l->at < l->end && *l->at == '@')
        return lp_line_fail(l, "map '%.*s' is not given before its use", (int)(end - l->at < 24 ? end - l->at : 24),
                            l->at);
    return read_inline(l, m, map);
}

lp_status lp_line_map_definition(lp_line *l, lp_map_texts *m)
{
    const char *id;
    size_t id_bytes;
    int64_t src_elem, dst_elem, capacity = 0;
    int32_t count = 0;
    lp_box *box = NULL;
    const lp_map *map = NULL;
    lp_status status;
    LP_TRY(lp_line_word(l, &id, &id_bytes));
    if (id[0] != '@' || id_bytes != 17)
        return lp_line_fail(l, "the name of a map is @ and 16 digits");
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_line_integer(l, 0, 8, &src_elem));
    LP_TRY(lp_line_expect(l, ">"));
    LP_TRY(lp_line_integer(l, 1, 8, &dst_elem));
    while (lp_line_take(l, " ")) {
        if (count >= LP_MAP_BOXES_MAX) {
            status = lp_line_fail(l, "a map of more than %d boxes", LP_MAP_BOXES_MAX);
            goto release;
        }
        if (!lp_grow(m->alloc, (void **)&box, &capacity, count + 1, sizeof *box)) {
            status = lp_fail_memory(l->err);
            goto release;
        }
        LP_TRY_GOTO(read_box(l, &box[count++]), release);
    }
    LP_TRY_GOTO(make_map(l, m->alloc, src_elem, dst_elem, count, box, &map), release);
    status = remember(l, m, id, id_bytes, map);
release:
    lp_release(m->alloc, box);
    return status;
}
