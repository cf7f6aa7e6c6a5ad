/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Derives: where expressions end. Also the expression that is computed in place: "copy, then x = -exp(x)" reads the
 * region that it writes. Replayed as it stands it would read its own last output at the next load, so the region is
 * replaced by what the copy before had put there, and the two become one derive of the checkpoint tensor.
 */
#include "recorder/record_private.h"

/* ---- expressions in a row ---- */

/* The nodes below a root, arguments before their users. r->value_number holds each one's position + 1 meanwhile. */
typedef struct flattening {
    uint32_t *order, *stack;
    int64_t count, order_capacity;
    int64_t depth, stack_capacity;
    int64_t inputs;
} flattening;

static int arity_of(const lp_node *node)
{
    return node->op == LP_OP_INPUT ? 0 : lp_op_arity((lp_op)node->op);
}

static bool push(lp_recorder *r, flattening *f, uint32_t node)
{
    if (!lp_grow(r->platform.alloc, (void **)&f->stack, &f->stack_capacity, f->depth + 1, sizeof *f->stack))
        return false;
    f->stack[f->depth++] = node;
    return true;
}

/* Pushes the arguments of a node that are not numbered yet; *ready: there were none. */
static bool push_arguments(lp_recorder *r, flattening *f, uint32_t at, bool *ready)
{
    const lp_node *node = &r->value[at].node;
    *ready = true;
    for (int a = arity_of(node) - 1; a >= 0; a--) {
        if (r->value_number[node->arg[a]] != 0)
            continue;
        *ready = false;
        if (!push(r, f, node->arg[a]))
            return false;
    }
    return true;
}

static bool visit(lp_recorder *r, flattening *f, uint32_t root)
{
    if (!lp_grow(r->platform.alloc, (void **)&r->value_number, &r->value_number_capacity, r->value_count,
                 sizeof *r->value_number))
        return false;
    memset(r->value_number + r->value_number_count, 0,
           (size_t)(r->value_number_capacity - r->value_number_count) * sizeof *r->value_number);
    r->value_number_count = r->value_number_capacity;
    if (!push(r, f, root))
        return false;
    while (f->depth > 0) {
        const uint32_t at = f->stack[f->depth - 1];
        bool ready = true;
        if (r->value_number[at] == 0 && !push_arguments(r, f, at, &ready))
            return false;
        if (!ready)
            continue;
        f->depth--;
        if (r->value_number[at] != 0)
            continue;
        if (!lp_grow(r->platform.alloc, (void **)&f->order, &f->order_capacity, f->count + 1, sizeof *f->order))
            return false;
        f->inputs += r->value[at].node.op == LP_OP_INPUT;
        f->order[f->count++] = at;
        r->value_number[at] = (uint32_t)f->count;
    }
    return true;
}

static void end_visit(lp_recorder *r, flattening *f)
{
    for (int64_t i = 0; i < f->count; i++)
        r->value_number[f->order[i]] = 0;
    lp_release(r->platform.alloc, f->order);
    lp_release(r->platform.alloc, f->stack);
}

lp_status rec_flatten_value(lp_recorder *r, uint32_t root, lp_derive *out, lp_error *err)
{
    flattening f = {0};
    lp_status status = LP_OK;
    lp_node *node = NULL;
    lp_derive_input *input = NULL;
    if (visit(r, &f, root)) {
        node = lp_arena_get(&r->arena, (size_t)f.count * sizeof *node);
        input = lp_arena_get(&r->arena, (size_t)f.inputs * sizeof *input);
    }
    if (node == NULL || input == NULL) {
        status = lp_fail_memory(err);
        goto done;
    }
    uint32_t inputs = 0;
    for (int64_t i = 0; i < f.count; i++) {
        const rec_value *v = &r->value[f.order[i]];
        node[i] = v->node;
        for (int a = 0; a < arity_of(&v->node); a++)
            node[i].arg[a] = r->value_number[v->node.arg[a]] - 1;
        if (v->node.op != LP_OP_INPUT)
            continue;
        node[i].arg[0] = inputs;
        input[inputs++] = (lp_derive_input){
            .staged = v->staged, .index = v->index, .dtype = v->dtype, .count = v->node.count, .map = v->map};
    }
    *out = (lp_derive){.dest = out->dest,
                       .nnode = (uint32_t)f.count,
                       .ninput = inputs,
                       .node = node,
                       .input = input,
                       .map = out->map,
                       .error_text = out->error_text,
                       .provenance = out->provenance};
done:
    end_visit(r, &f);
    return status;
}

