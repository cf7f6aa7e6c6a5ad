/* SPDX-License-Identifier: Apache-2.0 */
/* Maps, derives and refusals inside the frames of trace files. */
#include "traces/row_codec.h"

#include "traces/map_private.h"
#include "traces/trace_private.h"

/* A canonical mode has an extent of at least 2 and modes are nested: no more fit into 63 bits. */
enum { MAP_RANK_MAX = 64 };

void lp_column_push(lp_column *c, int64_t value)
{
    if (c->failed || !lp_grow(c->alloc, (void **)&c->value, &c->capacity, c->count + 1, sizeof *c->value)) {
        c->failed = true;
        return;
    }
    c->value[c->count++] = value;
}

void lp_column_flush(lp_column *c, lp_text *out)
{
    if (c->failed)
        out->failed = true;
    else
        lp_pack_column(out, c->value, c->count);
    c->count = 0;
}

bool lp_column_read(lp_column *c, lp_unpacker *in, int64_t count)
{
    /* Room for one at least: an empty column is still an array. */
    if (!lp_grow(c->alloc, (void **)&c->value, &c->capacity, count > 0 ? count : 1, sizeof *c->value))
        return false;
    c->count = count;
    lp_unpack_column(in, c->value, count);
    return true;
}

lp_status lp_unpack_end(const lp_unpacker *in, const char *what, lp_error *err)
{
    if (!in->failed && in->at == in->end)
        return LP_OK;
    return lp_fail(err, LP_E_CORRUPT, in->failed ? "%s is damaged" : "%s holds more than it should", what);
}

/* ---- maps: numbers of a box as differences to the box before, which for regular index maps are almost all equal ----
 */

void lp_pack_map(lp_text *out, const lp_map *map)
{
    static const lp_box none = {0};
    const lp_box *before = &none;
    lp_pack_u64(out, (uint64_t)map->src_elem);
    lp_pack_u64(out, (uint64_t)map->dst_elem);
    lp_pack_u64(out, (uint64_t)map->nbox);
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *box = &map->box[b];
        const bool alike = box->rank == before->rank;
        lp_pack_u64(out, (uint64_t)box->rank);
        lp_pack_i64(out, box->src_off - before->src_off);
        lp_pack_i64(out, box->dst_off - before->dst_off);
        lp_pack_i64(out, box->run - before->run);
        for (int32_t m = 0; m < box->rank; m++) {
            const lp_mode old = alike ? before->mode[m] : (lp_mode){0};
            lp_pack_i64(out, box->mode[m].extent - old.extent);
            lp_pack_i64(out, box->mode[m].src_stride - old.src_stride);
            lp_pack_i64(out, box->mode[m].dst_stride - old.dst_stride);
        }
        before = box;
    }
}

/* before + difference; an overflow fails the unpacker. */
static int64_t step(lp_unpacker *in, int64_t before)
{
    int64_t value;
    if (lp_add(before, lp_unpack_i64(in), &value))
        return value;
    in->failed = true;
    return 0;
}

static bool same_boxes(const lp_map *map, const lp_box *box, int64_t count)
{
    if (map->nbox != count)
        return false;
    for (int64_t b = 0; b < count; b++) {
        const lp_box *a = &map->box[b];
        if (a->src_off != box[b].src_off || a->dst_off != box[b].dst_off || a->run != box[b].run ||
            a->rank != box[b].rank)
            return false;
        if (a->rank > 0 && memcmp(a->mode, box[b].mode, (size_t)a->rank * sizeof *a->mode) != 0)
            return false;
    }
    return true;
}

/* Bytes from a nested box's first to behind its last destination; false: it is not nested, or overflows. */
static bool box_span(const lp_box *box, int64_t dst_elem, int64_t *span)
{
    if (box->run < 1 || !lp_mul(box->run, dst_elem, span))
        return false;
    for (int32_t m = box->rank - 1; m >= 0; m--) {
        int64_t more;
        if (box->mode[m].extent < 2 || box->mode[m].dst_stride < *span ||
            !lp_mul(box->mode[m].extent - 1, box->mode[m].dst_stride, &more) || !lp_add(*span, more, span))
            return false;
    }
    return true;
}

