/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cast table. A cast runs block by block, so that all pairs of kinds need one reader and one writer for each:
 *   load      the elements' bits, zero-extended
 *   read      what they mean: F64, in which every float kind is exact, or 64-bit integers in two's complement
 *   change    to the class that the destination wants
 *   write     the destination's bits
 *   store     them
 * Kinds narrower than F32 are always made from an F32, as torch does: F64 and I64 to BF16 round twice.
 */
#include "traces/base.h"
#include "traces/cast_float.h"

#include <math.h>

enum { BLOCK = 256 };

typedef enum value_class {
    CLASS_NONE, /* not in the table: F4, F6, C64 */
    CLASS_BOOL,
    CLASS_UNSIGNED,
    CLASS_SIGNED,
    CLASS_NARROW, /* a float kind that lp_float_kind describes */
    CLASS_E8M0,
    CLASS_F32,
    CLASS_F64
} value_class;

static const struct {
    value_class class;
    lp_float_kind kind; /* of CLASS_NARROW */
} table[LP_DTYPE_COUNT] = {
    [LP_BOOL] = {.class = CLASS_BOOL},
    [LP_U8] = {.class = CLASS_UNSIGNED},
    [LP_U16] = {.class = CLASS_UNSIGNED},
    [LP_U32] = {.class = CLASS_UNSIGNED},
    [LP_U64] = {.class = CLASS_UNSIGNED},
    [LP_I8] = {.class = CLASS_SIGNED},
    [LP_I16] = {.class = CLASS_SIGNED},
    [LP_I32] = {.class = CLASS_SIGNED},
    [LP_I64] = {.class = CLASS_SIGNED},
    [LP_F8_E5M2] = {CLASS_NARROW, LP_KIND_E5M2},
    [LP_F8_E4M3] = {CLASS_NARROW, LP_KIND_E4M3},
    [LP_F8_E5M2FNUZ] = {CLASS_NARROW, LP_KIND_E5M2FNUZ},
    [LP_F8_E4M3FNUZ] = {CLASS_NARROW, LP_KIND_E4M3FNUZ},
    [LP_F16] = {CLASS_NARROW, LP_KIND_F16},
    [LP_BF16] = {CLASS_NARROW, LP_KIND_BF16},
    [LP_F8_E8M0] = {.class = CLASS_E8M0},
    [LP_F32] = {.class = CLASS_F32},
    [LP_F64] = {.class = CLASS_F64},
};

typedef union block {
    double real[BLOCK];
    uint64_t word[BLOCK];
} block;

static bool is_integer(value_class class)
{
    return class == CLASS_UNSIGNED || class == CLASS_SIGNED;
}

static bool is_real(value_class class)
{
    return class >= CLASS_NARROW;
}

lp_cast_kind lp_cast_kind_of(lp_dtype from, lp_dtype to)
{
    if (lp_dtype_bits(from) == 0 || lp_dtype_bits(to) == 0)
        return LP_CAST_UNSUPPORTED;
    if (from == to)
        return LP_CAST_BYTES;
    const value_class a = table[from].class, b = table[to].class;
    if (a == CLASS_NONE || b == CLASS_NONE)
        return LP_CAST_UNSUPPORTED;
    return is_integer(a) && is_integer(b) && lp_dtype_bits(from) == lp_dtype_bits(to) ? LP_CAST_BYTES : LP_CAST_VALUES;
}

/* ---- bits and memory ---- */

