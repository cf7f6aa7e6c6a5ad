/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as other libraries hand them out. */
#include "replayer/replayer.h"
#include "traces/base.h"

enum { DL_HOST = 1, DL_CUDA = 2, DL_PINNED = 3, DL_MANAGED = 13 };

/* By type code and bits: DLDataTypeCode of DLPack 1.1. Complex counts both parts. */
static lp_dtype dtype_of(unsigned code, unsigned bits)
{
    static const struct {
        uint8_t code, bits;
        lp_dtype dtype;
    } table[] = {
        {0, 8, LP_I8},           {0, 16, LP_I16},     {0, 32, LP_I32},         {0, 64, LP_I64},     {1, 8, LP_U8},
        {1, 16, LP_U16},         {1, 32, LP_U32},     {1, 64, LP_U64},         {2, 16, LP_F16},     {2, 32, LP_F32},
        {2, 64, LP_F64},         {4, 16, LP_BF16},    {5, 64, LP_C64},         {6, 8, LP_BOOL},     {10, 8, LP_F8_E4M3},
        {11, 8, LP_F8_E4M3FNUZ}, {12, 8, LP_F8_E5M2}, {13, 8, LP_F8_E5M2FNUZ}, {14, 8, LP_F8_E8M0}, {15, 6, LP_F6_E2M3},
        {16, 6, LP_F6_E3M2},     {17, 4, LP_F4},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].code == code && table[i].bits == bits)
            return table[i].dtype;
    return LP_DTYPE_NONE;
}

/* Dtype, byte strides (NULL stays NULL) and first element. */
static lp_status describe(const lp_dl_tensor *t, int64_t stride[LP_DL_DIMS], lp_dtype *dtype, const int64_t **strides,
                          uint8_t **data, lp_error *err)
{
    *dtype = t->dtype.lanes == 1 ? dtype_of(t->dtype.code, t->dtype.bits) : LP_DTYPE_NONE;
    if (*dtype == LP_DTYPE_NONE)
        return lp_fail(err, LP_E_UNSUPPORTED, "a tensor of DLPack type code %d, %d bits and %d lanes is not supported",
                       t->dtype.code, t->dtype.bits, t->dtype.lanes);
    if (t->device.type != DL_HOST && t->device.type != DL_CUDA && t->device.type != DL_PINNED &&
        t->device.type != DL_MANAGED)
        return lp_fail(err, LP_E_UNSUPPORTED, "a tensor on DLPack device type %d is not supported",
                       (int)t->device.type);
    if (t->ndim < 0 || t->ndim > LP_DL_DIMS)
        return lp_fail(err, LP_E_LIMIT, "a tensor of %d dimensions is not supported", (int)t->ndim);
    *data = t->data == NULL ? NULL : (uint8_t *)t->data + t->byte_offset;
    *strides = NULL;
    if (t->strides == NULL)
        return LP_OK;
    const int64_t bits = lp_dtype_bits(*dtype);
    int64_t dense = 1;
    bool is_dense = true;
    for (int32_t i = t->ndim; i-- > 0;) {
        is_dense = is_dense && (t->shape[i] == 1 || t->strides[i] == dense);
        if (bits % 8 == 0 && !lp_mul(t->strides[i], bits / 8, &stride[i]))
            return lp_fail(err, LP_E_LIMIT, "a tensor has a stride of %lld elements", (long long)t->strides[i]);
        if (!lp_mul(dense, t->shape[i], &dense))
            return lp_fail(err, LP_E_LIMIT, "a tensor has more elements than can be counted");
    }
    if (is_dense || dense == 0)
        return LP_OK;
    if (bits % 8 != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "a strided tensor of %s is not supported", lp_dtype_name(*dtype));
    *strides = stride;
    return LP_OK;
}

lp_status lp_destination_of_dlpack(lp_destination_memory *out, int64_t stride[LP_DL_DIMS], const lp_dl_tensor *tensor,
                                   const char *name, lp_error *err)
{
    lp_dtype dtype;
    const int64_t *strides;
    uint8_t *data;
    LP_TRY(describe(tensor, stride, &dtype, &strides, &data, err));
    *out = (lp_destination_memory){
        .name = name, .dtype = dtype, .ndim = tensor->ndim, .shape = tensor->shape, .stride = strides, .data = data};
    return LP_OK;
}

lp_status lp_buffer_of_dlpack(lp_buffer *out, int64_t stride[LP_DL_DIMS], const lp_dl_tensor *tensor, lp_error *err)
{
    lp_dtype dtype;
    const int64_t *strides;
    uint8_t *data;
    LP_TRY(describe(tensor, stride, &dtype, &strides, &data, err));
    const bool is_host = tensor->device.type == DL_HOST || tensor->device.type == DL_PINNED;
    *out = (lp_buffer){.data = data,
                       .dtype = dtype,
                       .ndim = tensor->ndim,
                       .shape = tensor->shape,
                       .stride = strides,
                       .memory = is_host ? LP_SOURCE_HOST : LP_SOURCE_DEVICE};
    return LP_OK;
}
