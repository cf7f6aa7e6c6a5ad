/* SPDX-License-Identifier: Apache-2.0 */
/* Integer columns and compressed frames of trace files. */
#include "traces/column_codec.h"

#include <xxhash.h>
#include <zstd.h>
#include <zstd_errors.h>

/* Values stand in files. */
typedef enum lp_column_form {
    FORM_CONSTANT = 0, /* one value */
    FORM_LINEAR = 1,   /* first, step */
    FORM_PLAIN = 2,    /* every value */
    FORM_DELTA = 3,    /* first, then differences */
    FORM_CURVE = 4     /* first, first difference, then differences of differences */
} lp_column_form;

enum { VARINT_BYTES = 10, FRAME_DIGEST_BYTES = 8, ZSTD_LEVEL = 9 };

static uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0);
}

static int64_t unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1 ^ (value & 1 ? UINT64_MAX : 0));
}

/* Differences wrap: they are exact modulo 2^64, so no value is out of reach. */
static int64_t difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int64_t sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int varint_bytes(uint64_t value)
{
    const int bits = value == 0 ? 1 : 64 - __builtin_clzll(value);
    return (bits + 6) / 7;
}

static uint8_t *put_u64(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

void lp_pack_u64(lp_text *out, uint64_t value)
{
    uint8_t raw[VARINT_BYTES];
    const uint8_t *end = put_u64(raw, value);
    lp_text_add(out, (const char *)raw, (size_t)(end - raw));
}

void lp_pack_i64(lp_text *out, int64_t value)
{
    lp_pack_u64(out, zigzag(value));
}

void lp_pack_text(lp_text *out, const char *text)
{
    const size_t bytes = strlen(text);
    lp_pack_u64(out, bytes);
    lp_text_add(out, text, bytes);
}

/* Makes room for `bytes` more, or marks the text as failed. */
static uint8_t *reserve(lp_text *out, int64_t bytes)
{
    if (out->failed || !lp_grow(out->alloc, (void **)&out->data, &out->capacity, out->bytes + bytes + 1, 1)) {
        out->failed = true;
        return NULL;
    }
    return (uint8_t *)out->data + out->bytes;
}

static void finish(lp_text *out, const uint8_t *end)
{
    out->bytes = end - (const uint8_t *)out->data;
    out->data[out->bytes] = '\0';
}

static lp_column_form choose_form(const int64_t *value, int64_t count, int64_t *bytes)
{
    int64_t plain = 0, delta = 0, curve = 0, step = 0;
    bool constant = true, linear = true;
    for (int64_t i = 0; i < count; i++) {
        const int64_t d = i == 0 ? value[0] : difference(value[i], value[i - 1]);
        const int64_t dd = i < 2 ? d : difference(d, step);
        constant = constant && (i == 0 || d == 0);
        linear = linear && (i < 2 || dd == 0);
        plain += varint_bytes(zigzag(value[i]));
        delta += varint_bytes(zigzag(d));
        curve += varint_bytes(zigzag(dd));
        step = d;
    }
    *bytes = 2 * VARINT_BYTES;
    if (constant)
        return FORM_CONSTANT;
    if (linear)
        return FORM_LINEAR;
    *bytes = plain;
    if (plain <= delta && plain <= curve)
        return FORM_PLAIN;
    *bytes = delta <= curve ? delta : curve;
    return delta <= curve ? FORM_DELTA : FORM_CURVE;
}

void lp_pack_column(lp_text *out, const int64_t *value, int64_t count)
{
    if (count == 0)
        return;
    int64_t bytes;
    const lp_column_form form = choose_form(value, count, &bytes);
    uint8_t *at = reserve(out, bytes + 1);
    if (at == NULL)
        return;
    *at++ = (uint8_t)form;
    const int64_t written = form == FORM_CONSTANT ? 1 : form == FORM_LINEAR ? 2 : count;
    int64_t step = 0;
    for (int64_t i = 0; i < written; i++) {
        const int64_t d = i == 0 ? value[0] : difference(value[i], value[i - 1]);
        int64_t coded = d;
        if (form == FORM_PLAIN)
            coded = value[i];
        else if (form == FORM_CURVE && i >= 2)
            coded = difference(d, step);
        at = put_u64(at, zigzag(coded));
        step = d;
    }
    finish(out, at);
}

uint64_t lp_unpack_u64(lp_unpacker *in)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70 && in->at < in->end; shift += 7) {
        const uint8_t byte = *in->at++;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            /* One value has one spelling, so that equal content means equal bytes. */
            if (byte == 0 && shift > 0)
                break;
            return value;
        }
    }
    in->failed = true;
    in->at = in->end;
    return 0;
}

int64_t lp_unpack_i64(lp_unpacker *in)
{
    return unzigzag(lp_unpack_u64(in));
}

int64_t lp_unpack_range(lp_unpacker *in, int64_t least, int64_t most)
{
    const int64_t value = lp_unpack_i64(in);
    if (!in->failed && value >= least && value <= most)
        return value;
    in->failed = true;
    return least;
}

/* Bytes of a text inside the input, not terminated; a NUL in it fails. */
static const char *unpack_text(lp_unpacker *in, size_t *bytes)
{
    const uint64_t length = lp_unpack_u64(in);
    const uint8_t *text = in->at;
    *bytes = 0;
    if (in->failed || length > (uint64_t)(in->end - in->at) || memchr(text, 0, (size_t)length) != NULL) {
        in->failed = true;
        return "";
    }
    in->at += length;
    *bytes = (size_t)length;
    return (const char *)text;
}