/* What every canonical map is: boxes nested, one behind the other; and fills read nothing. */
static bool are_flat(const lp_box *box, int64_t count, int64_t src_elem, int64_t dst_elem)
{
    int64_t end = INT64_MIN;
    for (int64_t b = 0; b < count; b++) {
        int64_t span;
        if (!box_span(&box[b], dst_elem, &span) || box[b].dst_off < end || !lp_add(box[b].dst_off, span, &end))
            return false;
        for (int32_t m = 0; src_elem == 0 && m < box[b].rank; m++)
            if (box[b].mode[m].src_stride != 0)
                return false;
        if (src_elem == 0 && box[b].src_off != 0)
            return false;
    }
    return true;
}

static lp_status read_boxes(lp_unpacker *in, lp_arena *scratch, int64_t count, lp_box **out, lp_error *err)
{
    static const lp_box none = {0};
    const lp_box *before = &none;
    lp_box *box = lp_arena_get(scratch, (size_t)count * sizeof *box);
    if (box == NULL)
        return lp_fail_memory(err);
    for (int64_t b = 0; b < count && !in->failed; b++) {
        const uint64_t rank = lp_unpack_u64(in);
        if (rank > MAP_RANK_MAX) {
            in->failed = true;
            break;
        }
        lp_mode *mode = lp_arena_get(scratch, (size_t)rank * sizeof *mode);
        if (mode == NULL)
            return lp_fail_memory(err);
        const bool alike = (int32_t)rank == before->rank;
        box[b].rank = (int32_t)rank;
        box[b].src_off = step(in, before->src_off);
        box[b].dst_off = step(in, before->dst_off);
        box[b].run = step(in, before->run);
        for (uint64_t m = 0; m < rank; m++) {
            const lp_mode old = alike ? before->mode[m] : (lp_mode){0};
            mode[m].extent = step(in, old.extent);
            mode[m].src_stride = step(in, old.src_stride);
            mode[m].dst_stride = step(in, old.dst_stride);
        }
        box[b].mode = mode;
        before = &box[b];
    }
    *out = box;
    return LP_OK;
}

/* A map of flat boxes as they stand. That a box is in its own canonical form is checked; that no two boxes could be
 * said as one is not, because that can take long and does no harm: a map is another form of its function then. */
static lp_status build_map(const lp_box *box, int64_t count, int32_t src_elem, int32_t dst_elem, const lp_alloc *alloc,
                           const lp_map **out, lp_error *err)
{
    lp_boxes list;
    lp_status status = LP_OK;
    lp_boxes_init(&list, src_elem, dst_elem, alloc);
    for (int64_t b = 0; b < count; b++) {
        lp_work work;
        lp_work_from_box(&work, &box[b]);
        LP_TRY_GOTO(lp_boxes_add(&list, &work, err), release);
    }
    LP_TRY_GOTO(lp_boxes_build(out, &list, err), release);
    if (!same_boxes(*out, box, count)) {
        lp_map_free(*out, alloc);
        *out = NULL;
    }
release:
    lp_boxes_free(&list);
    return status;
}

