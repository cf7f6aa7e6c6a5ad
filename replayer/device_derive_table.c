/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles derives into the tables that a device interprets, and the interpreter's build for the host. */
#include "replayer/device_derive.h"

#include <assert.h>

static uint64_t cast_bits(uint64_t bits, unsigned from, unsigned to)
{
    uint64_t result = 0; /* little endian hosts only, as everywhere */
    (void)lp_cast_elements((lp_dtype)from, &bits, (lp_dtype)to, &result, 1);
    return result;
}

#define LP_DERIVE_BARRIER()            ((void)0)
#define LP_DERIVE_CAST(bits, from, to) cast_bits(bits, from, to)
#include "replayer/device_derive_run.h"

enum { SCRATCH_ALIGN = 16 };

static unsigned element_bytes(unsigned dtype)
{
    return (unsigned)lp_dtype_bits((lp_dtype)dtype) / 8;
}

/* Room of its own for one array. */
static lp_status take_scratch(lp_derive_table *t, int64_t count, int64_t element, uint64_t *at, lp_error *err)
{
    int64_t bytes, end;
    if (!lp_mul(count, element, &bytes) || !lp_add(t->scratch_bytes, bytes, &end) ||
        !lp_add(end, SCRATCH_ALIGN - 1, &end))
        return lp_fail(err, LP_E_LIMIT, "derives need more scratch than can be counted");
    *at = (uint64_t)t->scratch_bytes;
    t->scratch_bytes = end / SCRATCH_ALIGN * SCRATCH_ALIGN;
    return LP_OK;
}

/* ---- moves ---- */

static bool is_dense(const lp_map *map, int64_t bytes)
{
    return map->nbox == 1 && map->box[0].rank == 0 && map->box[0].dst_off == 0 && map->box[0].run == bytes;
}

/* The same seen from the destination: a result that lies there in one piece. */
static bool is_dense_result(const lp_map *map, int64_t bytes)
{
    return map->nbox == 1 && map->box[0].rank == 0 && map->box[0].src_off == 0 && map->box[0].run == bytes;
}

/* Addresses inside scratch count from a multiple of SCRATCH_ALIGN, so their offsets say how they are aligned. */
static lp_status add_box(lp_derive_table *t, const lp_box *box, uint64_t from, uint64_t to, bool from_scratch,
                         bool to_scratch, lp_error *err)
{
    lp_derive_move m = {.from = from + (uint64_t)box->src_off,
                        .to = to + (uint64_t)box->dst_off,
                        .first_mode = (uint32_t)t->modes,
                        .words = 1,
                        .from_scratch = from_scratch,
                        .to_scratch = to_scratch};
    uint64_t align = m.from | m.to | (uint64_t)box->run | 8;
    for (int32_t i = 0; i < box->rank; i++)
        align |= (uint64_t)box->mode[i].src_stride | (uint64_t)box->mode[i].dst_stride;
    m.word = (uint32_t)(align & -align);
    if (!lp_grow(t->alloc, (void **)&t->mode, &t->mode_capacity, t->modes + box->rank + 1, sizeof *t->mode) ||
        !lp_grow(t->alloc, (void **)&t->move, &t->move_capacity, t->moves + 1, sizeof *t->move))
        return lp_fail_memory(err);
    if (t->modes + box->rank + 1 >= LP_NONE || t->moves + 1 >= LP_NONE)
        return lp_fail(err, LP_E_LIMIT, "derives read too many pieces");
    if (box->run > m.word)
        t->mode[t->modes + m.rank++] = (lp_mode){box->run / m.word, m.word, m.word};
    for (int32_t i = box->rank; i-- > 0;)
        t->mode[t->modes + m.rank++] = box->mode[i];
    for (uint32_t i = 0; i < m.rank; i++)
        m.words *= t->mode[t->modes + i].extent;
    t->modes += m.rank;
    t->move[t->moves++] = m;
    return LP_OK;
}

static lp_status add_moves(lp_derive_table *t, const lp_map *map, uint64_t from, uint64_t to, bool from_scratch,
                           bool to_scratch, uint32_t *first, uint32_t *count, lp_error *err)
{
    const int64_t before = t->moves;
    for (int32_t i = 0; i < map->nbox; i++)
        LP_TRY(add_box(t, &map->box[i], from, to, from_scratch, to_scratch, err));
    if (*count == 0)
        *first = (uint32_t)before;
    *count += (uint32_t)(t->moves - before);
    return LP_OK;
}

/* ---- codes ---- */

