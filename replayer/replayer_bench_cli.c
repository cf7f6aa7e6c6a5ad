/* SPDX-License-Identifier: Apache-2.0 */
/* Benches of this room: explaining one rank of the measuring trace, the executor, and how much is read from files. */
#include "replayer/exec_bench.h"
#include "replayer/replayer.h"

#include "traces/base.h"

#include <stdio.h>

/* ---- explain ---- */

static lp_status explain_once(const char *path, const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    lp_trace *t;
    lp_explanation e;
    const lp_bench_clock started = lp_bench_start();
    LP_TRY(lp_trace_open_with(&t, path, bed->platform, err));
    const lp_status status = lp_explain(&e, t, lp_trace_scope_count(t) / 2, err);
    lp_bench_stop(r, started);
    lp_trace_close(t);
    if (status == LP_OK) {
        r->size = e.records;
        r->wrong += e.fallbacks > 0 || e.bytes_read == 0;
    }
    return status;
}

static lp_status run_explain(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    char path[512];
    lp_bench_path(bed, "measuring.lpt", path);
    for (int i = 0; i < bed->rounds; i++)
        LP_TRY(explain_once(path, bed, r, err));
    r->value = lp_bench_seconds(r) * 1e3;
    return LP_OK;
}

/* ---- reading ---- */

/* A checkpoint of one tensor, of which a rank needs some columns of every row. */
enum { COLUMNS = 4096, NEEDED = 1024, FIRST_COLUMN = 1000 };

static int64_t row_count(const lp_bench_bed *bed)
{
    return bed->is_small ? 64 : 16384;
}

static lp_status write_rows(lp_outfile *f, int64_t rows, lp_error *err)
{
    uint8_t row[COLUMNS];
    char header[128] = {0};
    const int64_t bytes = rows * COLUMNS;
    const int n = snprintf(header + 8, sizeof header - 8,
                           "{\"w\":{\"dtype\":\"U8\",\"shape\":[%lld,%d],\"data_offsets\":[0,%lld]}}", (long long)rows,
                           COLUMNS, (long long)bytes);
    header[0] = (char)n;
    LP_TRY(lp_outfile_write(f, header, 8 + n, err));
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < COLUMNS; k++)
            row[k] = (uint8_t)(i * 31 + k * 7);
        LP_TRY(lp_outfile_write(f, row, sizeof row, err));
    }
    return LP_OK;
}

static lp_status prepare_read(const lp_bench_bed *bed, lp_bench_result *unused, lp_error *err)
{
    const lp_platform platform = lp_platform_resolve(bed->platform);
    lp_outfile f;
    char path[512];
    (void)unused;
    lp_bench_path(bed, "columns.safetensors", path);
    LP_TRY(lp_outfile_open(&f, &platform, path, true, err));
    const lp_status status = write_rows(&f, row_count(bed), err);
    if (status == LP_OK)
        return lp_outfile_commit(&f, err);
    lp_outfile_abandon(&f);
    return status;
}

static lp_status add_columns(lp_trace *t, int64_t rows, const lp_platform *platform, lp_error *err)
{
    const int64_t shape[] = {rows, NEEDED}, stride[] = {NEEDED, 1}, whole[] = {rows, COLUMNS};
    const lp_destination row = {.name = "w",
                                .dtype = LP_U8,
                                .ndim = 2,
                                .shape = shape,
                                .stride = stride,
                                .storage = "w",
                                .storage_bytes = rows * NEEDED,
                                .layout = "",
                                .group = "root",
                                .slot_dim = -1};
    lp_view src, dst;
    const lp_map *map;
    uint32_t dest;
    LP_TRY(lp_view_contiguous(&src, LP_U8, 2, whole, err));
    LP_TRY(lp_view_narrow(&src, 1, FIRST_COLUMN, NEEDED, err));
    LP_TRY(lp_view_contiguous(&dst, LP_U8, 2, shape, err));
    LP_TRY(lp_trace_add_destination(t, &row, &dest, err));
    LP_TRY(lp_map_copy(&map, &dst, rows * NEEDED, &src, rows * COLUMNS, platform->alloc, err));
    const lp_status status = lp_trace_add_record(t, &(lp_record){.dest = dest, .map = map, .provenance = LP_NONE}, err);
    lp_map_free(map, platform->alloc);
    return status;
}

/* Counts what the files give. */
typedef struct counted_io {
    lp_io table;
    const lp_io *real;
    int64_t bytes;
} counted_io;

static int64_t counted_pread(void *context, int fd, void *buffer, size_t bytes, int64_t off)
{
    counted_io *io = context;
    const int64_t n = io->real->pread(io->real->context, fd, buffer, bytes, off);
    if (n > 0)
        __atomic_fetch_add(&io->bytes, n, __ATOMIC_RELAXED);
    return n;
}

static int counted_open(void *context, const char *path, int flags, int mode)
{
    const counted_io *io = context;
    return io->real->open(io->real->context, path, flags, mode);
}