/* ---- in place ---- */

static bool is_identity(const lp_map *map, int64_t bytes)
{
    return map->nbox == 1 && map->box[0].rank == 0 && map->box[0].src_off == 0 && map->box[0].dst_off == 0 &&
           map->box[0].run == bytes;
}

/* Whether two maps share a destination byte. */
static lp_status meets(lp_recorder *r, const lp_map *a, const lp_map *b, bool *out, lp_error *err)
{
    const lp_map *common = NULL;
    *out = false;
    if (a->dst_lo >= b->dst_hi || b->dst_lo >= a->dst_hi)
        return LP_OK;
    LP_TRY(lp_map_intersect(&common, a, b, 0, r->platform.alloc, err));
    *out = common->nbox > 0;
    lp_map_free(common, r->platform.alloc);
    return LP_OK;
}

lp_status rec_read_piece(lp_recorder *r, rec_value *at, const rec_piece *piece, lp_error *err)
{
    at->staged = true;
    at->index = piece->name;
    at->map = piece->map;
    if (piece->src_dtype == 0)
        return LP_OK;
    /* The copy cast: read the source as it is, and cast in the expression. */
    rec_value source = *at;
    LP_TRY(rec_map_as_bytes(r, piece->map, piece->map->src_elem, &source.map, err));
    source.dtype = (lp_dtype)piece->src_dtype;
    source.node.dtype = piece->src_dtype;
    const lp_node cast = {.op = LP_OP_CAST, .dtype = at->node.dtype, .count = at->node.count};
    const int64_t input = rec_add_value(r, &source);
    if (input < 0)
        return lp_fail_memory(err);
    *at = (rec_value){.node = cast};
    at->node.arg[0] = (uint32_t)input;
    return LP_OK;
}

/* Makes node `at`, an input that reads what one copy had written, an input that reads the copy's source. */
static lp_status read_through_copy(lp_recorder *r, uint32_t at, const rec_write *w, lp_error *err)
{
    const lp_map *copied = NULL, *through = NULL;
    LP_TRY(lp_map_shift(&copied, w->map, w->src_off, w->dst_off, r->platform.alloc, err));
    const lp_status status = lp_map_compose(&through, r->value[at].map, copied, r->platform.alloc, err);
    lp_map_free(copied, r->platform.alloc);
    if (status != LP_OK)
        return status;
    const rec_piece piece = {.map = rec_own(r, through), .name = w->name, .src_dtype = w->src_dtype};
    if (piece.map == NULL)
        return lp_fail_memory(err);
    rec_value value = r->value[at]; /* a cast adds a node, which may move the array */
    LP_TRY(rec_read_piece(r, &value, &piece, err));
    r->value[at] = value;
    return LP_OK;
}

/* The same where several copies of one name had written. */
static lp_status read_through_copies(lp_recorder *r, uint32_t at, uint32_t dest, lp_error *err)
{
    bool computed;
    const int64_t held = rec_written(r, dest, &computed);
    if (held < 0)
        return lp_recorder_status(r, err);
    rec_value value = r->value[at];
    rec_piece piece = {0};
    lp_status status = rec_through_pieces(r, held, value.map, &piece, err);
    if (status == LP_OK)
        status = rec_read_piece(r, &value, &piece, err);
    if (status == LP_E_MEMORY)
        return status;
    if (status != LP_OK) /* what the copies before cannot say, no derive can */
        return lp_fail(err, LP_E_UNSUPPORTED, "computes in place on bytes of several names");
    r->value[at] = value;
    return LP_OK;
}

