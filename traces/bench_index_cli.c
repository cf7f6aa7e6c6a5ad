/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of 10^6 names: an index, and 64 shards that are headers only. */
#include "traces/bench_work.h"

#include "traces/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { INDEX_SHARDS = 64, INDEX_EXPERTS = 384, INDEX_PARTS = 12 };

static void index_name(char name[128], int64_t i)
{
    static const char *const part[INDEX_PARTS] = {
        "gate_proj.weight", "gate_proj.weight_scale", "gate_proj.weight_scale_2", "gate_proj.input_scale",
        "up_proj.weight",   "up_proj.weight_scale",   "up_proj.weight_scale_2",   "up_proj.input_scale",
        "down_proj.weight", "down_proj.weight_scale", "down_proj.weight_scale_2", "down_proj.input_scale"};
    snprintf(name, 128, "model.layers.%" PRId64 ".mlp.experts.%" PRId64 ".%s", i / INDEX_PARTS / INDEX_EXPERTS,
             i / INDEX_PARTS % INDEX_EXPERTS, part[i % INDEX_PARTS]);
}

static int64_t index_count(const lp_bench_bed *bed)
{
    return bed->is_small ? 64 * 16 : 1000000;
}

/* One scalar each: only names and headers count here. The payload is a hole in the file. */
static lp_status write_shard(const lp_bench_bed *bed, int64_t first, int64_t end, const char *path, lp_error *err)
{
    const lp_platform platform = lp_platform_resolve(bed->platform);
    lp_text text;
    lp_outfile file;
    char name[128];
    lp_text_init(&text, NULL);
    lp_text_add(&text, "........{", 9); /* the length goes in front */
    for (int64_t i = first; i < end; i++) {
        const int64_t off = 4 * (i - first);
        index_name(name, i);
        lp_text_format(&text, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}",
                       i > first ? "," : "", name, off, off + 4);
    }
    lp_text_add(&text, "}", 1);
    while (!text.failed && text.bytes % 8 != 0)
        lp_text_add(&text, " ", 1);
    if (text.failed) {
        lp_text_free(&text);
        return lp_fail_memory(err);
    }
    for (int i = 0; i < 8; i++)
        text.data[i] = (char)((uint64_t)(text.bytes - 8) >> 8 * i & 0xff);
    lp_status status = lp_outfile_open(&file, &platform, path, true, err);
    if (status == LP_OK)
        status = lp_outfile_write(&file, text.data, text.bytes, err);
    if (status == LP_OK)
        status = lp_outfile_commit(&file, err);
    if (status == LP_OK && truncate(path, text.bytes + 4 * (end - first)) != 0)
        status = lp_fail(err, LP_E_IO, "cannot lengthen '%s'", path);
    lp_text_free(&text);
    return status;
}

lp_status lp_bench_prepare_index(const lp_bench_bed *bed, lp_bench_result *unused, lp_error *err)
{
    const lp_platform platform = lp_platform_resolve(bed->platform);
    const int64_t count = index_count(bed);
    char name[128], path[512];
    lp_text text;
    lp_outfile file;
    lp_status status = LP_OK;
    (void)unused;
    lp_text_init(&text, NULL);
    lp_text_add(&text, "{\"weight_map\":{", 15);
    for (int shard = 0; shard < INDEX_SHARDS; shard++) {
        const int64_t first = count * shard / INDEX_SHARDS, end = count * (shard + 1) / INDEX_SHARDS;
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, INDEX_SHARDS);
        lp_bench_path(bed, name, path);
        LP_TRY_GOTO(write_shard(bed, first, end, path, err), free_text);
        for (int64_t i = first; i < end; i++) {
            char tensor[128];
            index_name(tensor, i);
            lp_text_format(&text, "%s\"%s\":\"%s\"", i > 0 ? "," : "", tensor, name);
        }
    }
    lp_text_add(&text, "}}", 2);
    if (text.failed)
        LP_TRY_GOTO(lp_fail_memory(err), free_text);
    lp_bench_path(bed, "model.safetensors.index.json", path);
    LP_TRY_GOTO(lp_outfile_open(&file, &platform, path, true, err), free_text);
    LP_TRY_GOTO(lp_outfile_write(&file, text.data, text.bytes, err), free_text);
    status = lp_outfile_commit(&file, err);
free_text:
    lp_text_free(&text);
    return status;
}

lp_status lp_bench_run_index(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    char path[512];
    lp_bench_path(bed, "model.safetensors.index.json", path);
    for (int i = 0; i < bed->rounds; i++) {
        lp_checkpoint *c;
        const lp_bench_clock started = lp_bench_start();
        LP_TRY(lp_checkpoint_open_with(&c, path, bed->platform, err));
        lp_bench_stop(r, started);
        r->size = lp_checkpoint_count(c);
        r->wrong += r->size != index_count(bed);
        lp_checkpoint_close(c);
    }
    r->value = lp_bench_seconds(r);
    return LP_OK;
}