static bool is_element(uint64_t bytes)
{
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

lp_status lp_unpack_map(lp_unpacker *in, const lp_alloc *alloc, const lp_map **out, lp_error *err)
{
    lp_status status;
    lp_box *box = NULL;
    lp_arena scratch;
    const uint64_t src_elem = lp_unpack_u64(in), dst_elem = lp_unpack_u64(in), count = lp_unpack_u64(in);
    *out = NULL;
    if (in->failed || (src_elem != 0 && !is_element(src_elem)) || !is_element(dst_elem) || count == 0 ||
        count > LP_MAP_BOXES_MAX || count > (uint64_t)(in->end - in->at)) {
        in->failed = true;
        return LP_OK;
    }
    lp_arena_init(&scratch, alloc);
    LP_TRY_GOTO(read_boxes(in, &scratch, (int64_t)count, &box, err), free_scratch);
    if (!in->failed && are_flat(box, (int64_t)count, (int64_t)src_elem, (int64_t)dst_elem))
        status = build_map(box, (int64_t)count, (int32_t)src_elem, (int32_t)dst_elem, alloc, out, err);
    if (status != LP_E_MEMORY && *out == NULL) {
        status = LP_OK;
        in->failed = true;
    }
free_scratch:
    lp_arena_free(&scratch);
    return status;
}

/* A map that lives in an arena. */
static lp_status unpack_arena_map(lp_unpacker *in, lp_arena *arena, const lp_map **out, lp_error *err)
{
    const lp_map *map;
    *out = NULL;
    LP_TRY(lp_unpack_map(in, arena->alloc, &map, err));
    if (in->failed)
        return LP_OK;
    *out = lp_arena_map(arena, map);
    lp_map_free(map, arena->alloc);
    return *out != NULL ? LP_OK : lp_fail_memory(err);
}

static lp_status unpack_arena_text(lp_unpacker *in, lp_arena *arena, const char **out, lp_error *err)
{
    bool out_of_memory = false;
    *out = lp_unpack_text_copy(in, arena, &out_of_memory);
    return out_of_memory ? lp_fail_memory(err) : LP_OK;
}

static uint64_t unpack_below(lp_unpacker *in, uint64_t limit)
{
    const uint64_t value = lp_unpack_u64(in);
    if (value < limit)
        return value;
    in->failed = true;
    return 0;
}

static uint32_t unpack_u32(lp_unpacker *in)
{
    return (uint32_t)unpack_below(in, (uint64_t)UINT32_MAX + 1);
}

/* Indices of rows, shifted by one so that LP_NONE and LP_NAME_BEGIN (both UINT32_MAX) become 0. */
static void pack_index(lp_text *out, uint32_t index)
{
    lp_pack_u64(out, (uint32_t)(index + 1));
}

static uint32_t unpack_index(lp_unpacker *in)
{
    return unpack_u32(in) - 1;
}

/* ---- derives ---- */

void lp_pack_derives(lp_text *out, const lp_derive *derive, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const lp_derive *d = &derive[i];
        pack_index(out, d->dest);
        lp_pack_text(out, d->error_text);
        lp_pack_u64(out, d->nnode);
        lp_pack_u64(out, d->ninput);
        for (uint32_t n = 0; n < d->nnode; n++) {
            const lp_node *node = &d->node[n];
            lp_pack_u64(out, node->op);
            lp_pack_u64(out, node->dtype);
            for (int a = 0; a < 3; a++)
                lp_pack_u64(out, node->arg[a]);
            lp_pack_u64(out, node->bits);
            lp_pack_i64(out, node->count);
        }
        for (uint32_t n = 0; n < d->ninput; n++) {
            const lp_derive_input *input = &d->input[n];
            lp_pack_u64(out, input->staged);
            lp_pack_u64(out, input->index);
            lp_pack_u64(out, input->dtype);
            lp_pack_i64(out, input->count);
            lp_pack_map(out, input->map);
        }
        lp_pack_u64(out, d->map != NULL);
        if (d->map != NULL)
            lp_pack_map(out, d->map);
    }
}

static void unpack_node(lp_unpacker *in, lp_node *node)
{
    node->op = (uint16_t)unpack_below(in, UINT16_MAX);
    node->dtype = (uint16_t)unpack_below(in, LP_DTYPE_COUNT);
    for (int a = 0; a < 3; a++)
        node->arg[a] = unpack_u32(in);
    node->bits = lp_unpack_u64(in);
    node->count = lp_unpack_i64(in);
}