static double real_of_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static uint32_t f32_of_real(double real)
{
    const float value = (float)real;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Arrays may lie unaligned. */
#define LOAD(type)                                                                                                     \
    for (int i = 0; i < count; i++) {                                                                                  \
        type x;                                                                                                        \
        memcpy(&x, src + (size_t)i * sizeof x, sizeof x);                                                              \
        b->word[i] = x;                                                                                                \
    }

static void load(const unsigned char *src, int bytes, int count, block *b)
{
    if (bytes == 1)
        LOAD(uint8_t)
    else if (bytes == 2)
        LOAD(uint16_t)
    else if (bytes == 4)
        LOAD(uint32_t)
    else
        LOAD(uint64_t)
}

#define STORE(type)                                                                                                    \
    for (int i = 0; i < count; i++) {                                                                                  \
        const type x = (type)b->word[i];                                                                               \
        memcpy(dst + (size_t)i * sizeof x, &x, sizeof x);                                                              \
    }

static void store(const block *b, int count, int bytes, unsigned char *dst)
{
    if (bytes == 1)
        STORE(uint8_t)
    else if (bytes == 2)
        STORE(uint16_t)
    else if (bytes == 4)
        STORE(uint32_t)
    else
        STORE(uint64_t)
}

/* ---- meaning ---- */

/* Loaded bits to values. The words of U8 to U64, and those of F64, are values already. */
static void read_block(lp_dtype from, int count, block *b)
{
    const value_class class = table[from].class;
    const lp_float_kind kind = table[from].kind;
    const int unused = 64 - lp_dtype_bits(from);
    if (class == CLASS_BOOL)
        for (int i = 0; i < count; i++)
            b->word[i] = b->word[i] != 0;
    else if (class == CLASS_SIGNED)
        for (int i = 0; i < count; i++)
            b->word[i] = (uint64_t)((int64_t)(b->word[i] << unused) >> unused);
    else if (class == CLASS_NARROW)
        for (int i = 0; i < count; i++)
            b->real[i] = real_of_f32(lp_float_widen((uint32_t)b->word[i], kind));
    else if (class == CLASS_E8M0)
        for (int i = 0; i < count; i++)
            b->real[i] = real_of_f32(lp_e8m0_widen((uint32_t)b->word[i]));
    else if (class == CLASS_F32)
        for (int i = 0; i < count; i++)
            b->real[i] = real_of_f32((uint32_t)b->word[i]);
}

/* Truncates towards zero; what does not fit becomes the nearest value that does, and NaN becomes 0. */
static uint64_t integer_of(double value, bool is_signed, int bits)
{
    if (isnan(value))
        return 0;
    if (!is_signed) {
        if (value <= 0)
            return 0;
        return value >= ldexp(1, bits) ? UINT64_MAX >> (64 - bits) : (uint64_t)value;
    }
    const double limit = ldexp(1, bits - 1);
    const uint64_t most = UINT64_MAX >> (65 - bits);
    if (value >= limit)
        return most;
    return value <= -limit ? ~most : (uint64_t)(int64_t)value;
}

/* Everything narrower than F64 is rounded to F32 first. */
static double real_of_integer(uint64_t word, bool is_signed, bool is_double)
{
    if (is_signed)
        return is_double ? (double)(int64_t)word : (double)(float)(int64_t)word;
    return is_double ? (double)word : (double)(float)word;
}

/* Integer to integer needs nothing: storing the low bits wraps. */
static void change_block(lp_dtype from, lp_dtype to, int count, block *b)
{
    const value_class a = table[from].class, c = table[to].class;
    const int bits = lp_dtype_bits(to);
    if (c == CLASS_BOOL)
        for (int i = 0; i < count; i++)
            b->word[i] = is_real(a) ? !(b->real[i] == 0) : b->word[i] != 0;
    else if (is_integer(c) && is_real(a))
        for (int i = 0; i < count; i++)
            b->word[i] = integer_of(b->real[i], c == CLASS_SIGNED, bits);
    else if (is_real(c) && !is_real(a))
        for (int i = 0; i < count; i++)
            b->real[i] = real_of_integer(b->word[i], a == CLASS_SIGNED, c == CLASS_F64);
}

/* Values to bits to be stored. */
static void write_block(lp_dtype to, int count, block *b)
{
    const value_class class = table[to].class;
    const lp_float_kind kind = table[to].kind;
    if (class == CLASS_NARROW)
        for (int i = 0; i < count; i++)
            b->word[i] = lp_float_narrow(f32_of_real(b->real[i]), kind);
    else if (class == CLASS_E8M0)
        for (int i = 0; i < count; i++)
            b->word[i] = lp_e8m0_narrow(f32_of_real(b->real[i]));
    else if (class == CLASS_F32)
        for (int i = 0; i < count; i++)
            b->word[i] = f32_of_real(b->real[i]);
}

/* The commonest cast by far needs no block: 16 zero bits are added, whatever the value. */
static void bf16_to_f32(const unsigned char *src, unsigned char *dst, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t code;
        memcpy(&code, src + i * 2, sizeof code);
        const uint32_t bits = (uint32_t)code << 16;
        memcpy(dst + i * 4, &bits, sizeof bits);
    }
}

lp_status lp_cast_elements(lp_dtype from, const void *src, lp_dtype to, void *dst, int64_t count)
{
    const lp_cast_kind kind = lp_cast_kind_of(from, to);
    const int from_bits = lp_dtype_bits(from), to_bits = lp_dtype_bits(to);
    int64_t from_total, to_total;
    if (kind == LP_CAST_UNSUPPORTED)
        return LP_E_UNSUPPORTED;
    if (count < 0 || !lp_mul(count, from_bits, &from_total) || !lp_mul(count, to_bits, &to_total))
        return LP_E_ARGUMENT;
    if (count == 0)
        return LP_OK;
    if (kind == LP_CAST_BYTES) {
        if (from_total % 8 != 0)
            return LP_E_ARGUMENT;
        memcpy(dst, src, (size_t)(from_total / 8));
        return LP_OK;
    }
    if (from == LP_BF16 && to == LP_F32) {
        bf16_to_f32(src, dst, count);
        return LP_OK;
    }
    const unsigned char *in = src;
    unsigned char *out = dst;
    for (int64_t done = 0; done < count; done += BLOCK) {
        const int part = count - done < BLOCK ? (int)(count - done) : BLOCK;
        block b;
        load(in + done * (from_bits / 8), from_bits / 8, part, &b);
        read_block(from, part, &b);
        change_block(from, to, part, &b);
        write_block(to, part, &b);
        store(&b, part, to_bits / 8, out + done * (to_bits / 8));
    }
    return LP_OK;
}
