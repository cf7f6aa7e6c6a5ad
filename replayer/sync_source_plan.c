/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sender's bytes in the memory of its engine: the trace of the trainer, read backwards.
 *
 * A step of the plan maps the tensor's bytes to a destination, M. A piece maps the tensor's bytes to a dense buffer, P.
 * So the inverse of M, cut down to the bytes of the piece, and P after it, map the destination to the buffer. What one
 * step does not hold another one has to.
 */
#include "replayer/sync_source.h"

#include "replayer/device_session.h"
#include "replayer/sync_world.h"

bool lp_gather_holds(const lp_plan *plan, const lp_step *step)
{
    if (step->stage != LP_NONE || (step->kind != LP_KIND_COPY && step->kind != LP_KIND_REPLICATE))
        return false;
    const int64_t lo = step->map->dst_lo + step->dst_off, hi = step->map->dst_hi + step->dst_off;
    for (uint32_t j = 0; j < plan->job_count; j++) {
        const lp_derive *d = plan->job[j].derive;
        if (d->dest == step->dest && d->map->dst_lo < hi && lo < d->map->dst_hi)
            return false;
    }
    return true;
}

/* ---- maps of one piece ---- */

static lp_status piece_map(const lp_map **out, int64_t lo, int64_t run, int64_t stride, int64_t count, bool to_dense,
                           const lp_alloc *alloc, lp_error *err)
{
    const lp_mode mode = {.extent = count, .src_stride = stride, .dst_stride = to_dense ? run : stride};
    const lp_box box = {.src_off = lo, .dst_off = to_dense ? 0 : lo, .run = run, .rank = count > 1, .mode = &mode};
    return lp_map_from_boxes(out, 1, 1, 1, &box, alloc, err);
}

typedef struct runs {
    lp_box *box;
    int64_t count, capacity;
    const lp_alloc *alloc;
} runs;

static int keep_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    runs *r = context;
    void *items = r->box;
    if (r->count >= LP_MAP_BOXES_MAX || !lp_grow(r->alloc, &items, &r->capacity, r->count + 1, sizeof *r->box))
        return 1;
    r->box = items;
    r->box[r->count++] = (lp_box){.src_off = dst_off, .dst_off = src_off, .run = count};
    return 0;
}

/* A map that reads bytes more than once has no inverse; one place of each byte will do. The part of it that has not
 * been taken yet is found run by run. */
static lp_status inverse_of_replicate(const lp_map **out, const lp_map *map, const lp_alloc *alloc, lp_error *err)
{
    runs r = {.alloc = alloc};
    const lp_map *all = NULL;
    lp_status status = lp_map_walk(map, keep_run, &r) == 0
                           ? LP_OK
                           : lp_fail(err, LP_E_LIMIT, "a destination repeats its source in too many places");
    /* Each run on top of those before: what they have is left out. */
    for (int64_t i = 0; i < r.count && status == LP_OK; i++) {
        const lp_map *one = NULL, *rest = NULL;
        status = lp_map_from_boxes(&one, 1, 1, 1, &r.box[i], alloc, err);
        if (status == LP_OK && all != NULL)
            status = lp_map_subtract(&rest, one, all, 0, alloc, err);
        const lp_map *fresh = rest != NULL ? rest : one;
        if (status == LP_OK && fresh->nbox > 0) {
            const int32_t nbox = fresh->nbox + (all == NULL ? 0 : all->nbox);
            lp_box *both = lp_allocate(alloc, (size_t)nbox * sizeof *both);
            const lp_map *sum = NULL;
            if (both == NULL) {
                status = lp_fail_memory(err);
            } else {
                if (all != NULL)
                    memcpy(both, all->box, (size_t)all->nbox * sizeof *both);
                memcpy(both + (nbox - fresh->nbox), fresh->box, (size_t)fresh->nbox * sizeof *both);
                status = lp_map_from_boxes(&sum, 1, 1, nbox, both, alloc, err);
                lp_release(alloc, both);
            }
            if (status == LP_OK) {
                lp_map_free(all, alloc);
                all = sum;
            }
        }
        lp_map_free(one, alloc);
        lp_map_free(rest, alloc);
    }
    lp_release(alloc, r.box);
    if (status == LP_OK && all == NULL)
        status = lp_fail(err, LP_E_UNSUPPORTED, "a destination without bytes");
    if (status != LP_OK)
        lp_map_free(all, alloc);
    else
        *out = all;
    return status;
}

/* From the destination to the tensor. */
static lp_status inverse_of_step(const lp_map **out, const lp_step *step, const lp_alloc *alloc, lp_error *err)
{
    const lp_map *moved = NULL;
    LP_TRY(lp_map_shift(&moved, step->map, step->src_off, step->dst_off, alloc, err));
    const lp_status status = step->kind == LP_KIND_COPY ? lp_map_inverse(out, moved, alloc, err)
                                                        : inverse_of_replicate(out, moved, alloc, err);
    lp_map_free(moved, alloc);
    return status;
}

