/* SPDX-License-Identifier: Apache-2.0 */
/* Binding, the second half: the records of the scope and the staged inputs of its derives become steps, sorted by
 * checkpoint name. Ranges are checked once more here, because these steps are what memory is written by. */
#include "replayer/plan.h"

#include <stdlib.h>

lp_status lp_plan_keep_map(lp_plan *plan, const lp_map *map, lp_error *err)
{
    void *items = (void *)plan->owned;
    if (!lp_grow(plan->platform.alloc, &items, &plan->owned_capacity, plan->owned_count + 1, sizeof *plan->owned)) {
        lp_map_free(map, plan->platform.alloc);
        return lp_fail_memory(err);
    }
    plan->owned = items;
    plan->owned[plan->owned_count++] = map;
    return LP_OK;
}

static lp_status append(lp_plan *plan, lp_step **list, int64_t *count, int64_t *capacity, const lp_step *step,
                        lp_error *err)
{
    if (*count == *capacity) {
        void *items = *list;
        if (!lp_grow(plan->platform.alloc, &items, capacity, *count + 1, sizeof **list))
            return lp_fail_memory(err);
        *list = items;
    }
    (*list)[(*count)++] = *step;
    return LP_OK;
}

lp_status lp_plan_add_step(lp_plan *plan, const lp_step *step, lp_error *err)
{
    if (step->name == LP_NAME_BEGIN)
        return append(plan, &plan->fill, &plan->fill_count, &plan->fill_capacity, step, err);
    return append(plan, &plan->step, &plan->step_count, &plan->step_capacity, step, err);
}

/* ---- checks ---- */

/* Cast elements lie on multiples of their size, so that a push may be cut at any multiple of eight bytes. */
static bool is_aligned(const lp_step *step)
{
    const int64_t elem = step->map->src_elem;
    for (int32_t b = 0; b < step->map->nbox; b++) {
        const lp_box *box = &step->map->box[b];
        if ((step->src_off + box->src_off) % elem != 0)
            return false;
        for (int32_t i = 0; i < box->rank; i++)
            if (box->mode[i].src_stride % elem != 0)
                return false;
    }
    return true;
}

static bool is_inside(int64_t off, int64_t lo, int64_t hi, int64_t bytes)
{
    int64_t first, end;
    return lp_add(off, lo, &first) && lp_add(off, hi, &end) && first >= 0 && end <= bytes;
}

static lp_status check_kind(const lp_rows *rows, const lp_step *step, lp_error *err)
{
    const char *dest = rows->dest[step->dest].name;
    bool is_sound = step->map->src_elem == 1 && step->map->dst_elem == 1;
    if (step->kind == LP_KIND_FILL)
        is_sound = step->map->src_elem == 0 && step->map->dst_elem >= 1 && step->map->dst_elem <= 8;
    else if (step->kind == LP_KIND_CAST)
        is_sound = lp_cast_kind_of(step->src_dtype, step->dst_dtype) == LP_CAST_VALUES &&
                   step->map->src_elem * 8 == lp_dtype_bits(step->src_dtype) &&
                   step->map->dst_elem * 8 == lp_dtype_bits(step->dst_dtype);
    if (!is_sound)
        return lp_fail_at(err, LP_E_CORRUPT, dest, -1, "a record of '%s' is not of the kind that it says", dest);
    if (step->kind == LP_KIND_CAST && !is_aligned(step))
        return lp_fail_at(err, LP_E_UNSUPPORTED, dest, -1, "a cast into '%s' reads elements across their alignment",
                          dest);
    return LP_OK;
}

static lp_status check_record(const lp_plan *plan, const lp_rows *rows, const lp_step *step, lp_error *err)
{
    if (step->dest >= rows->ndest)
        return lp_fail(err, LP_E_CORRUPT, "a record writes destination %u of %u", step->dest, rows->ndest);
    const lp_destination *dest = &rows->dest[step->dest];
    if (step->map->nbox > 0 &&
        !is_inside(step->dst_off, step->map->dst_lo, step->map->dst_hi, dest->storage_bytes - dest->offset))
        return lp_fail_at(err, LP_E_CORRUPT, dest->name, -1, "a record of '%s' writes outside its storage", dest->name);
    LP_TRY(check_kind(rows, step, err));
    if (step->name == LP_NAME_BEGIN && step->kind == LP_KIND_FILL)
        return LP_OK;
    if (step->name >= lp_checkpoint_count(plan->catalogue))
        return lp_fail_at(err, LP_E_CORRUPT, dest->name, -1, "a record of '%s' has no checkpoint tensor", dest->name);
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(plan->catalogue, step->name);
    if (step->kind != LP_KIND_FILL && step->map->nbox > 0 &&
        !is_inside(step->src_off, step->map->src_lo, step->map->src_hi, tensor->bytes))
        return lp_fail_at(err, LP_E_CORRUPT, tensor->name, -1, "a record reads outside '%s'", tensor->name);
    return LP_OK;
}

