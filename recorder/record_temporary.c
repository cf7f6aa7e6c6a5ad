/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporaries: the dense buffers that a loader would allocate for clone, cat and the like. One is a list of pieces,
 * each saying which of its bytes come from which checkpoint tensor. Nothing is ever stored in it.
 */
#include "recorder/record_private.h"

int64_t rec_new_temporary(lp_recorder *r, int64_t bytes)
{
    if (r->temporary_count >= LP_NONE || !lp_grow(r->platform.alloc, (void **)&r->temporary, &r->temporary_capacity,
                                                  r->temporary_count + 1, sizeof *r->temporary)) {
        rec_no_memory(r);
        return -1;
    }
    r->temporary[r->temporary_count] = (rec_temporary){.bytes = bytes, .shadow_of = LP_NONE};
    return r->temporary_count++;
}

static bool intervals_meet(const lp_map *a, const lp_map *b)
{
    return a->dst_lo < b->dst_hi && b->dst_lo < a->dst_hi;
}

/* Takes the bytes of `cut` out of the earlier pieces; pieces that lose everything disappear. */
static lp_status trim_pieces(lp_recorder *r, rec_temporary *t, const lp_map *cut, lp_error *err)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < t->count; i++) {
        rec_piece piece = t->piece[i];
        if (intervals_meet(piece.map, cut)) {
            const lp_map *rest = NULL;
            LP_TRY(lp_map_subtract(&rest, piece.map, cut, 0, r->platform.alloc, err));
            LP_TRY(rec_keep(r, rest, &piece.map, err));
        }
        if (piece.map->nbox > 0)
            t->piece[kept++] = piece;
    }
    t->count = kept;
    return LP_OK;
}

lp_status rec_write_piece(lp_recorder *r, int64_t temporary, const rec_piece *piece, lp_error *err)
{
    rec_temporary *t = &r->temporary[temporary];
    if (!t->is_disjoint)
        LP_TRY(trim_pieces(r, t, piece->map, err));
    if (t->count >= REC_PIECES_MAX)
        return lp_fail(err, LP_E_LIMIT, "a temporary of more than %d pieces", REC_PIECES_MAX);
    if (!lp_grow(r->platform.alloc, (void **)&t->piece, &t->capacity, t->count + 1, sizeof *t->piece))
        return lp_fail_memory(err);
    t->piece[t->count++] = *piece;
    return LP_OK;
}

/* One box of `bytes` bytes, each from the same place. */
static lp_status identity_map(lp_recorder *r, int64_t bytes, const lp_map **out, lp_error *err)
{
    const lp_box box = {.run = bytes};
    const lp_map *map = NULL;
    LP_TRY(lp_map_from_boxes(&map, 1, 1, bytes > 0 ? 1 : 0, &box, r->platform.alloc, err));
    return rec_keep(r, map, out, err);
}

lp_status rec_hold_value(lp_recorder *r, int64_t temporary, uint32_t node, lp_error *err)
{
    rec_piece whole = {.name = node, .is_value = true};
    LP_TRY(identity_map(r, r->temporary[temporary].bytes, &whole.map, err));
    return rec_write_piece(r, temporary, &whole, err);
}

bool rec_mark_name(lp_recorder *r, uint32_t name, uint8_t flag)
{
    if (r->name_flags[name] == 0) {
        if (!lp_grow(r->platform.alloc, (void **)&r->marked, &r->marked_capacity, r->marked_count + 1,
                     sizeof *r->marked))
            return false;
        r->marked[r->marked_count++] = name;
    }
    r->name_flags[name] |= flag;
    return true;
}

int64_t rec_shadow(lp_recorder *r, uint32_t name, bool make)
{
    if (r->name_flags[name] & REC_NAME_SHADOWED) {
        for (int64_t i = 0; i < r->temporary_count; i++) {
            if (r->temporary[i].shadow_of == name)
                return i;
        }
    }
    if (!make)
        return -1;
    const int64_t bytes = lp_checkpoint_at(r->checkpoint, name)->bytes;
    const int64_t index = rec_new_temporary(r, bytes);
    if (index < 0)
        return -1;
    lp_error err;
    rec_piece whole = {.name = name};
    if (!rec_mark_name(r, name, REC_NAME_SHADOWED) || identity_map(r, bytes, &whole.map, &err) != LP_OK ||
        (bytes > 0 && rec_write_piece(r, index, &whole, &err) != LP_OK)) {
        rec_no_memory(r);
        return -1;
    }
    r->temporary[index].shadow_of = name;
    return index;
}

/* Writes are listed newest first; pieces must be put in oldest first, so that later ones trim earlier ones. */
static lp_status replay_writes(lp_recorder *r, int64_t temporary, uint32_t dest, lp_error *err)
{
    uint32_t *order = NULL;
    int64_t count = 0, capacity = 0;
    lp_status status = LP_OK;
    for (uint32_t w = r->dest[dest].last_write; w != LP_NONE; w = r->write[w].previous) {
        if (r->write[w].kind != REC_BYTES)
            continue;
        if (!lp_grow(r->platform.alloc, (void **)&order, &capacity, count + 1, sizeof *order)) {
            status = lp_fail_memory(err);
            goto done;
        }
        order[count++] = w;
    }
    while (count > 0) {
        const rec_write *w = &r->write[order[--count]];
        rec_piece piece = {.fill_bits = w->fill_bits,
                           .name = w->name,
                           .src_dtype = w->src_dtype,
                           .dst_dtype = w->dst_dtype,
                           .is_fill = w->map->src_elem == 0};
        const lp_map *moved = NULL;
        LP_TRY_GOTO(lp_map_shift(&moved, w->map, w->src_off, w->dst_off, r->platform.alloc, err), done);
        piece.map = rec_own(r, moved);
        if (piece.map == NULL) {
            status = lp_fail_memory(err);
            goto done;
        }
        LP_TRY_GOTO(rec_write_piece(r, temporary, &piece, err), done);
    }
done:
    lp_release(r->platform.alloc, order);
    return status;
}

int64_t rec_written(lp_recorder *r, uint32_t dest, bool *computed)
{
    *computed = false;
    for (uint32_t w = r->dest[dest].last_write; w != LP_NONE; w = r->write[w].previous)
        *computed = *computed || r->write[w].kind == REC_DERIVE;
    const int64_t index = rec_new_temporary(r, r->dest[dest].bytes);
    if (index < 0)
        return -1;
    lp_error err;
    if (replay_writes(r, index, dest, &err) != LP_OK) {
        rec_misuse_error(__FILE__, __LINE__, r, &err);
        return -1;
    }
    return index;
}