static lp_status place_input(lp_derive_table *t, lp_derive_job *job, lp_derive_code *c, const lp_derive_input *in,
                             uint64_t region, lp_error *err)
{
    int64_t bytes;
    if (!lp_mul(c->count, c->element, &bytes))
        return lp_fail(err, LP_E_CORRUPT, "a derive has an input of %lld elements", (long long)c->count);
    if (in->staged) {
        c->value = region;
        return LP_OK;
    }
    if (in->map->src_elem != 1 || in->map->dst_lo < 0 || in->map->dst_hi > bytes)
        return lp_fail(err, LP_E_CORRUPT, "a derive gathers more than its input holds");
    c->value = region;
    if (is_dense(in->map, bytes)) {
        c->value = region + (uint64_t)in->map->box[0].src_off;
        if (c->value % c->element == 0)
            return LP_OK;
    }
    c->in_scratch = true;
    LP_TRY(take_scratch(t, c->count, c->element, &c->value, err));
    return add_moves(t, in->map, region, c->value, false, true, &job->first_gather, &job->gathers, err);
}

static lp_status compile_node(lp_derive_table *t, lp_derive_job *job, const lp_derive *derive, uint32_t n,
                              const uint64_t *region, lp_error *err)
{
    const lp_node *node = &derive->node[n];
    lp_derive_code c = {.bits = node->bits,
                        .count = node->count,
                        .arg = {node->arg[0], node->arg[1], node->arg[2]},
                        .op = (uint8_t)node->op,
                        .dtype = (uint8_t)node->dtype,
                        .element = (uint8_t)element_bytes(node->dtype)};
    if (node->op == LP_OP_ALL_CLOSE) {
        t->code[t->codes++] = c;
        return LP_OK;
    }
    if (node->count < 1 || c.element == 0)
        return lp_fail(err, LP_E_CORRUPT, "a derive has a node of %lld elements", (long long)node->count);
    if (node->op == LP_OP_INPUT) {
        LP_TRY(place_input(t, job, &c, &derive->input[node->arg[0]], region[node->arg[0]], err));
        t->code[t->codes++] = c;
        return LP_OK;
    }
    const lp_node *operand = &derive->node[node->arg[0]];
    if (node->op == LP_OP_CAST) {
        const lp_cast_kind kind = lp_cast_kind_of((lp_dtype)operand->dtype, (lp_dtype)node->dtype);
        if (kind == LP_CAST_UNSUPPORTED)
            return lp_fail(err, LP_E_UNSUPPORTED, "a derive casts %s to %s", lp_dtype_name((lp_dtype)operand->dtype),
                           lp_dtype_name((lp_dtype)node->dtype));
        c.from = kind == LP_CAST_VALUES ? (uint8_t)operand->dtype : LP_DTYPE_NONE;
    }
    if (lp_derive_is_reduction(node->op)) {
        c.group = node->bits == 0 ? operand->count : (int64_t)node->bits;
        if (c.group < 1 || c.count > operand->count / c.group)
            return lp_fail(err, LP_E_CORRUPT, "a derive reduces %lld elements in groups of %lld",
                           (long long)operand->count, (long long)c.group);
        if (c.group > 1) {
            int64_t twice;
            if (!lp_mul(operand->count, 2, &twice))
                return lp_fail(err, LP_E_LIMIT, "a derive reduces too many elements");
            LP_TRY(take_scratch(t, twice, 4, &c.work, err));
        }
    }
    c.in_scratch = true;
    LP_TRY(take_scratch(t, c.count, c.element, &c.value, err));
    t->code[t->codes++] = c;
    return LP_OK;
}

/* Whether every thread can do its elements from input to result by itself. */
static bool can_spread(const lp_derive_table *t, const lp_derive_job *job, const lp_derive *derive, uint64_t dest)
{
    const lp_derive_code *code = &t->code[job->first_code], *last = &code[job->codes - 1];
    if (derive->dest == LP_NONE || job->gathers > 0 || job->codes > LP_DERIVE_SPREAD_NODES ||
        !is_dense_result(derive->map, last->count * last->element) ||
        (dest + (uint64_t)derive->map->box[0].dst_off) % last->element != 0)
        return false;
    for (uint32_t n = 0; n < job->codes; n++)
        if (lp_derive_is_reduction(code[n].op) || (code[n].count != 1 && code[n].count != last->count))
            return false;
    return true;
}

static lp_status compile(lp_derive_table *t, lp_derive_job *job, const lp_derive *derive, const uint64_t *region,
                         uint64_t dest, lp_error *err)
{
    const int64_t scratch = t->scratch_bytes;
    for (uint32_t n = 0; n < derive->nnode; n++)
        LP_TRY(compile_node(t, job, derive, n, region, err));
    const lp_derive_code *last = &t->code[t->codes - 1];
    if (derive->dest == LP_NONE) {
        job->outcome = (uint32_t)t->outcomes++;
        return LP_OK;
    }
    if (can_spread(t, job, derive, dest)) {
        t->scratch_bytes = scratch; /* values stay in registers */
        job->is_spread = true;
        job->result = dest + (uint64_t)derive->map->box[0].dst_off;
        const int64_t blocks = last->count / LP_DERIVE_BLOCK_ELEMENTS + 1;
        job->blocks = (uint32_t)(blocks < LP_DERIVE_BLOCKS_MAX ? blocks : LP_DERIVE_BLOCKS_MAX);
        return LP_OK;
    }
    return add_moves(t, derive->map, last->value, dest, last->in_scratch, false, &job->first_scatter, &job->scatters,
                     err);
}

