/* SPDX-License-Identifier: Apache-2.0 */
/* The dtypes of safetensors: names and widths. */
#include "traces/base.h"

static const struct {
    const char *name;
    int bits;
} table[LP_DTYPE_COUNT] = {
    [LP_BOOL] = {"BOOL", 8},
    [LP_F4] = {"F4", 4},
    [LP_F6_E2M3] = {"F6_E2M3", 6},
    [LP_F6_E3M2] = {"F6_E3M2", 6},
    [LP_U8] = {"U8", 8},
    [LP_I8] = {"I8", 8},
    [LP_F8_E5M2] = {"F8_E5M2", 8},
    [LP_F8_E4M3] = {"F8_E4M3", 8},
    [LP_F8_E8M0] = {"F8_E8M0", 8},
    [LP_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [LP_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [LP_I16] = {"I16", 16},
    [LP_U16] = {"U16", 16},
    [LP_F16] = {"F16", 16},
    [LP_BF16] = {"BF16", 16},
    [LP_I32] = {"I32", 32},
    [LP_U32] = {"U32", 32},
    [LP_F32] = {"F32", 32},
    [LP_C64] = {"C64", 64},
    [LP_F64] = {"F64", 64},
    [LP_I64] = {"I64", 64},
    [LP_U64] = {"U64", 64},
};

static bool is_known(lp_dtype dtype)
{
    return (int)dtype > LP_DTYPE_NONE && (int)dtype < LP_DTYPE_COUNT;
}

const char *lp_dtype_name(lp_dtype dtype)
{
    return is_known(dtype) ? table[dtype].name : "?";
}

int lp_dtype_bits(lp_dtype dtype)
{
    return is_known(dtype) ? table[dtype].bits : 0;
}

lp_dtype lp_dtype_parse(const char *text, size_t text_bytes)
{
    for (int i = LP_DTYPE_NONE + 1; i < LP_DTYPE_COUNT; i++)
        if (strlen(table[i].name) == text_bytes && memcmp(table[i].name, text, text_bytes) == 0)
            return (lp_dtype)i;
    return LP_DTYPE_NONE;
}
