/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short runs and casts.
 *
 * Destination order alone would touch a cache line of the source once for every few bytes when the source runs on along
 * an outer mode (a transpose: block scales by words). That mode is the column mode. A tile is LP_TABLE_WORDS steps of
 * the modes inside it, whose offsets stand in a table, times a few cache lines along the column mode; both sides of a
 * tile stay in the cache. Words of 1, 2, 4 and 8 bytes are transposed in registers, 16 bytes at a time, where both
 * sides lie dense.
 */
#include "replayer/exec_fast.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    TILE_COLUMN_BYTES = 256, /* source bytes of one row of a tile */
    STREAM_WORD = 4,         /* narrower words write to more columns at once than the write buffers can hold */
    CAST_ELEMENTS = 512
};

/* Offsets of steps first .. first + count - 1 of the modes around one word. */
typedef struct table {
    int64_t first, count;
    int64_t src[LP_TABLE_WORDS], dst[LP_TABLE_WORDS];
} table;

static void fill_table(table *t, const lp_mode *mode, int32_t rank, int64_t first, int64_t count)
{
    lp_odometer o;
    lp_odometer_set(&o, mode, rank, first);
    t->first = first;
    t->count = count;
    for (int64_t i = 0; i < count; i++, lp_odometer_next(&o)) {
        t->src[i] = o.src;
        t->dst[i] = o.dst;
    }
}

/* ---- 16 bytes at a time ---- */

typedef uint8_t vector __attribute__((vector_size(16)));
typedef uint8_t bytes_1 __attribute__((vector_size(16)));
typedef uint16_t bytes_2 __attribute__((vector_size(16)));
typedef uint32_t bytes_4 __attribute__((vector_size(16)));
typedef uint64_t bytes_8 __attribute__((vector_size(16)));

