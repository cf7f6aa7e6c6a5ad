/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few entry points of NCCL that ranks need, looked up in libnccl.so.2 at first use: nothing links against it, and
 * builds without its header have it too. nccl_abi.cu compares what is declared here with nccl.h. Private to the
 * replayer.
 */
#ifndef LOADPLAN_NCCL_TABLE_H
#define LOADPLAN_NCCL_TABLE_H

#include "traces/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LP_NCCL_SUCCESS = 0, LP_NCCL_REMOTE = 6, LP_NCCL_IN_PROGRESS = 7, LP_NCCL_UINT8 = 1, LP_NCCL_ID_BYTES = 128 };

/* NCCL versions that know communicators that do not block. */
enum { LP_NCCL_LEAST = 21400 };

typedef struct lp_nccl_id {
    char bytes[LP_NCCL_ID_BYTES];
} lp_nccl_id;

/* The first members of ncclConfig_t, as version 2.14 had it; size and version tell the library so. */
typedef struct lp_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} lp_nccl_config;

#define LP_NCCL_CONFIG_MAGIC 0xcafebeefu

/* name, result, parameters */
#define LP_NCCL_ENTRIES(X)                                                                                             \
    X(ncclGetVersion, int, (int *version))                                                                             \
    X(ncclGetUniqueId, int, (lp_nccl_id * id))                                                                         \
    X(ncclCommInitRankConfig, int, (void **comm, int size, lp_nccl_id id, int rank, lp_nccl_config *config))           \
    X(ncclCommGetAsyncError, int, (void *comm, int *result))                                                           \
    X(ncclCommAbort, int, (void *comm))                                                                                \
    X(ncclGetErrorString, const char *, (int result))                                                                  \
    X(ncclGroupStart, int, (void))                                                                                     \
    X(ncclGroupEnd, int, (void))                                                                                       \
    X(ncclSend, int, (const void *data, size_t count, int type, int peer, void *comm, void *stream))                   \
    X(ncclRecv, int, (void *data, size_t count, int type, int peer, void *comm, void *stream))

typedef struct lp_nccl {
    void *library;
    int version;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration takes none */
#define LP_NCCL_MEMBER(name, result, parameters) result(*name) parameters;
    LP_NCCL_ENTRIES(LP_NCCL_MEMBER)
#undef LP_NCCL_MEMBER
} lp_nccl;

/* path NULL: libnccl.so.2. LP_E_UNSUPPORTED: it is not there, too old, or lacks an entry, which is named. */
lp_status lp_nccl_open(lp_nccl *out, const char *path, lp_error *err);
void lp_nccl_close(lp_nccl *nccl);

/* LP_E_DEVICE with the library's words, unless result is success or in progress. */
lp_status lp_nccl_check(const lp_nccl *nccl, int result, const char *verb, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