/* ---- the composition ---- */

typedef struct compiler {
    const lp_alloc *alloc;
    const lp_map *left;  /* bytes of the tensor that are still to be found, at their own place */
    const lp_map *dense; /* the piece: from the buffer to the tensor */
    lp_gather_part **part;
    int64_t *parts, *capacity;
} compiler;

static lp_status add_part(compiler *c, const lp_map *map, uint32_t dest, lp_error *err)
{
    void *items = *c->part;
    if (!lp_grow(c->alloc, &items, c->capacity, *c->parts + 1, sizeof **c->part)) {
        lp_map_free(map, c->alloc);
        return lp_fail_memory(err);
    }
    *c->part = items;
    (*c->part)[(*c->parts)++] = (lp_gather_part){.map = map, .dest = dest};
    return LP_OK;
}

/* What the step has of what is left. */
static lp_status take_step(compiler *c, const lp_step *step, lp_error *err)
{
    const lp_map *back = NULL, *wanted = NULL, *places = NULL, *to_buffer = NULL, *whole = NULL, *left = NULL;
    lp_status status;
    LP_TRY_GOTO(inverse_of_step(&back, step, c->alloc, err), release);
    LP_TRY_GOTO(lp_map_intersect(&wanted, back, c->left, 0, c->alloc, err), release);
    if (wanted->nbox == 0)
        goto release;
    LP_TRY_GOTO(lp_map_intersect(&places, c->dense, wanted, 0, c->alloc, err), release);
    LP_TRY_GOTO(lp_map_inverse(&to_buffer, places, c->alloc, err), release);
    LP_TRY_GOTO(lp_map_compose(&whole, to_buffer, wanted, c->alloc, err), release);
    LP_TRY_GOTO(lp_map_subtract(&left, c->left, wanted, 0, c->alloc, err), release);
    LP_TRY_GOTO(add_part(c, whole, step->dest, err), release_left);
    whole = NULL;
    lp_map_free(c->left, c->alloc);
    c->left = left;
    goto release;
release_left:
    whole = NULL; /* add_part has it */
    lp_map_free(left, c->alloc);
release:
    lp_map_free(back, c->alloc);
    lp_map_free(wanted, c->alloc);
    lp_map_free(places, c->alloc);
    lp_map_free(to_buffer, c->alloc);
    lp_map_free(whole, c->alloc);
    return status;
}

lp_status lp_gather_compile(const lp_plan *plan, uint32_t name, int64_t lo, int64_t run, int64_t stride, int64_t count,
                            const lp_alloc *alloc, lp_gather_part **part, int64_t *parts, int64_t *capacity,
                            lp_error *err)
{
    const char *text = lp_checkpoint_at(plan->catalogue, name)->name;
    const uint32_t entry = plan->entry_of[name];
    compiler c = {.alloc = alloc, .part = part, .parts = parts, .capacity = capacity};
    const lp_map *to_dense = NULL;
    lp_status status = entry == LP_NONE ? lp_fail(err, LP_E_UNSUPPORTED, "nothing of '%s' is held here", text) : LP_OK;
    if (status == LP_OK)
        status = piece_map(&c.left, lo, run, stride, count, false, alloc, err);
    if (status == LP_OK)
        status = piece_map(&to_dense, lo, run, stride, count, true, alloc, err);
    if (status == LP_OK)
        status = lp_map_inverse(&c.dense, to_dense, alloc, err);
    const lp_entry *e = entry == LP_NONE ? NULL : &plan->entry[entry];
    for (uint32_t i = 0; status == LP_OK && i < e->step_count && c.left->nbox > 0; i++)
        if (lp_gather_holds(plan, &plan->step[e->first_step + i]))
            status = take_step(&c, &plan->step[e->first_step + i], err);
    if (status == LP_OK && c.left->nbox > 0)
        status = lp_fail_at(err, LP_E_UNSUPPORTED, text, c.left->dst_lo, "byte %lld of '%s' is held nowhere here",
                            (long long)c.left->dst_lo, text);
    lp_map_free(c.left, alloc);
    lp_map_free(c.dense, alloc);
    lp_map_free(to_dense, alloc);
    return status;
}

/* ---- the source ---- */

/* Compiled pieces are kept: every epoch asks for the same ones. */
typedef struct compiled {
    lp_gather_part *part;
    int64_t parts, capacity;
    bool is_done;
} compiled;

typedef struct plan_source {
    const lp_plan *plan;
    const lp_alloc *alloc;
    lp_strings keys; /* name and geometry of a piece, as bytes */
    compiled *piece; /* by key */
    int64_t pieces, capacity;
    lp_sync_packer *packer; /* of plans on a device */
} plan_source;

typedef struct piece_key {
    int64_t name, lo, run, stride, count;
} piece_key;