const char *lp_unpack_text_copy(lp_unpacker *in, lp_arena *arena, bool *arena_failed)
{
    size_t bytes;
    const char *text = unpack_text(in, &bytes);
    if (in->failed)
        return NULL;
    const char *copy = lp_arena_text(arena, text, bytes);
    *arena_failed = copy == NULL;
    return copy;
}

void lp_unpack_column(lp_unpacker *in, int64_t *value, int64_t count)
{
    if (count == 0)
        return;
    const uint64_t form = in->at < in->end ? *in->at++ : UINT64_MAX;
    int64_t step = 0;
    if (form > FORM_CURVE) {
        in->failed = true;
        return;
    }
    value[0] = lp_unpack_i64(in);
    if (form == FORM_LINEAR)
        step = lp_unpack_i64(in);
    /* A failed read gives zeros and does not move: the loops stay bounded by `count`. */
    for (int64_t i = 1; i < count; i++) {
        if (form == FORM_PLAIN) {
            value[i] = lp_unpack_i64(in);
            continue;
        }
        if (form == FORM_DELTA || (form == FORM_CURVE && i == 1))
            step = lp_unpack_i64(in);
        else if (form == FORM_CURVE)
            step = sum(step, lp_unpack_i64(in));
        value[i] = sum(value[i - 1], step);
    }
}

void lp_codec_free(lp_codec *codec)
{
    ZSTD_freeCCtx(codec->compress);
    ZSTD_freeDCtx(codec->expand);
    *codec = (lp_codec){0};
}

static ZSTD_CCtx *compressor(lp_codec *codec)
{
    if (codec->compress != NULL)
        return codec->compress;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    if (context == NULL)
        return NULL;
    if (ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, ZSTD_LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 1)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1))) {
        ZSTD_freeCCtx(context);
        return NULL;
    }
    codec->compress = context;
    return context;
}

lp_status lp_frame_pack(lp_codec *codec, const void *raw, int64_t bytes, lp_text *out, lp_error *err)
{
    ZSTD_CCtx *context = compressor(codec);
    if (context == NULL)
        return lp_fail_memory(err);
    const size_t bound = ZSTD_compressBound((size_t)bytes);
    uint8_t *at = reserve(out, (int64_t)bound + VARINT_BYTES + FRAME_DIGEST_BYTES);
    if (at == NULL)
        return lp_fail_memory(err);
    at = put_u64(at, (uint64_t)bytes);
    const uint64_t digest = XXH3_64bits(raw, (size_t)bytes);
    for (int i = 0; i < FRAME_DIGEST_BYTES; i++)
        *at++ = (uint8_t)(digest >> (8 * i));
    const size_t written = ZSTD_compress2(context, at, bound, raw, (size_t)bytes);
    if (ZSTD_isError(written))
        return ZSTD_getErrorCode(written) == ZSTD_error_memory_allocation
                   ? lp_fail_memory(err)
                   : lp_fail(err, LP_E_INTERNAL, "cannot compress: %s", ZSTD_getErrorName(written));
    finish(out, at + written);
    return LP_OK;
}

int64_t lp_frame_raw_bytes(const void *frame, int64_t bytes)
{
    lp_unpacker in = {.at = frame, .end = (const uint8_t *)frame + bytes};
    const uint64_t raw = lp_unpack_u64(&in);
    return in.failed || raw > INT64_MAX || in.end - in.at < FRAME_DIGEST_BYTES ? -1 : (int64_t)raw;
}

lp_status lp_frame_unpack(lp_codec *codec, const lp_alloc *alloc, const void *frame, int64_t bytes, int64_t *budget,
                          const char *what, uint8_t **raw, int64_t *raw_bytes, lp_error *err)
{
    lp_unpacker in = {.at = frame, .end = (const uint8_t *)frame + bytes};
    const int64_t length = lp_frame_raw_bytes(frame, bytes);
    if (length < 0)
        return lp_fail(err, LP_E_CORRUPT, "%s has no head", what);
    if (length > *budget)
        return lp_fail(err, LP_E_HOSTILE, "%s claims to expand to %lld bytes, which exceeds the budget", what,
                       (long long)length);
    lp_unpack_u64(&in);
    uint64_t digest = 0;
    for (int i = 0; i < FRAME_DIGEST_BYTES; i++)
        digest |= (uint64_t)*in.at++ << (8 * i);
    const size_t left = (size_t)(in.end - in.at);
    if (ZSTD_getFrameContentSize(in.at, left) != (unsigned long long)length ||
        ZSTD_findFrameCompressedSize(in.at, left) != left)
        return lp_fail(err, LP_E_CORRUPT, "%s contradicts its stated length of %lld bytes", what, (long long)length);
    if (codec->expand == NULL && (codec->expand = ZSTD_createDCtx()) == NULL)
        return lp_fail_memory(err);
    uint8_t *block = lp_allocate(alloc, (size_t)length);
    if (block == NULL)
        return lp_fail_memory(err);
    const size_t got = ZSTD_decompressDCtx(codec->expand, block, (size_t)length, in.at, left);
    if (got != (size_t)length || XXH3_64bits(block, (size_t)length) != digest) {
        lp_release(alloc, block);
        return lp_fail(err, LP_E_CORRUPT, "%s is damaged", what);
    }
    *budget -= length;
    *raw = block;
    *raw_bytes = length;
    return LP_OK;
}
