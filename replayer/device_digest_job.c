/* SPDX-License-Identifier: Apache-2.0 */
/* How a tensor's words lie in memory, so that a GPU can read them in the order of addresses. */
#include "replayer/device_digest.h"

enum { EXTENT_MOST = INT32_MAX };

static void add_mode(lp_digest_job *job, int64_t extent, int64_t off, int64_t pos)
{
    if (extent > 1)
        job->mode[job->rank++] =
            (lp_digest_mode){.extent = lp_divisor_of((uint32_t)extent), .off = off, .pos = (uint64_t)pos};
}

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

static void sort_by_stride(lp_digest_job *job)
{
    for (uint32_t i = 1; i < job->rank; i++)
        for (uint32_t k = i; k > 0 && magnitude(job->mode[k].off) < magnitude(job->mode[k - 1].off); k--) {
            const lp_digest_mode swap = job->mode[k];
            job->mode[k] = job->mode[k - 1];
            job->mode[k - 1] = swap;
        }
}

/* Whether all places and positions fit 32 bits, places in 16 bytes. Fills near_mode. */
static bool is_near(lp_digest_job *job)
{
    int64_t reach = 0;
    for (uint32_t k = 0; k < job->rank; k++) {
        const lp_digest_mode *m = &job->mode[k];
        if (m->off <= 0 || m->off % 16 != 0)
            return false;
        reach += (m->extent.value - 1) * (m->off / 16);
        if (reach > INT32_MAX)
            return false;
        job->near_mode[k].off16 = (uint32_t)(m->off / 16);
        job->near_mode[k].pos = (uint32_t)m->pos;
    }
    return job->packets <= INT32_MAX && job->bytes / 8 <= INT32_MAX;
}

/* Several words along the fastest mode, two loads of 16 bytes together where that is possible. */
static void make_packets(lp_digest_job *job, uint64_t address)
{
    job->words = 1;
    if (job->rank > 0) {
        lp_digest_mode *fast = &job->mode[0];
        const bool whole = job->parts == 1 && fast->off == 8;
        const bool halves = job->parts == 2 && job->part_bytes == 4 && fast->off == 4;
        uint64_t others = address | (halves ? (uint64_t)job->part_off : 0);
        for (uint32_t k = 1; k < job->rank; k++)
            others |= (uint64_t)job->mode[k].off;
        if (fast->extent.value % 4 == 0) {
            job->has_vectors = (whole || halves) && others % 16 == 0;
            job->words = 4;
            job->word_off = fast->off;
            job->word_pos = fast->pos;
            *fast = (lp_digest_mode){
                .extent = lp_divisor_of(fast->extent.value / 4), .off = fast->off * 4, .pos = fast->pos * 4};
        }
    }
    job->packets = 1;
    for (uint32_t k = 0; k < job->rank; k++)
        job->packets *= job->mode[k].extent.value;
    job->has_vectors = job->has_vectors && is_near(job);
}

lp_status lp_digest_job_of(lp_digest_job *job, const lp_form *form, uint64_t address, lp_error *err)
{
    int64_t run = form->unit, inner;
    int dims = form->ndim;
    *job = (lp_digest_job){.bytes = form->bytes, .unit = form->unit};
    if (form->bytes == 0)
        return LP_OK;
    for (int d = 0; d < form->ndim; d++)
        if (form->shape[d] > EXTENT_MOST)
            return lp_fail(err, LP_E_LIMIT, "the digest of a dimension of %lld steps needs the CPU",
                           (long long)form->shape[d]);
    while (dims > 0 && (form->shape[dims - 1] == 1 || form->stride[dims - 1] == run)) {
        run *= form->shape[dims - 1];
        dims--;
    }
    inner = run;
    uint64_t align = address;
    for (int d = 0; d < dims; d++)
        if (form->shape[d] > 1)
            align |= (uint64_t)form->stride[d];
    if (run % 8 == 0 && run / 8 <= EXTENT_MOST) {
        job->part_bytes = align % 8 == 0 ? 8 : (uint32_t)(align & -align);
        job->parts = 8 / job->part_bytes;
        job->part_off = job->part_bytes;
        add_mode(job, run / 8, 8, 1);
    } else if (dims > 0 && run < 8 && 8 % run == 0 && form->shape[dims - 1] % (8 / run) == 0 &&
               align % (uint64_t)run == 0) {
        const int64_t parts = 8 / run;
        dims--;
        job->part_bytes = (uint32_t)run;
        job->parts = (uint32_t)parts;
        job->part_off = form->stride[dims];
        add_mode(job, form->shape[dims] / parts, form->stride[dims] * parts, 1);
        inner = run * form->shape[dims];
    } else {
        job->is_odd = true;
        job->words = 1;
        job->packets = (uint64_t)(form->bytes / 8 + (form->bytes % 8 != 0));
        for (int d = form->ndim - 1; d >= 0; d--)
            add_mode(job, form->shape[d], form->stride[d], 0);
        return LP_OK;
    }
    for (int d = dims - 1; d >= 0; d--) {
        add_mode(job, form->shape[d], form->stride[d], inner / 8);
        inner *= form->shape[d];
    }
    sort_by_stride(job);
    make_packets(job, address);
    return LP_OK;
}
