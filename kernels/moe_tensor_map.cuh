/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: how the copy engine finds boxes of a tensor in memory. Host code. */
#ifndef LOADPLAN_MOE_TENSOR_MAP_CUH
#define LOADPLAN_MOE_TENSOR_MAP_CUH

#include "kernels/moe_launch.cuh"

#include <cuda.h>

typedef CUresult (*moe_encode_function)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                        const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                        CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                        CUtensorMapFloatOOBfill);

/* The driver's function, looked up once: every thread would find the same. */
inline lp_status moe_find_encode(moe_encode_function *encode, lp_error *err)
{
    static moe_encode_function found;
    if (found != nullptr) {
        *encode = found;
        return LP_OK;
    }
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    LP_TRY(moe_launched(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result),
        "the search for tensor maps", err));
    if (result != cudaDriverEntryPointSuccess || entry == nullptr)
        return lp_fail(err, LP_E_UNSUPPORTED, "the driver has no tensor maps");
    *encode = found = reinterpret_cast<moe_encode_function>(entry);
    return LP_OK;
}

/* Rows of weights cut into pieces of 128 bytes, as [pieces][rows][128 bytes] with the 128-byte swizzle; a box is so
 * many rows of so many pieces. Pieces past the end of a row read as zeros. No promotion in the L2 cache: fetching 256
 * bytes for each 128 costs a tenth of the read rate (docs/measurements). */
inline lp_status moe_piece_map(CUtensorMap *map, const void *data, int64_t rows, int64_t row_bytes, int box_rows,
                               int box_pieces, lp_error *err)
{
    enum { PIECE = 128 };
    moe_encode_function encode = nullptr;
    LP_TRY(moe_find_encode(&encode, err));
    const cuuint64_t size[3] = {PIECE, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(row_bytes / PIECE)};
    const cuuint64_t stride[2] = {static_cast<cuuint64_t>(row_bytes), PIECE};
    const cuuint32_t box[3] = {PIECE, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_pieces)};
    const cuuint32_t step[3] = {1, 1, 1};
    const CUresult code = encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<void *>(data), size, stride, box,
                                 step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code != CUDA_SUCCESS)
        return lp_fail(err, LP_E_DEVICE, "the driver refused a tensor map of %lld rows of %lld bytes (code %d)",
                       static_cast<long long>(rows), static_cast<long long>(row_bytes), static_cast<int>(code));
    return LP_OK;
}

#endif
