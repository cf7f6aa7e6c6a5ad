/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the digest kernel for bytes in the middle of a tensor. */
#include "replayer/sync_sum.h"

/* Bytes of a packet of the kernel's fastest way. */
enum { PACKET = 32 };

/* The same bytes at position 0 and at `pos`. */
static void repeat_at(lp_digest_job *job, int64_t pos)
{
    const int64_t words = pos + job->bytes / 8 + 1;
    job->mode[job->rank] = (lp_digest_mode){.extent = lp_divisor_of(2), .off = 0, .pos = (uint64_t)pos};
    job->near_mode[job->rank].off16 = 0;
    job->near_mode[job->rank].pos = (uint32_t)pos;
    job->rank++;
    job->packets *= 2;
    job->bytes = words * 8; /* all positions lie below it */
    job->has_vectors = job->has_vectors && words <= INT32_MAX && job->packets <= INT32_MAX;
}

/* Fewer than eight bytes: a word whose parts are bytes. */
static void tail_job(lp_digest_job *job, int64_t bytes)
{
    *job = (lp_digest_job){
        .packets = 1, .bytes = bytes, .unit = 1, .words = 1, .parts = (uint32_t)bytes, .part_bytes = 1, .part_off = 1};
}

lp_status lp_sum_parts(lp_sum_part part[LP_SUM_PARTS], int *count, int64_t off, uint64_t address, int64_t bytes,
                       lp_error *err)
{
    const int64_t packets = bytes / PACKET * PACKET, words = bytes / 8 * 8;
    const int64_t bound[4] = {0, packets, words, bytes};
    *count = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t lo = bound[i], size = bound[i + 1] - lo;
        lp_digest_job job;
        lp_form form = {.unit = 8, .bytes = size, .span = size, .ndim = 1, .shape = {size / 8}, .stride = {8}};
        if (size == 0)
            continue;
        if (i == 2)
            tail_job(&job, size);
        else
            LP_TRY(lp_digest_job_of(&job, &form, address + (uint64_t)lo, err));
        if (off + lo > 0) {
            part[(*count)++] = (lp_sum_part){.job = job, .at = lo, .is_minus = true};
            repeat_at(&job, (off + lo) / 8);
        }
        part[(*count)++] = (lp_sum_part){.job = job, .at = lo};
    }
    return LP_OK;
}
