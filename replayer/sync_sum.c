/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the digest kernel for bytes in the middle of a tensor. */
#include "replayer/sync_sum.h"

/* Bytes of a packet of the kernel's fastest way. */
enum { PACKET = 32 };

/* The job begins at a word of the tensor: the fastest way counts words in 32 bits. */
static void begin_at(lp_digest_job *job, int64_t word)
{
    job->first = (uint64_t)word;
    job->left = LP_LANE_LEFT;
    job->has_vectors = job->has_vectors && word + job->bytes / 8 <= INT32_MAX;
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
    const int64_t bound[LP_SUM_PARTS + 1] = {0, bytes / PACKET * PACKET, bytes / 8 * 8, bytes};
    *count = 0;
    for (int i = 0; i < LP_SUM_PARTS; i++) {
        const int64_t lo = bound[i], size = bound[i + 1] - lo;
        lp_digest_job job;
        lp_form form = {.unit = 8, .bytes = size, .span = size, .ndim = 1, .shape = {size / 8}, .stride = {8}};
        if (size == 0)
            continue;
        if (size < 8)
            tail_job(&job, size);
        else
            LP_TRY(lp_digest_job_of(&job, &form, address + (uint64_t)lo, err));
        begin_at(&job, (off + lo) / 8);
        part[(*count)++] = (lp_sum_part){.job = job, .at = lo};
    }
    return LP_OK;
}
