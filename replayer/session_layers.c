/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layerwise: a commit group becomes live when all of it has arrived. Until then its storages have a shadow, which
 * starts as a copy of the live bytes; records and derives write there, and derives read there. A commit copies exactly
 * the bytes that this session's records and derives wrote.
 *
 * A name opens the groups that it writes and those of every derive that waits for it, directly or not, so that a derive
 * never finds its group closed.
 */
#include "replayer/session.h"

/* Calls visit once for each group that an entry has to open. */
typedef lp_status (*group_fn)(lp_session *s, uint32_t group, void *context, lp_error *err);

static lp_status visit_once(lp_session *s, uint32_t group, group_fn visit, void *context, lp_error *err)
{
    if (group == LP_NONE || s->group_stamp[group] == s->stamp)
        return LP_OK;
    s->group_stamp[group] = s->stamp;
    return visit(s, group, context, err);
}

static uint32_t group_of(const lp_plan *plan, uint32_t dest)
{
    return plan->storage[plan->storage_of[dest]].group;
}

static lp_status visit_written(lp_session *s, uint32_t entry, group_fn visit, void *context, lp_error *err)
{
    const lp_entry *e = &s->plan->entry[entry];
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        if (s->plan->step[i].dest != LP_NONE)
            LP_TRY(visit_once(s, group_of(s->plan, s->plan->step[i].dest), visit, context, err));
    return LP_OK;
}

/* Groups of derives that wait for the entry, directly or through others. */
static lp_status visit_derived(lp_session *s, uint32_t entry, group_fn visit, void *context, lp_error *err)
{
    const lp_plan *plan = s->plan;
    const lp_entry *e = &plan->entry[entry];
    uint32_t *stack = s->job_stack;
    uint32_t depth = 0;
    for (uint32_t i = 0; i < e->job_count; i++) {
        const uint32_t number = plan->entry_job[e->first_job + i];
        if (s->job_stamp[number] != s->stamp) {
            s->job_stamp[number] = s->stamp;
            stack[depth++] = number;
        }
    }
    while (depth > 0) {
        const lp_job *job = &plan->job[stack[--depth]];
        LP_TRY(visit_once(s, job->group, visit, context, err));
        for (uint32_t i = 0; i < job->next_count; i++) {
            const uint32_t next = plan->job_next[job->first_next + i];
            if (s->job_stamp[next] != s->stamp) {
                s->job_stamp[next] = s->stamp;
                stack[depth++] = next;
            }
        }
    }
    return LP_OK;
}

static lp_status visit_groups(lp_session *s, uint32_t entry, group_fn visit, void *context, lp_error *err)
{
    s->stamp++;
    LP_TRY(visit_written(s, entry, visit, context, err));
    return visit_derived(s, entry, visit, context, err);
}

/* ---- opening ---- */

static lp_status add_wanted(lp_session *s, uint32_t group, void *context, lp_error *err)
{
    (void)err;
    if (!s->group[group].is_open)
        *(int64_t *)context += s->plan->group[group].bytes;
    return LP_OK;
}

int64_t lp_layers_wanted(lp_session *s, uint32_t entry)
{
    int64_t bytes = 0;
    if (s->mode == LP_LAYERWISE)
        (void)visit_groups(s, entry, add_wanted, &bytes, NULL);
    return bytes;
}

static void close_group(lp_session *s, uint32_t group)
{
    for (uint32_t i = s->group_storage[group]; i != LP_NONE; i = s->storage_link[i]) {
        if (s->shadow[i] == NULL)
            continue;
        lp_release(s->alloc, s->shadow[i]);
        s->shadow[i] = NULL;
        s->staging_used -= s->plan->storage[i].bytes;
    }
    s->group[group].is_open = false;
}

static lp_status open_group(lp_session *s, uint32_t group, void *context, lp_error *err)
{
    const lp_plan *plan = s->plan;
    (void)context;
    if (s->group[group].is_open)
        return LP_OK;
    s->group[group].is_open = true;
    for (uint32_t i = s->group_storage[group]; i != LP_NONE; i = s->storage_link[i]) {
        const lp_storage *storage = &plan->storage[i];
        if (!storage->is_written || storage->bytes == 0)
            continue;
        s->shadow[i] = lp_allocate(s->alloc, (size_t)storage->bytes);
        if (s->shadow[i] == NULL) {
            close_group(s, group);
            return lp_fail_memory(err);
        }
        s->staging_used += storage->bytes;
        memcpy(s->shadow[i], storage->base, (size_t)storage->bytes);
    }
    return LP_OK;
}