static lp_status unpack_derive(lp_unpacker *in, lp_arena *arena, lp_derive *d, lp_error *err)
{
    d->provenance = LP_NONE;
    d->dest = unpack_index(in);
    LP_TRY(unpack_arena_text(in, arena, &d->error_text, err));
    d->nnode = unpack_u32(in);
    d->ninput = unpack_u32(in);
    /* Every node and input takes at least one byte, so these counts cannot outgrow the frame. */
    if (in->failed || d->nnode > in->end - in->at || d->ninput > in->end - in->at) {
        in->failed = true;
        return LP_OK;
    }
    lp_node *node = lp_arena_get(arena, d->nnode * sizeof *node);
    lp_derive_input *input = lp_arena_get(arena, d->ninput * sizeof *input);
    if (node == NULL || input == NULL)
        return lp_fail_memory(err);
    memset(input, 0, d->ninput * sizeof *input);
    d->node = node;
    d->input = input;
    for (uint32_t n = 0; n < d->nnode && !in->failed; n++)
        unpack_node(in, &node[n]);
    for (uint32_t n = 0; n < d->ninput && !in->failed; n++) {
        input[n].staged = unpack_below(in, 2) != 0;
        input[n].index = unpack_u32(in);
        input[n].dtype = (lp_dtype)unpack_below(in, LP_DTYPE_COUNT);
        input[n].count = lp_unpack_i64(in);
        LP_TRY(unpack_arena_map(in, arena, &input[n].map, err));
    }
    return unpack_below(in, 2) != 0 ? unpack_arena_map(in, arena, &d->map, err) : LP_OK;
}

lp_status lp_unpack_derives(lp_unpacker *in, int64_t count, lp_arena *arena, lp_derive **out, lp_error *err)
{
    if (count > in->end - in->at) {
        in->failed = true;
        return LP_OK;
    }
    lp_derive *derive = lp_arena_get(arena, (size_t)count * sizeof *derive);
    if (derive == NULL)
        return lp_fail_memory(err);
    memset(derive, 0, (size_t)count * sizeof *derive);
    for (int64_t i = 0; i < count && !in->failed; i++)
        LP_TRY(unpack_derive(in, arena, &derive[i], err));
    *out = derive;
    return LP_OK;
}

/* ---- refusals ---- */

void lp_pack_refusals(lp_text *out, const lp_refusal *refusal, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        pack_index(out, refusal[i].name);
        pack_index(out, refusal[i].dest);
        lp_pack_text(out, refusal[i].operation);
        lp_pack_text(out, refusal[i].reason);
        lp_pack_u64(out, refusal[i].map != NULL);
        if (refusal[i].map != NULL)
            lp_pack_map(out, refusal[i].map);
    }
}

lp_status lp_unpack_refusals(lp_unpacker *in, int64_t count, lp_arena *arena, lp_refusal **out, lp_error *err)
{
    if (count > in->end - in->at) {
        in->failed = true;
        return LP_OK;
    }
    lp_refusal *refusal = lp_arena_get(arena, (size_t)count * sizeof *refusal);
    if (refusal == NULL)
        return lp_fail_memory(err);
    memset(refusal, 0, (size_t)count * sizeof *refusal);
    for (int64_t i = 0; i < count && !in->failed; i++) {
        refusal[i].provenance = LP_NONE;
        refusal[i].name = unpack_index(in);
        refusal[i].dest = unpack_index(in);
        LP_TRY(unpack_arena_text(in, arena, &refusal[i].operation, err));
        LP_TRY(unpack_arena_text(in, arena, &refusal[i].reason, err));
        if (unpack_below(in, 2) != 0)
            LP_TRY(unpack_arena_map(in, arena, &refusal[i].map, err));
    }
    *out = refusal;
    return LP_OK;
}