/* Offsets of a near job count from its own scratch, which is no part of the table's. */
static void bring_near(lp_derive_table *t, lp_derive_job *job, int64_t scratch)
{
    const int64_t bytes = t->scratch_bytes - scratch;
    if (job->is_spread || bytes > LP_DERIVE_NEAR_BYTES || job->codes > LP_DERIVE_NEAR_CODES)
        return;
    for (uint32_t n = 0; n < job->codes; n++) {
        lp_derive_code *c = &t->code[job->first_code + n];
        c->value -= c->in_scratch ? (uint64_t)scratch : 0;
        c->work -= c->group > 1 ? (uint64_t)scratch : 0;
    }
    for (uint32_t g = 0; g < job->gathers; g++)
        t->move[job->first_gather + g].to -= (uint64_t)scratch;
    for (uint32_t k = 0; k < job->scatters; k++)
        t->move[job->first_scatter + k].from -= t->move[job->first_scatter + k].from_scratch ? (uint64_t)scratch : 0;
    job->is_near = true;
    job->near_bytes = bytes;
    t->scratch_bytes = scratch;
}

lp_status lp_derive_table_add(lp_derive_table *t, const lp_derive *derive, const uint64_t *region, uint64_t dest,
                              lp_error *err)
{
    lp_derive_job job = {.first_code = (uint32_t)t->codes, .codes = derive->nnode, .outcome = LP_NONE, .blocks = 1};
    if (t->codes + derive->nnode >= LP_NONE || t->jobs + 1 >= LP_NONE)
        return lp_fail(err, LP_E_LIMIT, "too many nodes of derives in one scope");
    if (!lp_grow(t->alloc, (void **)&t->code, &t->code_capacity, t->codes + derive->nnode, sizeof *t->code) ||
        !lp_grow(t->alloc, (void **)&t->job, &t->job_capacity, t->jobs + 1, sizeof *t->job))
        return lp_fail_memory(err);
    const int64_t scratch = t->scratch_bytes;
    LP_TRY(compile(t, &job, derive, region, dest, err));
    bring_near(t, &job, scratch);
    t->job[t->jobs++] = job;
    return LP_OK;
}

static void place_job(lp_derive_table *t, const lp_derive_job *job, uint64_t scratch)
{
    for (uint32_t n = 0; n < job->codes; n++) {
        lp_derive_code *c = &t->code[job->first_code + n];
        c->value += c->in_scratch ? scratch : 0;
        c->work += scratch; /* unused where the code is no reduction */
    }
    for (uint32_t g = 0; g < job->gathers; g++)
        t->move[job->first_gather + g].to += scratch;
    for (uint32_t k = 0; k < job->scatters; k++)
        t->move[job->first_scatter + k].from += t->move[job->first_scatter + k].from_scratch ? scratch : 0;
}

void lp_derive_table_place(lp_derive_table *t, uint64_t scratch)
{
    for (int64_t j = 0; j < t->jobs; j++)
        if (!t->job[j].is_near)
            place_job(t, &t->job[j], scratch);
}

void lp_derive_table_free(lp_derive_table *t)
{
    lp_release(t->alloc, t->code);
    lp_release(t->alloc, t->move);
    lp_release(t->alloc, t->mode);
    lp_release(t->alloc, t->job);
    *t = (lp_derive_table){.alloc = t->alloc};
}

void lp_derive_run_host(const lp_derive_table *t, uint32_t number, lp_derive_outcome *outcome)
{
    const lp_derive_job *job = &t->job[number];
    const lp_derive_lane lane = {0, 1};
    if (job->is_spread) {
        lp_derive_run_spread(t, job, lane);
        return;
    }
    lp_derive_code near_code[LP_DERIVE_NEAR_CODES];
    uint64_t near[LP_DERIVE_NEAR_BYTES / 8 + 2];
    const uint64_t near_base = job->is_near ? ((uintptr_t)near + 15) / 16 * 16 : 0;
    const lp_derive_code *code = &t->code[job->first_code];
    assert(job->codes > 0);
    if (job->is_near) {
        lp_derive_come_near(t, job, near_code, near_base, lane);
        code = near_code;
    }
    lp_derive_run_codes(t, job, code, near_base, lane);
    if (job->outcome != LP_NONE) {
        const lp_derive_code *c = &code[job->codes - 1];
        lp_derive_note(code, c, lp_derive_first_far(code, c, lane), &outcome[job->outcome]);
    }
}