static inline vector load_vector(const uint8_t *from)
{
    vector v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store_vector(uint8_t *to, vector v, bool streams)
{
#ifdef __SSE2__
    if (streams) {
        _mm_stream_si128((void *)to, (__m128i)v);
        return;
    }
#else
    (void)streams;
#endif
    memcpy(to, &v, sizeof v);
}

#define LOW_1(a, b)                                                                                                    \
    (vector) __builtin_shufflevector((bytes_1)(a), (bytes_1)(b), 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_1(a, b)                                                                                                   \
    (vector) __builtin_shufflevector((bytes_1)(a), (bytes_1)(b), 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, \
                                     15, 31)
#define LOW_2(a, b)  (vector) __builtin_shufflevector((bytes_2)(a), (bytes_2)(b), 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_2(a, b) (vector) __builtin_shufflevector((bytes_2)(a), (bytes_2)(b), 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_4(a, b)  (vector) __builtin_shufflevector((bytes_4)(a), (bytes_4)(b), 0, 4, 1, 5)
#define HIGH_4(a, b) (vector) __builtin_shufflevector((bytes_4)(a), (bytes_4)(b), 2, 6, 3, 7)
#define LOW_8(a, b)  (vector) __builtin_shufflevector((bytes_8)(a), (bytes_8)(b), 0, 2)
#define HIGH_8(a, b) (vector) __builtin_shufflevector((bytes_8)(a), (bytes_8)(b), 1, 3)

/* Asks for the source of rows that come next: where rows are longer than a tile, no hardware guesses where they lie. */
static inline void fetch_rows(const table *t, int64_t first, int64_t end, const uint8_t *src, int64_t bytes)
{
    for (int64_t i = first; i < end && i < t->count; i++)
        for (int64_t off = 0; off < bytes; off += 64)
            __builtin_prefetch(src + t->src[i] + off);
}

/* Rows from `line` that end with a cache line of the destination, or with the dense words that it is among. */
static inline int64_t line_end(const lp_piece *p, const table *t, int64_t line, int64_t rows, const uint8_t *dst)
{
    const int64_t place = (int64_t)((uintptr_t)(dst + t->dst[line]) & 63);
    const int64_t left = place % 16 == 0 ? 64 - place : 64; /* vectors that cross lines cannot be ordered by them */
    const int64_t by_line = line + left / p->run, by_run = line - (t->first + line) % p->dense + p->dense;
    const int64_t end = by_line < by_run ? by_line : by_run;
    return end < rows ? end : rows;
}

/* Asks for the cache lines that the next rows write, where they will not be written whole. */
static inline void fetch_columns(const lp_piece *p, uint8_t *dst, int64_t columns)
{
    for (int64_t k = 0; k < columns; k++)
        __builtin_prefetch(dst + k * p->column.dst_stride, 1);
}

/*
 * `rows` words down (from the table, each 16 / width of them dense in the destination) by `columns` words along, both
 * multiples of 16 / width. Interleaving the first half of the registers with the second one, log2 of their number
 * times, transposes. The destination gets up to a cache line of a column before the next column; whole lines may be
 * streamed.
 */
#define TRANSPOSE(width, log)                                                                                          \
    static void transpose_##width(const lp_piece *p, const table *t, int64_t rows, int64_t columns, uint8_t *dst,      \
                                  const uint8_t *src)                                                                  \
    {                                                                                                                  \
        enum { N = 16 / (width) };                                                                                     \
        for (int64_t line = 0, end; line < rows; line = end) {                                                         \
            end = line_end(p, t, line, rows, dst);                                                                     \
            const bool streams = p->streams && end - line == 4 * N;                                                    \
            const int64_t after = end < rows ? line_end(p, t, end, rows, dst) : end;                                   \
            if (p->segments > 1)                                                                                       \
                fetch_rows(t, end, after, src, columns *(width));                                                      \
            if (after > end && !(p->streams && after - end == 4 * N))                                                  \
                fetch_columns(p, dst + t->dst[end], columns);                                                          \
            for (int64_t k = 0; k < columns; k += N)                                                                   \
                for (int64_t i = line; i < end; i += N) {                                                              \
                    vector r[N], s[N];                                                                                 \
                    for (int j = 0; j < N; j++)                                                                        \
                        r[j] = load_vector(src + t->src[i + j] + k * (width));                                         \
                    for (int step = 0; step < (log); step++) {                                                         \
                        for (int j = 0; j < N / 2; j++) {                                                              \
                            s[2 * j] = LOW_##width(r[j], r[j + N / 2]);                                                \
                            s[2 * j + 1] = HIGH_##width(r[j], r[j + N / 2]);                                           \
                        }                                                                                              \
                        for (int j = 0; j < N; j++)                                                                    \
                            r[j] = s[j];                                                                               \
                    }                                                                                                  \
                    for (int j = 0; j < N; j++)                                                                        \
                        store_vector(dst + t->dst[i] + (k + j) * p->column.dst_stride, r[j], streams);                 \
                }                                                                                                      \
        }                                                                                                              \
    }
TRANSPOSE(1, 4)
TRANSPOSE(2, 3)
TRANSPOSE(4, 2)
TRANSPOSE(8, 1)

/* ---- word by word ---- */

/* Two moves that overlap in the middle are cheaper than a call or a loop. */
static inline void copy_short(uint8_t *dst, const uint8_t *src, int64_t run)
{
#define BOTH_ENDS(half)                                                                                                \
    do {                                                                                                               \
        uint8_t a[half], b[half];                                                                                      \
        memcpy(a, src, half);                                                                                          \
        memcpy(b, src + run - (half), half);                                                                           \
        memcpy(dst, a, half);                                                                                          \
        memcpy(dst + run - (half), b, half);                                                                           \
    } while (0)
    if (run >= 32)
        BOTH_ENDS(32);
    else if (run >= 16)
        BOTH_ENDS(16);
    else if (run >= 8)
        BOTH_ENDS(8);
    else if (run >= 4)
        BOTH_ENDS(4);
    else if (run >= 2)
        BOTH_ENDS(2);
    else
        *dst = *src;
#undef BOTH_ENDS
}

/* Rows [row, rows) of the table by columns [column, columns). */
static void move_words(const lp_piece *p, const table *t, int64_t row, int64_t rows, int64_t column, int64_t columns,
                       uint8_t *dst, const uint8_t *src)
{
    const int64_t from_step = p->column.src_stride, to_step = p->column.dst_stride;
#define MOVE(copy)                                                                                                     \
    for (int64_t i = row; i < rows; i++) {                                                                             \
        const uint8_t *from = src + t->src[i];                                                                         \
        uint8_t *to = dst + t->dst[i];                                                                                 \
        for (int64_t k = column; k < columns; k++)                                                                     \
            (copy);                                                                                                    \
    }                                                                                                                  \
    break
    switch (p->run) {
    case 1:
        MOVE(to[k * to_step] = from[k * from_step]);
    case 2:
        MOVE(memcpy(to + k * to_step, from + k * from_step, 2));
    case 4:
        MOVE(memcpy(to + k * to_step, from + k * from_step, 4));
    case 8:
        MOVE(memcpy(to + k * to_step, from + k * from_step, 8));
    case 16:
        MOVE(memcpy(to + k * to_step, from + k * from_step, 16));
    default:
        MOVE(copy_short(to + k * to_step, from + k * from_step, p->run));
    }
#undef MOVE
}

/* ---- tiles ---- */

static void move_tile(const lp_piece *p, const table *t, int64_t columns, uint8_t *dst, const uint8_t *src)
{
    const int64_t lanes = p->lanes; /* words in 16 bytes; 0: registers are of no use */
    int64_t rows = 0, along = 0;
    if (lanes > 0) {
        rows = t->count / lanes * lanes;
        along = columns / lanes * lanes;
        if (p->run == 1)
            transpose_1(p, t, rows, along, dst, src);
        else if (p->run == 2)
            transpose_2(p, t, rows, along, dst, src);
        else if (p->run == 4)
            transpose_4(p, t, rows, along, dst, src);
        else
            transpose_8(p, t, rows, along, dst, src);
    }
    if (along < columns)
        move_words(p, t, 0, rows, along, columns, dst, src);
    move_words(p, t, rows, t->count, 0, columns, dst, src);
}

/* Units are tiles: around them the outer modes, then blocks of the table, then blocks of columns. */
static void move_tiles(const lp_piece *p, int64_t first, int64_t end)
{
    const int64_t blocks = (p->words + LP_TABLE_WORDS - 1) / LP_TABLE_WORDS;
    const lp_mode *inner = p->mode + p->outer;
    lp_odometer o;
    table t;
    t.count = 0;
    lp_odometer_set(&o, p->mode, p->outer, first / (blocks * p->segments));
    for (int64_t unit = first; unit < end; unit++) {
        const int64_t start = unit / p->segments % blocks * LP_TABLE_WORDS;
        const int64_t column = unit % p->segments * p->segment;
        const int64_t columns = p->column.extent - column < p->segment ? p->column.extent - column : p->segment;
        if (t.count == 0 || t.first != start)
            fill_table(&t, inner, p->rank - p->outer, start,
                       p->words - start < LP_TABLE_WORDS ? p->words - start : LP_TABLE_WORDS);
        move_tile(p, &t, columns, p->dst + o.dst + column * p->column.dst_stride,
                  p->src + o.src + column * p->column.src_stride);
        if (unit % (blocks * p->segments) == blocks * p->segments - 1)
            lp_odometer_next(&o);
    }
}

/* The mode along which the source moves by the least, unless that is the innermost one, where nothing is to be won. */
static int32_t find_column(const lp_piece *p)
{
    int32_t best = -1;
    int64_t least = 64; /* a cache line */
    for (int32_t m = 0; m < p->rank; m++) {
        const int64_t stride = p->mode[m].src_stride < 0 ? -p->mode[m].src_stride : p->mode[m].src_stride;
        if (stride > 0 && stride < least) {
            least = stride;
            best = m;
        }
    }
    return best == p->rank - 1 ? -1 : best;
}

/* Words in a row in the destination, over the innermost modes. */
static int64_t dense_words(const lp_piece *p)
{
    int64_t words = 1;
    for (int32_t m = p->rank - 1; m >= p->outer && p->mode[m].dst_stride == words * p->run; m--)
        words *= p->mode[m].extent;
    return words;
}

/* Whether the cache lines of all columns and outer steps begin at the same rows, and vectors at multiples of 16. */
static bool has_common_lines(const lp_piece *p)
{
    int64_t strides = p->column.dst_stride;
    for (int32_t m = 0; m < p->rank; m++)
        if (p->mode[m].dst_stride >= p->dense * p->run)
            strides |= p->mode[m].dst_stride;
    return strides % 64 == 0 && (uintptr_t)p->dst % 16 == 0;
}

void lp_piece_plan_words(lp_piece *p)
{
    const int32_t column = find_column(p);
    p->column = (lp_mode){1, 0, 0};
    p->outer = 0;
    if (column >= 0) {
        p->column = p->mode[column];
        p->rank--;
        memmove(&p->mode[column], &p->mode[column + 1], (size_t)(p->rank - column) * sizeof p->mode[0]);
        p->outer = column;
    }
    p->words = 1;
    int64_t outer = 1;
    for (int32_t m = 0; m < p->rank; m++)
        *(m < p->outer ? &outer : &p->words) *= p->mode[m].extent;
    p->dense = dense_words(p);
    const bool is_word = p->run == 1 || p->run == 2 || p->run == 4 || p->run == 8;
    p->lanes = 0;
    if (is_word && p->column.src_stride == p->run && p->dense % (16 / p->run) == 0)
        p->lanes = (int32_t)(16 / p->run);
    p->streams =
        p->streams && p->lanes > 0 && p->run >= STREAM_WORD && p->dense * p->run % 64 == 0 && has_common_lines(p);
    const int64_t stride = p->column.src_stride < 0 ? -p->column.src_stride : p->column.src_stride;
    p->segment = stride == 0 ? 1 : TILE_COLUMN_BYTES / stride;
    p->segments = (p->column.extent + p->segment - 1) / p->segment;
    p->units = outer * ((p->words + LP_TABLE_WORDS - 1) / LP_TABLE_WORDS) * p->segments;
    p->move = move_tiles;
}

/* ---- casts ---- */

static void copy_elements(uint8_t *dst, const uint8_t *src, const int64_t *dst_off, const int64_t *src_off,
                          int64_t count, int32_t elem)
{
    for (int64_t i = 0; i < count; i++)
        copy_short(dst + (dst_off == NULL ? i * elem : dst_off[i]), src + (src_off == NULL ? i * elem : src_off[i]),
                   elem);
}

/* Units are blocks of elements, the run counted as one more mode. */
static void move_cast_blocks(const lp_piece *p, int64_t first, int64_t end)
{
    uint8_t in[CAST_ELEMENTS * 8], out[CAST_ELEMENTS * 8];
    table t;
    for (int64_t unit = first; unit < end; unit++) {
        const int64_t start = unit * CAST_ELEMENTS;
        const int64_t count = p->words - start < CAST_ELEMENTS ? p->words - start : CAST_ELEMENTS;
        fill_table(&t, p->mode, p->rank, start, count);
        copy_elements(in, p->src, NULL, t.src, count, p->src_elem);
        (void)lp_cast_elements(p->src_dtype, in, p->dst_dtype, out, count); /* bind has checked the pair */
        copy_elements(p->dst, out, t.dst, NULL, count, p->dst_elem);
    }
}

/* Units are parts of runs. */
static void move_cast_runs(const lp_piece *p, int64_t first, int64_t end)
{
    lp_odometer o;
    lp_odometer_set(&o, p->mode, p->rank, first / p->segments);
    for (int64_t i = first; i < end; i++) {
        const int64_t off = i % p->segments * p->segment;
        const int64_t count = p->run - off < p->segment ? p->run - off : p->segment;
        (void)lp_cast_elements(p->src_dtype, p->src + o.src + off * p->src_elem, p->dst_dtype,
                               p->dst + o.dst + off * p->dst_elem, count);
        if (i % p->segments == p->segments - 1)
            lp_odometer_next(&o);
    }
}

void lp_piece_plan_cast(lp_piece *p)
{
    p->streams = false;
    p->segment = CAST_ELEMENTS * 8;
    p->words = p->bytes / p->dst_elem;
    if (p->run >= 64 || p->rank == LP_PIECE_RANK) {
        p->segments = (p->run + p->segment - 1) / p->segment;
        p->units = p->words / p->run * p->segments;
        p->move = move_cast_runs;
        return;
    }
    if (p->run > 1)
        p->mode[p->rank++] = (lp_mode){p->run, p->src_elem, p->dst_elem};
    p->units = (p->words + CAST_ELEMENTS - 1) / CAST_ELEMENTS;
    p->move = move_cast_blocks;
}