/* ---- steps ---- */

void lp_scope_steps_free(const lp_plan *plan, lp_scope_steps *steps)
{
    lp_release(plan->platform.alloc, steps->step);
    lp_release(plan->platform.alloc, steps->derive);
    *steps = (lp_scope_steps){.step = NULL};
}

lp_status lp_plan_scope_steps(lp_plan *plan, const lp_rows *rows, lp_scope_steps *out, lp_error *err)
{
    lp_status status = LP_OK;
    *out = (lp_scope_steps){.count = rows->nrecord, .capacity = rows->nrecord};
    out->step = lp_allocate(plan->platform.alloc, rows->nrecord * sizeof *out->step);
    if (out->step == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; status == LP_OK && i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        out->step[i] = (lp_step){
            .map = r->map,
            .src_off = r->src_off,
            .dst_off = r->dst_off,
            .fill_bits = r->fill_bits,
            .name = r->name,
            .dest = r->dest,
            .stage = LP_NONE,
            .kind = r->kind,
            .src_dtype = r->src_dtype,
            .dst_dtype = r->dst_dtype,
        };
        status = check_record(plan, rows, &out->step[i], err);
    }
    if (status == LP_OK)
        status = lp_plan_free_order(plan, rows, out, err);
    if (status != LP_OK)
        lp_scope_steps_free(plan, out);
    return status;
}

/* The derives of the trace, and behind them those that `made` has in place of steps. */
static lp_status list_derives(lp_plan *plan, const lp_scope_steps *made, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    if (made->derive_count >= LP_NONE - rows->nderive)
        return lp_fail(err, LP_E_LIMIT, "too many derives in one scope");
    plan->job_count = rows->nderive + (uint32_t)made->derive_count;
    plan->derive = lp_arena_get(&plan->arena, ((size_t)plan->job_count + 1) * sizeof *plan->derive);
    if (plan->derive == NULL)
        return lp_fail_memory(err);
    if (rows->nderive > 0)
        memcpy(plan->derive, rows->derive, rows->nderive * sizeof *plan->derive);
    if (made->derive_count > 0)
        memcpy(plan->derive + rows->nderive, made->derive, (size_t)made->derive_count * sizeof *plan->derive);
    return LP_OK;
}

static lp_status add_records(lp_plan *plan, bool without_slots, lp_error *err)
{
    lp_scope_steps made;
    LP_TRY(lp_plan_scope_steps(plan, plan->rows, &made, err));
    lp_status status = list_derives(plan, &made, err);
    for (int64_t i = 0; status == LP_OK && i < made.count; i++)
        if (made.step[i].map != NULL && (!without_slots || plan->rows->dest[made.step[i].dest].slot_dim < 0))
            status = lp_plan_add_step(plan, &made.step[i], err);
    lp_scope_steps_free(plan, &made);
    return status;
}

/* The staged inputs of all derives: gathers into scratch, driven by the name like records. */
static lp_status add_stages(lp_plan *plan, lp_error *err)
{
    int64_t count = 0;
    for (uint32_t d = 0; d < plan->job_count; d++)
        for (uint32_t i = 0; i < plan->derive[d].ninput; i++)
            count += plan->derive[d].input[i].staged;
    plan->stage = lp_arena_get(&plan->arena, (size_t)(count + 1) * sizeof *plan->stage);
    if (plan->stage == NULL)
        return lp_fail_memory(err);
    for (uint32_t d = 0; d < plan->job_count; d++) {
        for (uint32_t i = 0; i < plan->derive[d].ninput; i++) {
            const lp_derive_input *input = &plan->derive[d].input[i];
            int64_t bytes;
            if (!input->staged)
                continue;
            if (input->index >= lp_checkpoint_count(plan->catalogue) ||
                !lp_mul(input->count, lp_dtype_bits(input->dtype), &bytes) || input->map->src_elem != 1 ||
                input->map->dst_lo < 0 || input->map->dst_hi > bytes / 8 || input->map->src_lo < 0 ||
                input->map->src_hi > lp_checkpoint_at(plan->catalogue, input->index)->bytes)
                return lp_fail(err, LP_E_CORRUPT, "a derive stages bytes outside its checkpoint tensor");
            plan->stage[plan->stage_count] = (lp_stage){.job = d, .input = i, .bytes = bytes / 8};
            const lp_step step = {
                .map = input->map,
                .name = input->index,
                .dest = LP_NONE,
                .stage = plan->stage_count++,
                .kind = LP_KIND_COPY,
            };
            LP_TRY(lp_plan_add_step(plan, &step, err));
        }
    }
    return LP_OK;
}

