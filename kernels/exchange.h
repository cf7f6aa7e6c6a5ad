/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/exchange.h: the mixture-of-experts layer of several ranks, whose experts are divided among their GPUs.
 *
 * Rank n of R holds experts n * E to (n + 1) * E - 1 of R * E. A call takes the tokens of its own rank, sends each to
 * the ranks that hold its experts, computes what others sent, sends every row back to the rank of its token, and
 * combines. All of it is launches on the caller's stream that write into the memory of peers: no copy engine, no host
 * thread, no multicast. Ranks meet twice in a call: when tokens have arrived, and when rows have.
 *
 * y has the bits that lp_megamoe gives on one GPU with all R * E experts, whatever R is and however tokens are routed:
 * tokens are quantised by the same rule before they travel, rows do not depend on what is computed beside them, and the
 * owner of a token adds them in ascending j.
 *
 * Set-up: every rank allocates lp_moe_exchange_bytes of device memory that its peers can reach, calls
 * lp_moe_exchange_clear on it, gives it to the others (lp_peer_memory_open of loadplan/sync.h does both, and holds the
 * ranks against each other), and fills lp_moe_exchange with the addresses at which it sees all R buffers. All ranks
 * must have cleared before one of them calls.
 *
 * Rule for calls: all ranks make the same calls in the same order, with equal tokens_bound; a rank without tokens takes
 * part with *tokens == 0. The number of a call is counted on the device, so that a captured graph can be launched
 * again, mixed with other calls. Before a buffer is freed all ranks must have finished their last call.
 *
 * Failures. A rank that waits longer than timeout_ns for a peer, or meets one whose tokens_bound differs, writes what
 * happened into its buffer and into those of all peers, and its launches end. Calls that follow, on any rank, move
 * nothing and end at once; y is undefined from the failed call on. lp_moe_exchange_failure says what happened; a new
 * start is a clear on all ranks. A peer whose process ends takes its memory with it: then the driver reports a fault.
 *
 * Thread rule: one exchange is in use by one stream at a time.
 */
#ifndef LOADPLAN_EXCHANGE_H
#define LOADPLAN_EXCHANGE_H

#include "kernels/megamoe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

enum { LP_MOE_EXCHANGE_RANKS = 64 }; /* at most */

/* Zero-initialise; fields may be added at the end. */
typedef struct lp_moe_exchange {
    size_t size; /* sizeof(lp_moe_exchange) */
    int32_t rank, ranks;
    int64_t timeout_ns; /* how long a wait may last on the device; 0: 300 s */
    bool shares_gpu;    /* other ranks use this GPU too: no launch takes its place before it can go on */
    void *buffer[LP_MOE_EXCHANGE_RANKS]; /* of all ranks, as this rank's GPU addresses them; 256-byte aligned */
    int64_t buffer_bytes;                /* of each */
} lp_moe_exchange;

/* Bytes of the buffer that each rank gives to its peers, and of the workspace that it keeps for itself. In `shape`
 * experts are those of one rank, max_tokens and tokens_bound the tokens of one rank, equal on all, and first_expert is
 * the id of rank 0's first expert. ranks * max_tokens may be 65536. 0 when the shape is not supported, with the reason
 * in *err. The buffer holds x of all ranks and a BF16 row for each route of the own tokens. */
LP_API int64_t lp_moe_exchange_bytes(const lp_megamoe_shape *shape, int32_t ranks, lp_error *err);
LP_API int64_t lp_moe_exchange_workspace(const lp_megamoe_shape *shape, int32_t ranks, lp_error *err);

/* What must be equal on all ranks, as a line of text: for those who hold ranks against each other. */
LP_API void lp_moe_exchange_terms(const lp_megamoe_shape *shape, int32_t ranks, char *text, size_t text_bytes);

/* Enqueues what makes the own buffer ready for a first call, or for one after a failure. */
LP_API lp_status lp_moe_exchange_clear(void *buffer, int64_t buffer_bytes, void *stream, lp_error *err);

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* Everything that lp_moe_exchange_run refuses before it launches anything, without a GPU. */
LP_API lp_status lp_moe_exchange_check(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights,
                                       const lp_megamoe_io *io, const lp_moe_exchange *exchange, const void *workspace,
                                       int64_t workspace_bytes, lp_error *err);

/*
 * lp_megamoe over all ranks. io is the own rank's: its tokens, its ids (of experts of all ranks), its y; `received`
 * counts what the own experts got from all ranks. Where the format computes with E4M3 tokens, x in BF16 is quantised
 * here, before it travels. Errors are those of lp_megamoe.
 */
LP_API lp_status lp_moe_exchange_run(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights,
                                     const lp_megamoe_io *io, const lp_moe_exchange *exchange, void *workspace,
                                     int64_t workspace_bytes, void *stream, lp_error *err);

typedef enum lp_moe_failure_kind {
    LP_MOE_NO_FAILURE = 0,
    LP_MOE_NO_TOKENS = 1,  /* a peer's tokens did not arrive in time */
    LP_MOE_NO_ROWS = 2,    /* a peer's rows did not arrive in time */
    LP_MOE_OTHER_BOUND = 3 /* a peer called with another tokens_bound */
} lp_moe_failure_kind;

/* The first thing that went wrong, here or at a peer. */
typedef struct lp_moe_failure {
    lp_moe_failure_kind kind;
    int32_t rank, by; /* the rank that is to blame, and the one that noticed */
    uint32_t call;    /* number of the call, from 1 */
} lp_moe_failure;

/* Waits for the stream and reads what happened. LP_OK: nothing; LP_E_PEER: *failure says what, and *err in words;
 * LP_E_DEVICE. */
LP_API lp_status lp_moe_exchange_failure(const lp_moe_exchange *exchange, void *stream, lp_moe_failure *failure,
                                         lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
