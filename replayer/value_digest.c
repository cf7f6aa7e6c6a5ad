/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value digest: two sums of 64 bits over all words of a keyed mix of word and position. A sum does not depend on
 * the order of its parts, and parts can be taken out again. docs/value-digest.md is the definition.
 */
#include "replayer/device_session.h"

#define LANE0_STEP  0x9e3779b97f4a7c15u
#define LANE1_STEP  0xc2b2ae3d27d4eb4fu
#define LANE1_KEY   0x165667b19e3779f9u
#define MIX_1       0xd6e8feb86659fd93u
#define MIX_2       0xa0761d6478bd642fu
#define LENGTH_WORD 0xfffffffffffffffeu /* the position that stands for the length: no tensor has so many words */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= MIX_1;
    x ^= x >> 29;
    x *= MIX_2;
    return x ^ x >> 32;
}

static void add_word(lp_value_sum *sum, uint64_t word, uint64_t position)
{
    sum->lane[0] += mix(word + (position + 1) * LANE0_STEP);
    sum->lane[1] += mix((word ^ LANE1_KEY) * LANE1_STEP + mix(position));
}

static uint64_t load_word(const uint8_t *at, int64_t bytes)
{
    uint64_t word = 0;
    for (int64_t i = 0; i < bytes; i++)
        word |= (uint64_t)at[i] << (8 * i);
    return word;
}

void lp_value_sum_add(lp_value_sum *sum, int64_t off, const void *data, int64_t bytes)
{
    const uint8_t *at = data;
    uint64_t position = (uint64_t)off / 8;
    int64_t left = bytes;
    for (; left >= 8; left -= 8, at += 8)
        add_word(sum, load_word(at, 8), position++);
    if (left > 0)
        add_word(sum, load_word(at, left), position);
}

void lp_value_sum_end(const lp_value_sum *sum, int64_t total_bytes, uint8_t digest[LP_VALUE_DIGEST_BYTES])
{
    lp_value_sum end = *sum;
    add_word(&end, (uint64_t)total_bytes, LENGTH_WORD);
    for (int i = 0; i < LP_VALUE_DIGEST_BYTES; i++)
        digest[i] = (uint8_t)(end.lane[i / 8] >> (8 * (i % 8)));
}

void lp_value_digest(const void *data, int64_t bytes, uint8_t digest[LP_VALUE_DIGEST_BYTES])
{
    lp_value_sum sum = {{0, 0}};
    lp_value_sum_add(&sum, 0, data, bytes);
    lp_value_sum_end(&sum, bytes, digest);
}

typedef struct digest_job {
    lp_value_sum sum;
    int64_t off;
} digest_job;

static lp_status add_piece(void *context, const void *data, int64_t bytes, lp_error *err)
{
    digest_job *job = context;
    (void)err;
    lp_value_sum_add(&job->sum, job->off, data, bytes);
    job->off += bytes;
    return LP_OK;
}

lp_status lp_plan_value_digest(const lp_plan *plan, uint32_t dest, uint8_t digest[LP_VALUE_DIGEST_BYTES], lp_error *err)
{
    if (dest >= plan->rows->ndest)
        return lp_fail(err, LP_E_ARGUMENT, "there is no destination %u", dest);
    if (plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "a plan of meta tensors has no values");
    if (plan->known_digest != NULL) {
        memcpy(digest, plan->known_digest[dest], LP_VALUE_DIGEST_BYTES);
        return LP_OK;
    }
    if (plan->side != NULL)
        return lp_device_digests(plan, dest, 1, (uint8_t(*)[LP_VALUE_DIGEST_BYTES])digest, NULL, err);
    digest_job job = {.off = 0};
    lp_form form;
    lp_destination_form(&plan->rows->dest[dest], &form);
    LP_TRY(lp_form_walk(&form, plan->address[dest], plan->platform.alloc, add_piece, &job, err));
    lp_value_sum_end(&job.sum, job.off, digest);
    return LP_OK;
}