/* Makes node `at`, an input that reads the whole result of a derive, that result. */
static lp_status read_through_derive(lp_recorder *r, uint32_t at, const rec_derive *d, lp_error *err)
{
    const lp_map *through = NULL;
    LP_TRY(lp_map_compose(&through, r->value[at].map, d->map, r->platform.alloc, err));
    const rec_value *root = &r->value[d->root];
    const bool same = is_identity(through, root->node.count * (lp_dtype_bits((lp_dtype)root->node.dtype) / 8)) &&
                      root->node.dtype == r->value[at].node.dtype && root->node.count == r->value[at].node.count;
    lp_map_free(through, r->platform.alloc);
    if (!same)
        return lp_fail(err, LP_E_UNSUPPORTED, "computes in place on another view of a computed value");
    r->value[at] = *root;
    return LP_OK;
}

/* Whether the bytes that an input reads are among those that `out` writes; an input that reads a byte twice is taken to
 * read all between its first and its last one. */
static lp_status reads_from(lp_recorder *r, const lp_map *gather, const lp_map *out, bool *reads, lp_error *err)
{
    const lp_map *region = NULL;
    *reads = gather->src_lo < out->dst_hi && out->dst_lo < gather->src_hi;
    if (!*reads)
        return LP_OK;
    const lp_status status = lp_map_inverse(&region, gather, r->platform.alloc, err);
    if (status == LP_E_UNSUPPORTED)
        return LP_OK;
    LP_TRY(status);
    const lp_status met = meets(r, region, out, reads, err);
    lp_map_free(region, r->platform.alloc);
    return met;
}

lp_status rec_resolve_input(lp_recorder *r, uint32_t at, uint32_t dest, const lp_map *out, bool *overwritten,
                            lp_error *err)
{
    const lp_map *gather = r->value[at].map;
    *overwritten = true;
    if (out != NULL)
        LP_TRY(reads_from(r, gather, out, overwritten, err));
    if (!*overwritten)
        return LP_OK;
    for (uint32_t i = r->dest[dest].last_write; i != LP_NONE; i = r->write[i].previous) {
        const rec_write *w = &r->write[i];
        if (w->kind == REC_DROPPED || w->map->dst_lo + w->dst_off >= gather->src_hi ||
            gather->src_lo >= w->map->dst_hi + w->dst_off)
            continue;
        if (i >= r->value[at].written_before)
            return lp_fail(err, LP_E_UNSUPPORTED, "computes on bytes that were overwritten since");
        lp_status status = LP_OK;
        if (w->kind == REC_DERIVE)
            status = read_through_derive(r, at, &r->derive[w->name], err);
        else if (w->map->src_elem == 0)
            status = lp_fail(err, LP_E_UNSUPPORTED, "computes in place on a fill");
        else
            status = read_through_copy(r, at, w, err);
        return status != LP_E_ARGUMENT ? status : read_through_copies(r, at, dest, err);
    }
    return lp_fail(err, LP_E_UNSUPPORTED, "computes in place on bytes that nothing has written yet");
}

lp_status rec_expression_has(lp_recorder *r, uint32_t root, uint32_t node, bool *has, lp_error *err)
{
    flattening f = {0};
    const lp_status status = visit(r, &f, root) ? LP_OK : lp_fail_memory(err);
    *has = status == LP_OK && r->value_number[node] != 0;
    end_visit(r, &f);
    return status;
}

/* Nothing below `root` may be lost, nor, when it is computed in place, read where `out` writes to `dest`. */
static lp_status resolve_inputs(lp_recorder *r, uint32_t root, uint32_t dest, const lp_map *out, bool in_place,
                                lp_error *err)
{
    flattening f = {0};
    lp_status status = visit(r, &f, root) ? LP_OK : lp_fail_memory(err);
    for (int64_t i = 0; i < f.count && status == LP_OK; i++) {
        rec_value *v = &r->value[f.order[i]];
        bool overwritten;
        v->reads_last = v->reads_last || !in_place;
        if (v->is_lost)
            status = lp_fail(err, LP_E_UNSUPPORTED, "computes on bytes that were overwritten since");
        else if (in_place && v->node.op == LP_OP_INPUT && !v->staged && v->index == dest) {
            status = rec_resolve_input(r, f.order[i], dest, out, &overwritten, err);
            if (status == LP_OK && overwritten)
                rec_note_reader(r, f.order[i]); /* of the destination that it may read now */
        }
    }
    end_visit(r, &f);
    return status;
}

