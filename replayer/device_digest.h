/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value digest on a GPU, docs/value-digest.md: the same sums as lp_value_sum_add on the CPU, over a tensor of any
 * strides. Private to the replayer.
 */
#ifndef LOADPLAN_DEVICE_DIGEST_H
#define LOADPLAN_DEVICE_DIGEST_H

#include "replayer/device_program.h"
#include "replayer/plan.h"

enum { LP_DIGEST_MODES = LP_FORM_DIMS + 1 };

typedef struct lp_digest_mode {
    lp_divisor extent;
    int64_t off;  /* stride, bytes */
    uint64_t pos; /* stride, words of the digest */
} lp_digest_mode;

/*
 * A tensor as packets of words: which word of the digest lies where. A sum does not mind the order of its parts, so
 * packets are numbered as the memory runs, not as the digest does. A word that is not eight bytes in a row consists of
 * equal parts; one that is not even that is put together byte by byte (is_odd), and then modes are those of the units.
 */
typedef struct lp_digest_job {
    uint64_t packets;
    uint64_t first; /* word of the digest that element [0, ..., 0] begins; 0, unless it is a part of a tensor */
    int64_t bytes;  /* logical ones */
    int64_t word_off;
    uint64_t word_pos;
    int64_t part_off;
    uint32_t words, parts, part_bytes;
    uint32_t rank;
    uint32_t left; /* processors that are left to others; the rest get one block each */
    int64_t unit;  /* is_odd */
    bool is_odd;
    bool has_vectors; /* two loads of 16 bytes make a packet, and near_mode[k] says in 32 bits what mode[k] says */
    struct {
        uint32_t off16, pos; /* off16: in 16 bytes */
    } near_mode[LP_DIGEST_MODES];
    lp_digest_mode mode[LP_DIGEST_MODES]; /* by rising stride; is_odd: innermost first */
} lp_digest_job;

/* `address` is that of element [0, ..., 0]; only its alignment matters here. LP_E_LIMIT: a dimension of more than
 * 2^31 - 1 steps. */
lp_status lp_digest_job_of(lp_digest_job *job, const lp_form *form, uint64_t address, lp_error *err);

#ifdef __cplusplus
extern "C" {
#endif

/* Adds the sums of the tensor at `data`, on the device, to sum[0] and sum[1], on the device too. One launch. Returns 0
 * or a cudaError_t. lp_value_sum_end makes the digest of them. */
int lp_device_value_sum(const lp_digest_job *job, const void *data, uint64_t *sum, void *stream);

#ifdef __cplusplus
}
#endif

#endif