lp_status lp_layers_open(lp_session *s, uint32_t entry, lp_error *err)
{
    if (s->mode != LP_LAYERWISE)
        return LP_OK;
    lp_session_start_writing(s); /* the fills of begin are constants: they go live first, and so into every shadow */
    return visit_groups(s, entry, open_group, NULL, err);
}

/* ---- committing ---- */

static void copy_out(const lp_session *s, uint32_t dest, const lp_map *map, int64_t dst_off)
{
    const lp_plan *plan = s->plan;
    const uint8_t *shadow = s->shadow[plan->storage_of[dest]];
    if (shadow != NULL)
        lp_exec_same_place(map, dst_off, plan->address[dest], shadow + plan->rows->dest[dest].offset);
}

static void commit(lp_session *s, uint32_t group)
{
    const lp_plan *plan = s->plan;
    if (!s->group[group].is_open)
        return;
    for (uint32_t k = s->group_first[group]; k < s->group_first[group + 1]; k++) {
        const lp_entry *e = &plan->entry[s->group_entry[k]];
        if (!s->track[s->group_entry[k]].is_seen)
            continue;
        for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
            if (plan->step[i].dest != LP_NONE && group_of(plan, plan->step[i].dest) == group)
                copy_out(s, plan->step[i].dest, plan->step[i].map, plan->step[i].dst_off);
    }
    for (uint32_t j = s->group_job[group]; j != LP_NONE; j = s->job_link[j])
        if (s->job[j].is_done)
            copy_out(s, plan->job[j].derive->dest, plan->job[j].derive->map, 0);
    close_group(s, group);
    s->report.groups_committed++;
}

void lp_layers_less(lp_session *s, uint32_t group)
{
    if (s->mode == LP_LAYERWISE && --s->group[group].waiting == 0)
        commit(s, group);
}

static lp_status less(lp_session *s, uint32_t group, void *context, lp_error *err)
{
    (void)context;
    (void)err;
    lp_layers_less(s, group);
    return LP_OK;
}

void lp_layers_entry_done(lp_session *s, uint32_t entry)
{
    if (s->mode != LP_LAYERWISE)
        return;
    s->stamp++;
    (void)visit_written(s, entry, less, NULL, NULL);
}

void lp_layers_commit_open(lp_session *s)
{
    for (uint32_t g = 0; s->mode == LP_LAYERWISE && g < s->plan->group_count; g++)
        commit(s, g);
}

void lp_layers_refresh(lp_session *s, uint32_t entry)
{
    const lp_rows *rows = s->plan->rows;
    if (s->mode != LP_LAYERWISE)
        return;
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        const lp_refusal *r = &rows->refusal[i];
        if (r->name != s->plan->entry[entry].name || r->dest >= rows->ndest)
            continue;
        const lp_destination *dest = &rows->dest[r->dest];
        uint8_t *shadow = s->shadow[s->plan->storage_of[r->dest]];
        if (shadow == NULL)
            continue;
        if (r->map != NULL)
            lp_exec_same_place(r->map, 0, shadow + dest->offset, s->plan->address[r->dest]);
        else
            memcpy(shadow + dest->offset, s->plan->address[r->dest], (size_t)lp_destination_span(dest));
    }
}

const char *lp_layers_push_first(const lp_session *s)
{
    if (s->mode != LP_LAYERWISE)
        return NULL;
    for (uint32_t g = 0; g < s->plan->group_count; g++) {
        if (!s->group[g].is_open)
            continue;
        for (uint32_t k = s->group_first[g]; k < s->group_first[g + 1]; k++) {
            const uint32_t entry = s->group_entry[k];
            if (s->track[entry].is_expected && !s->track[entry].is_complete)
                return lp_checkpoint_at(s->plan->catalogue, s->plan->entry[entry].name)->name;
        }
    }
    return NULL;
}

/* ---- begin and end ---- */

static lp_status count_entry(lp_session *s, uint32_t group, void *context, lp_error *err)
{
    (void)context;
    (void)err;
    s->group_first[group + 1]++;
    s->group[group].waiting++;
    return LP_OK;
}

static lp_status list_entry(lp_session *s, uint32_t group, void *context, lp_error *err)
{
    (void)err;
    s->group_entry[s->group_first[group]++] = *(const uint32_t *)context;
    return LP_OK;
}

static lp_status visit_expected(lp_session *s, group_fn visit, lp_error *err)
{
    for (uint32_t e = 0; e < s->plan->entry_count; e++) {
        if (!s->track[e].is_expected)
            continue;
        s->stamp++;
        LP_TRY(visit_written(s, e, visit, &e, err));
    }
    return LP_OK;
}