lp_status rec_trim_writes(lp_recorder *r, uint32_t dest, const lp_map *out, int64_t shift, bool derives_only,
                          lp_error *err)
{
    const int64_t lo = out->dst_lo + shift, hi = out->dst_hi + shift;
    for (uint32_t i = r->dest[dest].last_write; i != LP_NONE; i = r->write[i].previous) {
        rec_write *w = &r->write[i];
        const lp_map *rest = NULL;
        if (w->kind == REC_DROPPED || (derives_only && w->kind != REC_DERIVE) || w->map->dst_lo + w->dst_off >= hi ||
            lo >= w->map->dst_hi + w->dst_off)
            continue;
        LP_TRY(lp_map_subtract(&rest, w->map, out, shift - w->dst_off, r->platform.alloc, err));
        rest = rec_own(r, rest);
        if (rest == NULL)
            return lp_fail_memory(err);
        w->map = rest;
        if (w->kind == REC_DERIVE) {
            r->derive[w->name].map = rest;
            r->derive[w->name].dropped = rest->nbox == 0;
        }
        if (rest->nbox == 0)
            w->kind = REC_DROPPED;
    }
    return LP_OK;
}

/* ---- derives ---- */

static bool add_derive(lp_recorder *r, const rec_derive *d)
{
    if (!lp_grow(r->platform.alloc, (void **)&r->derive, &r->derive_capacity, r->derive_count + 1, sizeof *r->derive)) {
        rec_no_memory(r);
        return false;
    }
    r->derive[r->derive_count++] = *d;
    return true;
}

/* The expression in dst's dtype, and the map from its dense result. */
static lp_status place_result(const char *file, int line, lp_tensor dst, lp_tensor *value, const lp_map **out,
                              uint8_t *flags, lp_error *err)
{
    lp_recorder *r = dst.recorder;
    const bool is_value = value->kind == LP_TENSOR_VALUE && value->cast_to == 0;
    if (!is_value || value->view.dtype != dst.view.dtype) {
        if (lp_dtype_of(*value) != dst.view.dtype) {
            *flags |= LP_PROV_IMPLICIT_CAST;
            if (lp_cast_kind_of(lp_dtype_of(*value), dst.view.dtype) != LP_CAST_VALUES)
                return lp_fail(err, LP_E_UNSUPPORTED, "no cast from %s to %s", lp_dtype_name(lp_dtype_of(*value)),
                               lp_dtype_name(dst.view.dtype));
        }
        int64_t node = rec_value_of(file, line, *value);
        if (node >= 0 && r->value[node].node.dtype != (uint16_t)dst.view.dtype) {
            const rec_value cast = {.node = {.op = LP_OP_CAST,
                                             .dtype = (uint16_t)dst.view.dtype,
                                             .arg = {(uint32_t)node, 0, 0},
                                             .count = r->value[node].node.count}};
            node = rec_add_value(r, &cast);
        }
        *value = rec_value_tensor(file, line, r, node, value->view.ndim, value->view.size);
        if (value->kind == LP_TENSOR_INVALID)
            return LP_E_REFUSED; /* said already */
    }
    const lp_map *map = NULL;
    LP_TRY(lp_map_copy(&map, &dst.view, rec_memory_bytes(r, &dst), &value->view, rec_memory_bytes(r, value),
                       r->platform.alloc, err));
    *out = rec_own(r, map);
    return *out != NULL ? LP_OK : lp_fail_memory(err);
}