static int counted_close(void *context, int fd)
{
    const counted_io *io = context;
    return io->real->close(io->real->context, fd);
}

static int counted_stat(void *context, int fd, lp_file_stat *out)
{
    const counted_io *io = context;
    return io->real->stat(io->real->context, fd, out);
}

static bool has_columns(const lp_destination_memory *memory, int64_t rows)
{
    const uint8_t *data = memory->data;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < NEEDED; k++)
            if (data[i * NEEDED + k] != (uint8_t)(i * 31 + (k + FIRST_COLUMN) * 7))
                return false;
    return true;
}

static lp_status load(const lp_trace *t, const lp_checkpoint *c, const lp_destinations *d, const lp_platform *platform,
                      lp_bench_result *r, lp_error *err)
{
    lp_plan *plan;
    lp_session *session = NULL;
    lp_status status;
    int64_t count;
    const lp_destination_memory *memory = lp_destinations_list(d, &count);
    LP_TRY(lp_bind(&plan, t, NULL, memory, count, &(lp_bind_options){.platform = platform}, err));
    const lp_bench_clock started = lp_bench_start();
    LP_TRY_GOTO(lp_begin(&session, plan, NULL, err), close_plan);
    LP_TRY_GOTO(lp_push_checkpoint(session, c, err), close_plan);
    LP_TRY_GOTO(lp_finish(session, NULL, err), close_plan);
    lp_bench_stop(r, started);
close_plan:
    lp_session_close(session);
    lp_plan_close(plan);
    return status;
}

static lp_status load_rounds(const lp_bench_bed *bed, const lp_trace *t, const lp_checkpoint *c, counted_io *io,
                             const lp_platform *platform, lp_bench_result *r, lp_error *err)
{
    lp_destinations *d;
    int64_t count, most = 0;
    LP_TRY(lp_destinations_allocate(&d, t, lp_trace_scope_at(t, 0), false, platform, err));
    lp_status status = LP_OK;
    for (int i = 0; i < bed->rounds && status == LP_OK; i++) {
        io->bytes = 0;
        status = load(t, c, d, platform, r, err);
        most = io->bytes > most ? io->bytes : most;
        r->wrong += io->bytes < r->size || !has_columns(lp_destinations_list(d, &count), row_count(bed));
    }
    r->value = (double)most / (double)r->size;
    lp_destinations_free(d);
    return status;
}

static lp_status run_read(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    lp_platform platform = lp_platform_resolve(bed->platform);
    counted_io io = {.table = *platform.io, .real = platform.io};
    lp_checkpoint *c = NULL;
    lp_trace *t = NULL;
    char path[512];
    lp_status status;
    io.table.context = &io;
    io.table.open = counted_open;
    io.table.close = counted_close;
    io.table.stat = counted_stat;
    io.table.pread = counted_pread;
    platform.io = &io.table;
    r->size = row_count(bed) * NEEDED;
    lp_bench_path(bed, "columns.safetensors", path);
    LP_TRY(lp_checkpoint_open_with(&c, path, &platform, err));
    LP_TRY_GOTO(lp_trace_new(&t, c, NULL, &platform, err), close_checkpoint);
    LP_TRY_GOTO(lp_trace_begin_scope(t, &(lp_scope){0}, err), close_checkpoint);
    LP_TRY_GOTO(add_columns(t, row_count(bed), &platform, err), close_checkpoint);
    LP_TRY_GOTO(lp_trace_seal(t, err), close_checkpoint);
    status = load_rounds(bed, t, c, &io, &platform, r, err);
close_checkpoint:
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return status;
}

/* ---- the table ---- */

static const lp_bench BENCHES[] = {
    {.name = "trace.explain_rank",
     .summary = "open the measuring trace and explain one rank",
     .size_unit = "records",
     .unit = "ms",
     .sense = LP_BENCH_AT_MOST,
     .bar = 50,
     .needs = "trace.save",
     .run = run_explain},
    {.name = "executor.long_runs",
     .summary = "move runs of 1 KiB and more, as a share of memcpy",
     .size_unit = "bytes",
     .unit = "ratio",
     .sense = LP_BENCH_AT_LEAST,
     .bar = 0.8,
     .run = lp_bench_run_long_runs},
    {.name = "executor.words",
     .summary = "transpose words of 4 bytes, as a share of memcpy",
     .size_unit = "bytes",
     .unit = "ratio",
     .sense = LP_BENCH_AT_LEAST,
     .bar = 0.4,
     .run = lp_bench_run_words},
    {.name = "read.exact_bytes",
     .summary = "load columns from a cached file; bytes read for each byte needed",
     .size_unit = "bytes",
     .unit = "ratio",
     .sense = LP_BENCH_AT_MOST,
     .bar = 1,
     .prepare = prepare_read,
     .run = run_read},
};

const lp_bench_table lp_replayer_benches = {BENCHES, sizeof BENCHES / sizeof BENCHES[0]};
