/* SPDX-License-Identifier: Apache-2.0 */
/* What nccl_table.h declares by itself, held against NCCL's own header where that is installed. No code. */
#include "replayer/nccl_table.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

#include <type_traits>

static_assert((int)ncclSuccess == (int)LP_NCCL_SUCCESS, "ncclSuccess");
static_assert((int)ncclRemoteError == (int)LP_NCCL_REMOTE, "ncclRemoteError");
static_assert((int)ncclInProgress == (int)LP_NCCL_IN_PROGRESS, "ncclInProgress");
static_assert((int)ncclUint8 == (int)LP_NCCL_UINT8, "ncclUint8");
static_assert(sizeof(ncclUniqueId) == sizeof(lp_nccl_id), "ncclUniqueId");
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int), "enumerations are ints");
static_assert(offsetof(ncclConfig_t, size) == offsetof(lp_nccl_config, size), "ncclConfig_t.size");
static_assert(offsetof(ncclConfig_t, magic) == offsetof(lp_nccl_config, magic), "ncclConfig_t.magic");
static_assert(offsetof(ncclConfig_t, version) == offsetof(lp_nccl_config, version), "ncclConfig_t.version");
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(lp_nccl_config, blocking), "ncclConfig_t.blocking");

static_assert(std::is_same<decltype(&ncclSend), ncclResult_t (*)(const void *, size_t, ncclDataType_t, int, ncclComm_t,
                                                                 cudaStream_t)>::value,
              "ncclSend");
static_assert(std::is_same<decltype(&ncclRecv),
                           ncclResult_t (*)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)>::value,
              "ncclRecv");
static_assert(std::is_same<decltype(&ncclCommInitRankConfig),
                           ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *)>::value,
              "ncclCommInitRankConfig");
static_assert(std::is_same<decltype(&ncclCommGetAsyncError), ncclResult_t (*)(ncclComm_t, ncclResult_t *)>::value,
              "ncclCommGetAsyncError");
static_assert(std::is_same<decltype(&ncclCommAbort), ncclResult_t (*)(ncclComm_t)>::value, "ncclCommAbort");
static_assert(std::is_same<decltype(&ncclGetUniqueId), ncclResult_t (*)(ncclUniqueId *)>::value, "ncclGetUniqueId");
static_assert(std::is_same<decltype(&ncclGetVersion), ncclResult_t (*)(int *)>::value, "ncclGetVersion");

/* The initialiser of this very header carries the magic that is written by hand. */
constexpr ncclConfig_t initialised = NCCL_CONFIG_INITIALIZER;
static_assert(initialised.magic == LP_NCCL_CONFIG_MAGIC, "ncclConfig_t's magic");
#endif