lp_status rec_place_value(const char *file, int line, lp_tensor dst, uint32_t node, const lp_map *out, uint8_t flags,
                          bool in_place, lp_error *err)
{
    lp_recorder *r = dst.recorder;
    LP_TRY(resolve_inputs(r, node, dst.base, out, in_place, err));
    if (in_place) {
        LP_TRY(rec_leave_readers(file, line, r, dst.base, out, 0, err));
        LP_TRY(rec_trim_writes(r, dst.base, out, 0, false, err));
    }
    const uint32_t provenance = rec_provenance(r, file, line, flags);
    const rec_derive d = {.dest = dst.base, .root = node, .map = out, .text = "", .provenance = provenance};
    if (!add_derive(r, &d))
        return LP_OK; /* kept as misuse */
    const rec_write w = {.map = out,
                         .name = (uint32_t)(r->derive_count - 1),
                         .dest = dst.base,
                         .provenance = provenance,
                         .kind = REC_DERIVE};
    r->dest[dst.base].is_computed = true;
    rec_add_write(r, &w);
    return LP_OK;
}

void rec_copy_value(const char *file, int line, lp_tensor dst, lp_tensor value, bool in_place)
{
    lp_recorder *r = dst.recorder;
    const lp_tensor whole = value;
    uint8_t flags = value.flags;
    const lp_map *out = NULL;
    lp_error err;
    lp_status status = place_result(file, line, dst, &value, &out, &flags, &err);
    if (r->misuse.code != LP_OK)
        return;
    if (status == LP_E_REFUSED) {
        rec_refuse_tensor(file, line, whole, dst, "copy_", "computes on a refused value");
        return;
    }
    if (status == LP_OK && out->nbox == 0)
        return;
    if (status == LP_OK && dst.kind == LP_TENSOR_DEST) {
        status = rec_place_value(file, line, dst, value.base, out, flags, in_place, &err);
    } else if (status == LP_OK) {
        const rec_piece piece = {.map = out, .name = value.base, .flags = flags, .is_value = true};
        status = rec_write_piece(r, dst.base, &piece, &err);
    }
    if (status != LP_OK)
        rec_copy_failed(file, line, dst, whole, &err);
}

void lp_derive_at(const char *file, int line, lp_recorder *r, lp_tensor dest, lp_tensor expression)
{
    if (!rec_usable(file, line, r, &dest) || !rec_usable(file, line, r, &expression))
        return;
    if (dest.kind != LP_TENSOR_DEST)
        rec_misuse(file, line, r, LP_E_MISUSE, "a derive into something that is not a destination");
    else
        rec_copy_value(file, line, dest, expression, false);
}

void lp_require_close_at(const char *file, int line, lp_recorder *r, lp_tensor a, lp_tensor b, double rtol,
                         const char *text)
{
    if (!rec_usable(file, line, r, &a) || !rec_usable(file, line, r, &b))
        return;
    const lp_tensor left = lp_to_f32_at(file, line, a), right = lp_to_f32_at(file, line, b);
    const int64_t x = rec_value_of(file, line, left), y = x >= 0 ? rec_value_of(file, line, right) : -1;
    if (x < 0 || y < 0)
        return;
    const int64_t nx = r->value[x].node.count, ny = r->value[y].node.count;
    if (nx != ny && nx != 1 && ny != 1) {
        rec_misuse(file, line, r, LP_E_ARGUMENT, "compares %lld elements with %lld", (long long)nx, (long long)ny);
        return;
    }
    const rec_value check = {
        .node = {.op = LP_OP_ALL_CLOSE, .arg = {(uint32_t)x, (uint32_t)y, 0}, .bits = lp_bits_f32((float)rtol)}};
    const int64_t root = rec_add_value(r, &check);
    const char *kept = lp_arena_text(&r->arena, text, strlen(text));
    if (root < 0 || kept == NULL) {
        rec_no_memory(r);
        return;
    }
    const rec_derive d = {
        .dest = LP_NONE, .root = (uint32_t)root, .text = kept, .provenance = rec_provenance(r, file, line, 0)};
    add_derive(r, &d);
}
