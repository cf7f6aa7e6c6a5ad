/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a safetensors checkpoint with the names, dtypes and shapes of a published kind of model and counter-based
 * bytes: every 8-byte word is a mix of the seed, the tensor's name and the word's number, so nothing is constant, any
 * word can be computed alone, and two runs give equal files. Floats are kept finite by clearing one exponent bit.
 *
 *   make_checkpoint -o DIR [--kind dense|nvfp4|mxfp4] [--layers N] [--hidden N] [--intermediate N] [--experts N]
 *                   [--heads N] [--kv-heads N] [--head-dim N] [--vocab N] [--shards N] [--seed N] [--tied] [--bias]
 *
 * Test code: it shares nothing with the library, and gives up at the first problem.
 */
#include "tests/random_numbers.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct options {
    const char *folder, *kind;
    long layers, hidden, intermediate, experts, heads, kv_heads, head_dim, vocab, shards;
    uint64_t seed;
    int tied, bias;
} options;

typedef struct tensor {
    char name[160];
    const char *dtype;
    int ndim;
    int64_t shape[3];
    int64_t bytes;
    int shard;
} tensor;

static tensor *tensors;
static size_t tensor_count, tensor_capacity;

static void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("make_checkpoint: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static int64_t dtype_bytes(const char *dtype)
{
    if (strcmp(dtype, "F32") == 0)
        return 4;
    return strcmp(dtype, "BF16") == 0 ? 2 : 1;
}

static void add(const char *dtype, int ndim, const int64_t *shape, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void add(const char *dtype, int ndim, const int64_t *shape, const char *format, ...)
{
    if (tensor_count == tensor_capacity) {
        tensor_capacity = tensor_capacity == 0 ? 1024 : tensor_capacity * 2;
        tensors = realloc(tensors, tensor_capacity * sizeof *tensors);
        if (tensors == NULL)
            die("out of memory");
    }
    tensor *t = &tensors[tensor_count++];
    *t = (tensor){.dtype = dtype, .ndim = ndim, .bytes = dtype_bytes(dtype)};
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    for (int d = 0; d < ndim; d++) {
        t->shape[d] = shape[d];
        t->bytes *= shape[d];
    }
}

static void add_matrix(const char *dtype, long rows, long cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void add_matrix(const char *dtype, long rows, long cols, const char *format, ...)
{
    char name[160];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    add(dtype, cols > 0 ? 2 : rows > 0 ? 1 : 0, (int64_t[]){rows, cols}, "%s", name);
}

static void add_attention(const options *o, long layer)
{
    const long q = o->heads * o->head_dim, kv = o->kv_heads * o->head_dim;
    const char *const part[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        const long rows = i == 0 ? q : kv;
        add_matrix("BF16", rows, o->hidden, "model.layers.%ld.self_attn.%s_proj.weight", layer, part[i]);
        if (o->bias)
            add_matrix("BF16", rows, 0, "model.layers.%ld.self_attn.%s_proj.bias", layer, part[i]);
    }
    add_matrix("BF16", o->hidden, q, "model.layers.%ld.self_attn.o_proj.weight", layer);
    add_matrix("BF16", o->hidden, 0, "model.layers.%ld.input_layernorm.weight", layer);
    add_matrix("BF16", o->hidden, 0, "model.layers.%ld.post_attention_layernorm.weight", layer);
}

static void add_expert(const options *o, long layer, long expert, bool nvfp4)
{
    const char *const projection[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        const long rows = i < 2 ? o->intermediate : o->hidden, cols = i < 2 ? o->hidden : o->intermediate;
        char stem[120];
        snprintf(stem, sizeof stem, "model.layers.%ld.mlp.experts.%ld.%s", layer, expert, projection[i]);
        add_matrix("U8", rows, cols / 2, "%s.weight", stem);
        if (nvfp4) {
            add_matrix("F8_E4M3", rows, cols / 16, "%s.weight_scale", stem);
            add_matrix("F32", 0, 0, "%s.weight_scale_2", stem);
            add_matrix("F32", 0, 0, "%s.input_scale", stem);
        } else {
            add_matrix("U8", rows, cols / 32, "%s.weight_scale", stem);
        }
    }
}

static void list_tensors(const options *o)
{
    const bool dense = strcmp(o->kind, "dense") == 0, nvfp4 = strcmp(o->kind, "nvfp4") == 0;
    add_matrix("BF16", o->vocab, o->hidden, "model.embed_tokens.weight");
    for (long layer = 0; layer < o->layers; layer++) {
        add_attention(o, layer);
        if (dense) {
            add_matrix("BF16", o->intermediate, o->hidden, "model.layers.%ld.mlp.gate_proj.weight", layer);
            add_matrix("BF16", o->intermediate, o->hidden, "model.layers.%ld.mlp.up_proj.weight", layer);
            add_matrix("BF16", o->hidden, o->intermediate, "model.layers.%ld.mlp.down_proj.weight", layer);
            continue;
        }
        add_matrix("BF16", o->experts, o->hidden, "model.layers.%ld.mlp.gate.weight", layer);
        for (long expert = 0; expert < o->experts; expert++)
            add_expert(o, layer, expert, nvfp4);
    }
    add_matrix("BF16", o->hidden, 0, "model.norm.weight");
    if (!o->tied)
        add_matrix("BF16", o->vocab, o->hidden, "lm_head.weight");
}

/* ---- bytes ---- */

static uint64_t name_key(const char *name, uint64_t seed)
{
    uint64_t key = random_mix(seed);
    for (const char *p = name; *p != '\0'; p++)
        key = random_mix(key ^ (unsigned char)*p);
    return key;
}

static uint64_t mask_of(const tensor *t)
{
    if (strcmp(t->dtype, "BF16") == 0)
        return 0xbfffbfffbfffbfffu;
    if (strcmp(t->dtype, "F8_E4M3") == 0)
        return 0x7e7e7e7e7e7e7e7eu; /* block scales: positive and not NaN */
    if (strstr(t->name, "weight_scale") != NULL)
        return 0x7f7f7f7f7f7f7f7fu; /* exponents: never 0xff */
    return UINT64_MAX;
}

/* A per-tensor scale is a small positive number; gate and up of one expert share theirs, as the format demands. */
static uint32_t scalar_bits(const tensor *t, uint64_t seed)
{
    char name[160];
    snprintf(name, sizeof name, "%s", t->name);
    char *up = strstr(name, ".up_proj.weight_scale_2");
    if (up != NULL)
        memcpy(up, ".gate_proj.weight_scale_2", sizeof ".gate_proj.weight_scale_2");
    return 0x3a000000u | (uint32_t)(name_key(name, seed) & 0x00ffffffu);
}

static void write_all(FILE *f, const void *data, size_t bytes, const char *path)
{
    if (fwrite(data, 1, bytes, f) != bytes)
        die("cannot write %s: %s", path, strerror(errno));
}

static void write_payload(FILE *f, const tensor *t, uint64_t seed, const char *path)
{
    enum { WORDS = 1 << 17 };
    static uint64_t buffer[WORDS];
    if (t->ndim == 0) {
        const uint32_t bits = scalar_bits(t, seed);
        write_all(f, &bits, sizeof bits, path);
        return;
    }
    const uint64_t key = name_key(t->name, seed), mask = mask_of(t);
    uint64_t word = 0;
    for (int64_t left = t->bytes; left > 0;) {
        const size_t bytes = left < (int64_t)sizeof buffer ? (size_t)left : sizeof buffer;
        for (size_t i = 0; i < (bytes + 7) / 8; i++)
            buffer[i] = random_mix(key + word++ * 0x9e3779b97f4a7c15u) & mask;
        write_all(f, buffer, bytes, path);
        left -= (int64_t)bytes;
    }
}

/* ---- files ---- */

static FILE *create(const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        die("cannot create %s: %s", path, strerror(errno));
    return f;
}

static void finish(FILE *f, const char *path)
{
    if (fclose(f) != 0)
        die("cannot write %s: %s", path, strerror(errno));
}

static void shard_path(char *path, size_t bytes, const options *o, long shard, bool whole)
{
    char name[64];
    if (o->shards == 1)
        snprintf(name, sizeof name, "model.safetensors");
    else
        snprintf(name, sizeof name, "model-%05ld-of-%05ld.safetensors", shard + 1, o->shards);
    snprintf(path, bytes, "%s%s%s", whole ? o->folder : "", whole ? "/" : "", name);
}

static void write_shard(const options *o, long shard)
{
    char path[4096];
    shard_path(path, sizeof path, o, shard, true);
    FILE *f = create(path);
    char *header = NULL;
    size_t header_bytes = 0;
    FILE *h = open_memstream(&header, &header_bytes);
    if (h == NULL)
        die("out of memory");
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", h);
    int64_t off = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        const tensor *t = &tensors[i];
        if (t->shard != shard)
            continue;
        fprintf(h, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (int d = 0; d < t->ndim; d++)
            fprintf(h, "%s%" PRId64, d > 0 ? "," : "", t->shape[d]);
        fprintf(h, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", off, off + t->bytes);
        off += t->bytes;
    }
    fputc('}', h);
    fflush(h);
    while (header_bytes % 8 != 0) {
        fputc(' ', h);
        fflush(h);
    }
    fclose(h);
    const uint64_t length = header_bytes;
    write_all(f, &length, sizeof length, path);
    write_all(f, header, header_bytes, path);
    free(header);
    for (size_t i = 0; i < tensor_count; i++)
        if (tensors[i].shard == shard)
            write_payload(f, &tensors[i], o->seed, path);
    finish(f, path);
}

/* One process for each, so that large checkpoints are quick to make. */
static void write_shards(const options *o)
{
    int status;
    for (long shard = 0; shard < o->shards; shard++) {
        const pid_t child = fork();
        if (child < 0)
            die("cannot start a process: %s", strerror(errno));
        if (child == 0) {
            write_shard(o, shard);
            _exit(0);
        }
    }
    for (long shard = 0; shard < o->shards; shard++)
        if (wait(&status) < 0 || status != 0)
            die("a shard could not be written");
}

static void write_index(const options *o)
{
    char path[4096], name[256];
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", o->folder);
    FILE *f = create(path);
    int64_t total = 0;
    for (size_t i = 0; i < tensor_count; i++)
        total += tensors[i].bytes;
    fprintf(f, "{\"metadata\":{\"total_size\":%" PRId64 "},\"weight_map\":{", total);
    for (size_t i = 0; i < tensor_count; i++) {
        shard_path(name, sizeof name, o, tensors[i].shard, false);
        fprintf(f, "%s\n\"%s\":\"%s\"", i > 0 ? "," : "", tensors[i].name, name);
    }
    fputs("}}\n", f);
    finish(f, path);
}

static void write_config(const options *o)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", o->folder);
    FILE *f = create(path);
    const bool dense = strcmp(o->kind, "dense") == 0;
    fprintf(f,
            "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\",\n \"hidden_size\": %ld,\n"
            " \"intermediate_size\": %ld,\n \"num_hidden_layers\": %ld,\n \"num_attention_heads\": %ld,\n"
            " \"num_key_value_heads\": %ld,\n \"head_dim\": %ld,\n \"vocab_size\": %ld,\n"
            " \"tie_word_embeddings\": %s,\n",
            dense ? "LlamaForCausalLM" : "MegaMoEForCausalLM", dense ? "llama" : "megamoe", o->hidden, o->intermediate,
            o->layers, o->heads, o->kv_heads, o->head_dim, o->vocab, o->tied ? "true" : "false");
    if (!dense)
        fprintf(f,
                " \"moe_intermediate_size\": %ld,\n \"num_experts\": %ld,\n \"n_routed_experts\": %ld,\n"
                " \"num_experts_per_tok\": 6,\n \"quantization_config\": {\"quant_algo\": \"%s\"},\n",
                o->intermediate, o->experts, o->experts, strcmp(o->kind, "nvfp4") == 0 ? "NVFP4" : "MXFP4");
    fputs(" \"torch_dtype\": \"bfloat16\"\n}\n", f);
    finish(f, path);
}

int main(int argc, char **argv)
{
    options o = {.kind = "nvfp4",
                 .layers = 1,
                 .hidden = 512,
                 .intermediate = 256,
                 .experts = 8,
                 .heads = 8,
                 .kv_heads = 2,
                 .head_dim = 64,
                 .vocab = 1000,
                 .shards = 1,
                 .seed = 1};
    enum { KIND = 1, LAYERS, HIDDEN, INTERMEDIATE, EXPERTS, HEADS, KV_HEADS, HEAD_DIM, VOCAB, SHARDS, SEED };
    const struct option table[] = {{"kind", required_argument, NULL, KIND},
                                   {"layers", required_argument, NULL, LAYERS},
                                   {"hidden", required_argument, NULL, HIDDEN},
                                   {"intermediate", required_argument, NULL, INTERMEDIATE},
                                   {"experts", required_argument, NULL, EXPERTS},
                                   {"heads", required_argument, NULL, HEADS},
                                   {"kv-heads", required_argument, NULL, KV_HEADS},
                                   {"head-dim", required_argument, NULL, HEAD_DIM},
                                   {"vocab", required_argument, NULL, VOCAB},
                                   {"shards", required_argument, NULL, SHARDS},
                                   {"seed", required_argument, NULL, SEED},
                                   {"tied", no_argument, &o.tied, 1},
                                   {"bias", no_argument, &o.bias, 1},
                                   {NULL, 0, NULL, 0}};
    for (int code; (code = getopt_long(argc, argv, "o:", table, NULL)) != -1;) {
        long *const number[] = {[LAYERS] = &o.layers,     [HIDDEN] = &o.hidden, [INTERMEDIATE] = &o.intermediate,
                                [EXPERTS] = &o.experts,   [HEADS] = &o.heads,   [KV_HEADS] = &o.kv_heads,
                                [HEAD_DIM] = &o.head_dim, [VOCAB] = &o.vocab,   [SHARDS] = &o.shards};
        if (code == '?')
            return 2;
        if (code == 'o')
            o.folder = optarg;
        else if (code == KIND)
            o.kind = optarg;
        else if (code == SEED)
            o.seed = strtoull(optarg, NULL, 10);
        else if (code >= LAYERS && code <= SHARDS)
            *number[code] = strtol(optarg, NULL, 10);
    }
    if (o.folder == NULL || optind != argc || o.shards < 1)
        die("needs -o DIR; see the top of its source");
    if (strcmp(o.kind, "dense") != 0 && strcmp(o.kind, "nvfp4") != 0 && strcmp(o.kind, "mxfp4") != 0)
        die("unknown kind '%s'", o.kind);
    if (mkdir(o.folder, 0777) != 0 && errno != EEXIST)
        die("cannot create %s: %s", o.folder, strerror(errno));
    list_tensors(&o);
    for (size_t i = 0; i < tensor_count; i++)
        tensors[i].shard = (int)(i * (size_t)o.shards / tensor_count);
    if (o.shards > 1) {
        write_shards(&o);
        write_index(&o);
    } else {
        write_shard(&o, 0);
    }
    write_config(&o);
    free(tensors);
    return 0;
}