static lp_status find_piece(plan_source *p, const piece_key *key, compiled **out, lp_error *err)
{
    const int64_t index = lp_strings_add(&p->keys, (const char *)key, sizeof *key);
    void *items = p->piece;
    if (index < 0 || !lp_grow(p->alloc, &items, &p->capacity, index + 1, sizeof *p->piece))
        return lp_fail_memory(err);
    p->piece = items;
    for (; p->pieces <= index; p->pieces++)
        p->piece[p->pieces] = (compiled){.part = NULL};
    compiled *c = &p->piece[index];
    if (!c->is_done) {
        LP_TRY(lp_gather_compile(p->plan, (uint32_t)key->name, key->lo, key->run, key->stride, key->count, p->alloc,
                                 &c->part, &c->parts, &c->capacity, err));
        c->is_done = true;
    }
    *out = c;
    return LP_OK;
}

static lp_status read_plan(void *context, uint32_t name, int64_t lo, int64_t run, int64_t stride, int64_t count,
                           void *out, lp_error *err)
{
    plan_source *p = context;
    compiled *c = NULL;
    piece_key key;
    memset(&key, 0, sizeof key);
    key = (piece_key){.name = name, .lo = lo, .run = run, .stride = stride, .count = count};
    LP_TRY(find_piece(p, &key, &c, err));
    for (int64_t i = 0; i < c->parts; i++)
        lp_exec_map(c->part[i].map, out, p->plan->address[c->part[i].dest]);
    return LP_OK;
}

/* From a device run by run: for what is small. Frames go by the packer. */
typedef struct fetching {
    const lp_device_calls *calls;
    uint8_t *to;
    const uint8_t *from;
    int code;
} fetching;

static int fetch_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    fetching *f = context;
    f->code = f->calls->copy(f->calls->context, f->to + dst_off, f->from + src_off, count, NULL);
    return f->code;
}

static lp_status read_device(void *context, uint32_t name, int64_t lo, int64_t run, int64_t stride, int64_t count,
                             void *out, lp_error *err)
{
    plan_source *p = context;
    const lp_device_calls *calls = &p->plan->side->calls;
    compiled c = {.part = NULL};
    int before;
    lp_status status =
        lp_gather_compile(p->plan, name, lo, run, stride, count, p->alloc, &c.part, &c.parts, &c.capacity, err);
    if (status == LP_OK)
        status = lp_device_check(calls, calls->enter(calls->context, &before), "use the device", err);
    if (status == LP_OK) {
        int code = 0;
        for (int64_t i = 0; i < c.parts && code == 0; i++) {
            fetching f = {.calls = calls, .to = out, .from = p->plan->address[c.part[i].dest]};
            (void)lp_map_walk(c.part[i].map, fetch_run, &f);
            code = f.code;
        }
        const int waited = calls->wait(calls->context, NULL);
        status = lp_device_check(calls, code != 0 ? code : waited, "copy weights to the host", err);
        calls->leave(calls->context, before);
    }
    for (int64_t i = 0; i < c.parts; i++)
        lp_map_free(c.part[i].map, p->alloc);
    lp_release(p->alloc, c.part);
    return status;
}

static lp_status holds_plan(void *context, uint32_t name,
                            lp_status (*range)(void *to, int64_t lo, int64_t hi, lp_error *err), void *to,
                            lp_error *err)
{
    const plan_source *p = context;
    const lp_plan *plan = p->plan;
    lp_ranges r;
    lp_status status = LP_OK;
    lp_ranges_init(&r, p->alloc);
    status = lp_gather_ranges(plan, name, &r, err);
    if (status == LP_OK)
        lp_ranges_normalise(&r);
    for (int64_t i = 0; i < r.count && status == LP_OK; i++)
        status = range(to, r.item[i].lo, r.item[i].hi, err);
    lp_ranges_free(&r);
    return status;
}

static void close_plan(void *context)
{
    plan_source *p = context;
    for (int64_t i = 0; i < p->pieces; i++) {
        for (int64_t k = 0; k < p->piece[i].parts; k++)
            lp_map_free(p->piece[i].part[k].map, p->alloc);
        lp_release(p->alloc, p->piece[i].part);
    }
    lp_release(p->alloc, p->piece);
    lp_strings_free(&p->keys);
    lp_packer_close(p->packer);
    lp_release(p->alloc, p);
}

lp_status lp_sync_source_plan(lp_sync_source *out, const lp_plan *plan, lp_error *err)
{
    if (plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "a plan of meta tensors has no bytes");
    plan_source *p = lp_allocate_zero(plan->platform.alloc, sizeof *p);
    if (p == NULL)
        return lp_fail_memory(err);
    p->plan = plan;
    p->alloc = plan->platform.alloc;
    lp_strings_init(&p->keys, p->alloc);
    const lp_status status = plan->side != NULL ? lp_packer_open(&p->packer, plan, err) : LP_OK;
    if (status != LP_OK) {
        close_plan(p);
        return status;
    }
    *out = (lp_sync_source){.context = p,
                            .holds = holds_plan,
                            .read = plan->side != NULL ? read_device : read_plan,
                            .close = close_plan,
                            .packer = p->packer};
    return LP_OK;
}