static lp_status list_groups(lp_session *s, lp_error *err)
{
    const uint32_t count = s->plan->group_count;
    LP_TRY(visit_expected(s, count_entry, err));
    for (uint32_t g = 0; g < count; g++)
        s->group_first[g + 1] += s->group_first[g];
    s->group_entry = lp_allocate(s->alloc, s->group_first[count] * sizeof *s->group_entry);
    if (s->group_entry == NULL)
        return lp_fail_memory(err);
    LP_TRY(visit_expected(s, list_entry, err));
    for (uint32_t g = count; g > 0; g--) /* listing moved each start to the next one */
        s->group_first[g] = s->group_first[g - 1];
    s->group_first[0] = 0;
    return LP_OK;
}

static lp_status allocate(lp_session *s, lp_error *err)
{
    const lp_plan *plan = s->plan;
    const size_t groups = plan->group_count + 2, jobs = plan->job_count + 1, storages = plan->storage_count + 1;
    s->shadow = lp_allocate_zero(s->alloc, storages * sizeof *s->shadow);
    s->group = lp_allocate_zero(s->alloc, groups * sizeof *s->group);
    s->group_first = lp_allocate_zero(s->alloc, groups * sizeof *s->group_first);
    s->group_stamp = lp_allocate_zero(s->alloc, groups * sizeof *s->group_stamp);
    s->group_job = lp_allocate(s->alloc, groups * sizeof *s->group_job);
    s->group_storage = lp_allocate(s->alloc, groups * sizeof *s->group_storage);
    s->job_stamp = lp_allocate_zero(s->alloc, jobs * sizeof *s->job_stamp);
    s->job_stack = lp_allocate(s->alloc, jobs * sizeof *s->job_stack);
    s->job_link = lp_allocate(s->alloc, jobs * sizeof *s->job_link);
    s->storage_link = lp_allocate(s->alloc, storages * sizeof *s->storage_link);
    const bool is_whole = s->shadow != NULL && s->group != NULL && s->group_first != NULL && s->group_stamp != NULL &&
                          s->group_job != NULL && s->group_storage != NULL && s->job_stamp != NULL &&
                          s->job_stack != NULL && s->job_link != NULL && s->storage_link != NULL;
    return is_whole ? LP_OK : lp_fail_memory(err);
}

static void link_members(lp_session *s)
{
    const lp_plan *plan = s->plan;
    for (uint32_t g = 0; g < plan->group_count; g++)
        s->group_job[g] = s->group_storage[g] = LP_NONE;
    for (uint32_t j = plan->job_count; j-- > 0;) {
        const uint32_t g = plan->job[j].group;
        if (g == LP_NONE)
            continue;
        s->job_link[j] = s->group_job[g];
        s->group_job[g] = j;
        s->group[g].waiting += s->job[j].will_run;
    }
    for (uint32_t i = plan->storage_count; i-- > 0;) {
        s->storage_link[i] = s->group_storage[plan->storage[i].group];
        s->group_storage[plan->storage[i].group] = i;
    }
}

lp_status lp_layers_begin(lp_session *s, lp_error *err)
{
    const lp_plan *plan = s->plan;
    if (s->mode != LP_LAYERWISE)
        return LP_OK;
    LP_TRY(allocate(s, err));
    link_members(s);
    s->is_layered = true;
    LP_TRY(list_groups(s, err));
    for (uint32_t g = 0; g < plan->group_count; g++)
        if (s->group[g].waiting > 0 && plan->group[g].bytes > s->staging_limit)
            return lp_fail_at(err, LP_E_LIMIT, plan->group[g].name, -1,
                              "group '%s' needs %lld bytes of staging, the limit is %lld", plan->group[g].name,
                              (long long)plan->group[g].bytes, (long long)s->staging_limit);
    return LP_OK;
}

void lp_layers_free(lp_session *s)
{
    for (uint32_t g = 0; s->is_layered && g < s->plan->group_count; g++)
        close_group(s, g);
    lp_release(s->alloc, (void *)s->shadow);
    lp_release(s->alloc, s->group);
    lp_release(s->alloc, s->group_first);
    lp_release(s->alloc, s->group_entry);
    lp_release(s->alloc, s->group_job);
    lp_release(s->alloc, s->group_storage);
    lp_release(s->alloc, s->job_link);
    lp_release(s->alloc, s->storage_link);
    lp_release(s->alloc, s->group_stamp);
    lp_release(s->alloc, s->job_stamp);
    lp_release(s->alloc, s->job_stack);
}