static int by_name(const void *a, const void *b)
{
    const lp_step *x = a, *y = b;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->dest != y->dest)
        return x->dest < y->dest ? -1 : 1;
    if (x->dst_off != y->dst_off)
        return x->dst_off < y->dst_off ? -1 : 1;
    return x->stage < y->stage ? -1 : x->stage > y->stage;
}

/* ---- entries ---- */

static void describe_entry(const lp_plan *plan, lp_entry *e)
{
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
        const lp_step *step = &plan->step[i];
        if (step->dest != LP_NONE && step->map->nbox > 0)
            plan->storage[plan->storage_of[step->dest]].is_written = true;
        e->has_cast = e->has_cast || step->kind == LP_KIND_CAST;
        if (step->kind == LP_KIND_FILL || step->map->nbox == 0)
            continue;
        const int64_t lo = step->src_off + step->map->src_lo, hi = step->src_off + step->map->src_hi;
        e->need_lo = !e->reads || lo < e->need_lo ? lo : e->need_lo;
        e->need_hi = !e->reads || hi > e->need_hi ? hi : e->need_hi;
        e->reads = true;
    }
}

static lp_status make_entries(lp_plan *plan, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(plan->catalogue);
    const lp_rows *rows = plan->rows;
    uint8_t *use = lp_allocate_zero(plan->platform.alloc, (size_t)names);
    uint32_t *entry_of = lp_arena_get(&plan->arena, (size_t)(names + 1) * sizeof *entry_of);
    if (use == NULL || entry_of == NULL)
        goto no_memory;
    for (int64_t i = 0; i < plan->step_count; i++)
        use[plan->step[i].name] = LP_USE_LOADED;
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        if (rows->refusal[i].name < names)
            use[rows->refusal[i].name] = LP_USE_FALLBACK;
    for (int64_t n = 0; n < names; n++)
        entry_of[n] = use[n] != LP_USE_NONE ? plan->entry_count++ : LP_NONE;
    plan->entry = lp_arena_get(&plan->arena, (plan->entry_count + 1) * sizeof *plan->entry);
    if (plan->entry == NULL)
        goto no_memory;
    int64_t at = 0;
    for (int64_t n = 0; n < names; n++) {
        if (use[n] == LP_USE_NONE)
            continue;
        lp_entry *e = &plan->entry[entry_of[n]];
        *e = (lp_entry){.name = (uint32_t)n, .first_step = (uint32_t)at, .use = use[n]};
        e->bytes = lp_checkpoint_at(plan->catalogue, n)->bytes;
        while (at < plan->step_count && plan->step[at].name == n)
            at++;
        if (use[n] == LP_USE_LOADED) /* what a fallback name would load is its own loader's affair */
            e->step_count = (uint32_t)at - e->first_step;
        describe_entry(plan, e);
    }
    plan->entry_of = entry_of;
    lp_release(plan->platform.alloc, use);
    return LP_OK;
no_memory:
    lp_release(plan->platform.alloc, use);
    return lp_fail_memory(err);
}

lp_status lp_plan_steps(lp_plan *plan, const lp_expert_map *experts, lp_error *err)
{
    LP_TRY(add_records(plan, experts != NULL, err));
    if (experts != NULL)
        LP_TRY(lp_plan_experts(plan, experts, err));
    LP_TRY(add_stages(plan, err));
    if (plan->step_count >= LP_NONE)
        return lp_fail(err, LP_E_LIMIT, "too many records in one scope");
    if (plan->step_count > 0)
        qsort(plan->step, (size_t)plan->step_count, sizeof *plan->step, by_name);
    for (int64_t i = 0; i < plan->fill_count; i++)
        plan->storage[plan->storage_of[plan->fill[i].dest]].is_written = true;
    LP_TRY(make_entries(plan, err));
    return lp_plan_check_overlaps(plan, err);
}
