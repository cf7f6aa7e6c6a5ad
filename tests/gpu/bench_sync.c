/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast weights move between GPUs of one host, from a trainer's device memory to live tensors, beside bare ncclSend
 * and ncclRecv of the same messages in the same run.
 *
 *   bench_sync packed|sliced|delta [--gib N] [--senders N] [--receivers N] [--bucket MIB] [--epochs N] [--fp8] [--gate]
 *              [--one|--host]
 *
 * Rank i uses GPU i. A trainer keeps rows of every tensor, a server columns; with one receiver a sliced epoch is that
 * of the first of two ranks. delta: first everything, then 1 % and 10 % of the elements changed, here and there and in
 * runs of 4,096, beside one read of weights and shadow. --gate: exit code 1 when a bar is missed. --one: all ranks on
 * GPU 0, over what nccl_one.c makes in NCCL's place: what comes out is what is lost beside its own messages. --host:
 * host memory and sockets, small, no ceiling: to try the bench itself. Exit code 77: too few GPUs, or no NCCL.
 */
#include "recorder/recorder.h"
#include "replayer/nccl_transport.h"
#include "replayer/sync.h"
#include "replayer/transport_wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANKS_MOST = 8, EPOCHS_MOST = 64, MISSED = 1, SKIPPED = 77, RUN = 4096, ROUNDS = 4 };

int read_ceiling(const void *data, size_t bytes, void *out, void *stream);

/* What changes between epochs, each ROUNDS times forth and back. */
static const struct change {
    int percent;
    bool is_clustered;
} changes[] = {{1, false}, {1, true}, {10, false}, {10, true}};

enum { CHANGES = sizeof changes / sizeof *changes, DELTA_EPOCHS = 1 + CHANGES * ROUNDS };

typedef struct settings {
    lp_sync_mode mode;
    int senders, receivers, epochs, port;
    int64_t layers, hidden, bucket;
    int elem; /* bytes of an element */
    bool is_gated, is_host, is_one;
} settings;

typedef struct bench_rank {
    const settings *o;
    int index;
    bool is_sender;
    const lp_trace *trace;
    lp_destinations *memory;
    lp_plan *plan;
    uint64_t *noise[2]; /* of a sender: what its tensors hold, on its device where they are there */
    lp_nccl_device device;
    lp_sync_report report[EPOCHS_MOST];
    lp_status status;
    lp_error err;
} bench_rank;

static bench_rank ranks[RANKS_MOST];

static void give_up(const lp_error *err)
{
    fprintf(stderr, "%s\n", err->text);
    exit(err->code == LP_E_UNSUPPORTED || err->code == LP_E_DEVICE ? SKIPPED : 2);
}

static int gpu_of(const settings *o, int rank)
{
    return o->is_one ? 0 : rank;
}

static const char *link_name(const settings *o)
{
    return o->is_one ? "the stand-in's messages on one GPU" : "ncclSend/ncclRecv";
}

/* ---- the model ---- */

/* A tensor of any dtype has 8 x hidden x hidden bytes. */
static int64_t tensor_bytes(const settings *o)
{
    return 8 * o->hidden * o->hidden;
}

static void shape_of(const settings *o, int64_t number, int64_t shape[2])
{
    const int64_t wide = 8 / o->elem * o->hidden;
    shape[0] = number % 2 == 0 ? wide : o->hidden;
    shape[1] = number % 2 == 0 ? o->hidden : wide;
}

static lp_dtype dtype_of(const settings *o)
{
    return o->elem == 1 ? LP_F8_E4M3 : LP_BF16;
}

static lp_checkpoint *make_model(const settings *o)
{
    lp_checkpoint *c = NULL;
    lp_error err;
    char name[64];
    lp_status status = lp_checkpoint_new(&c, NULL, &err);
    for (int64_t i = 0; i < 2 * o->layers && status == LP_OK; i++) {
        int64_t shape[2];
        shape_of(o, i, shape);
        snprintf(name, sizeof name, "layers.%d.%s", (int)(i / 2), i % 2 == 0 ? "up" : "down");
        const lp_checkpoint_tensor t = {
            .name = name, .dtype = dtype_of(o), .ndim = 2, .shape = shape, .file = -1, .file_off = -1};
        status = lp_checkpoint_add(c, &t, &err);
    }
    if (status == LP_OK)
        status = lp_checkpoint_seal(c, &err);
    if (status != LP_OK)
        give_up(&err);
    return c;
}

/* dim: which one ranks split. */
static lp_trace *record(const settings *o, const lp_checkpoint *c, int tp, int dim)
{
    lp_recorder *r = NULL;
    lp_trace *t = NULL;
    lp_error err;
    lp_scope at = {.dp = 1, .tp = tp};
    lp_status status = LP_OK;
    for (; at.tp_rank < tp && status == LP_OK; at.tp_rank++) {
        status = r == NULL ? lp_recorder_open(&r, c, &at, &err) : lp_recorder_next_scope(r, &at, &err);
        for (int64_t i = 0; i < 2 * o->layers && status == LP_OK; i++) {
            int64_t shape[2];
            shape_of(o, i, shape);
            const char *name = lp_name(r, "layers.%d.%s", (int)(i / 2), i % 2 == 0 ? "up" : "down");
            shape[dim] /= tp;
            lp_declare(r, name, dtype_of(o), 2, shape);
            lp_copy(lp_dest(r, name), lp_narrow(lp_source(r, name), dim, at.tp_rank * shape[dim], shape[dim]));
        }
    }
    if (status == LP_OK)
        status = lp_recorder_finish(r, &t, &err);
    lp_recorder_close(r);
    if (status != LP_OK)
        give_up(&err);
    return t;
}

/* ---- memory ---- */

static void bind_rank(bench_rank *r)
{
    char device[16];
    lp_error err;
    int64_t count;
    const int32_t number = r->is_sender ? r->index : r->index - r->o->senders;
    const lp_scope *scope = lp_trace_scope_at(r->trace, lp_trace_scope_find(r->trace, number));
    snprintf(device, sizeof device, "cuda:%d", gpu_of(r->o, r->index));
    const int64_t largest = tensor_bytes(r->o);
    const lp_bind_options o = {.device = r->o->is_host ? NULL : device,
                               .staging = r->o->is_host ? 0 : (2 * r->o->senders + 1) * largest};
    lp_status status = r->o->is_host ? lp_destinations_allocate(&r->memory, r->trace, scope, false, NULL, &err)
                                     : lp_destinations_allocate_on(&r->memory, r->trace, scope, device, NULL, &err);
    if (status != LP_OK)
        give_up(&err);
    const lp_destination_memory *list = lp_destinations_list(r->memory, &count);
    if (lp_bind(&r->plan, r->trace, scope, list, count, &o, &err) != LP_OK)
        give_up(&err);
}

/* ---- what a trainer holds: noise, that of tensor i from word i on ---- */

static int64_t noise_bytes(const settings *o)
{
    return tensor_bytes(o) + 16 * o->layers;
}

/* The caller frees it. */
static uint64_t *make_noise(const settings *o)
{
    uint64_t *noise = malloc((size_t)noise_bytes(o));
    uint64_t x = 88172645463325252u;
    if (noise == NULL)
        exit(2);
    for (int64_t i = 0; i < noise_bytes(o) / 8; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        noise[i] = x;
    }
    return noise;
}

/* Runs that begin on average 100 / percent of their lengths apart. */
static void change_noise(const settings *o, uint64_t *noise, const struct change *c)
{
    const int64_t elements = noise_bytes(o) / o->elem, run = c->is_clustered ? RUN : 1;
    uint8_t *byte = (uint8_t *)noise;
    uint64_t x = 362436069362436069u;
    for (int64_t i = 0; i < elements;) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        for (int64_t k = i; k < i + run && k < elements; k++)
            byte[k * o->elem] ^= (uint8_t)(1 + (x >> 8) % 255);
        i += run * (1 + (int64_t)((x >> 20) % (uint64_t)(2 * 100 / c->percent - 1)));
    }
}

static void load_trainer(bench_rank *r)
{
    uint64_t *noise = make_noise(r->o);
    lp_session *s = NULL;
    lp_error err;
    lp_status status = lp_begin(&s, r->plan, &(lp_session_options){.mode = LP_COLD}, &err);
    for (lp_handle h = 0; status == LP_OK && h < 2 * r->o->layers; h++)
        status = lp_push_range(s, lp_plan_name(r->plan, h), 0, noise + h, tensor_bytes(r->o), &err);
    if (status == LP_OK)
        status = lp_finish(s, NULL, &err);
    lp_session_close(s);
    free(noise);
    if (status != LP_OK)
        give_up(&err);
}

static void check(const bench_rank *r, int code)
{
    if (code == 0)
        return;
    fprintf(stderr, "%s\n", r->device.error_text(r->device.context, code));
    exit(2);
}

/* The other noise of a case, and that of all on the device. */
static void place_noise(bench_rank *r, int which, const struct change *c)
{
    void *there = r->noise[which];
    uint64_t *noise = make_noise(r->o);
    if (c != NULL)
        change_noise(r->o, noise, c);
    if (r->o->is_host) {
        free(there);
        r->noise[which] = noise;
        return;
    }
    if (there == NULL)
        check(r, r->device.allocate(r->device.context, noise_bytes(r->o), &there));
    check(r, r->device.store(r->device.context, there, noise, noise_bytes(r->o)));
    r->noise[which] = there;
    free(noise);
}

/* A step of training: weights of one noise become those of the other. */
static void train(bench_rank *r, int round)
{
    const settings *o = r->o;
    const int which = 1 - round % 2;
    const int64_t bytes = tensor_bytes(o) / o->senders;
    int64_t count;
    const lp_destination_memory *list = lp_destinations_list(r->memory, &count);
    void *stream = NULL;
    if (round == 0)
        place_noise(r, 0, NULL);
    if (round % ROUNDS == 0)
        place_noise(r, 1, &changes[round / ROUNDS]);
    if (!o->is_host)
        check(r, r->device.stream_open(r->device.context, false, &stream));
    for (int64_t i = 0; i < count; i++) {
        const int64_t layer = strtoll(strchr(list[i].name, '.') + 1, NULL, 10);
        const uint64_t *noise = r->noise[which] + 2 * layer + (strstr(list[i].name, "down") != NULL);
        const uint8_t *from = (const uint8_t *)noise + r->index * bytes;
        if (o->is_host)
            memcpy(list[i].data, from, (size_t)bytes);
        else
            check(r, r->device.copy(r->device.context, list[i].data, from, bytes, stream));
    }
    if (o->is_host)
        return;
    check(r, r->device.stream_settle(r->device.context, stream));
    r->device.stream_close(r->device.context, stream);
}

static void free_noise(bench_rank *r)
{
    for (int i = 0; i < 2; i++)
        if (r->o->is_host)
            free(r->noise[i]);
        else if (r->noise[i] != NULL)
            r->device.release(r->device.context, r->noise[i]);
}

/* With one rank on each side and the same rows everything must have the same digests. */
static bool is_equal(const bench_rank *a, const bench_rank *b)
{
    uint8_t x[LP_VALUE_DIGEST_BYTES], y[LP_VALUE_DIGEST_BYTES];
    lp_error err;
    for (uint32_t d = 0; d < 2 * (uint32_t)a->o->layers; d++)
        if (lp_plan_value_digest(a->plan, d, x, &err) != LP_OK || lp_plan_value_digest(b->plan, d, y, &err) != LP_OK ||
            memcmp(x, y, sizeof x) != 0)
            return false;
    return true;
}

/* ---- ranks ---- */

static lp_status run_epochs(bench_rank *r, lp_sync *s, lp_error *err)
{
    lp_sync_source source = {.context = NULL};
    lp_status status = r->is_sender ? lp_sync_source_plan(&source, r->plan, err) : LP_OK;
    for (int e = 0; e < r->o->epochs && status == LP_OK; e++) {
        if (r->is_sender && r->o->mode == LP_SYNC_DELTA && e > 0)
            train(r, e - 1);
        status = r->is_sender
                     ? lp_sync_send(s, &source, 0, &r->report[e], err)
                     : lp_sync_recv(s, r->plan, &(lp_session_options){.mode = LP_DIRECT}, 0, &r->report[e], err);
    }
    lp_sync_source_close(&source);
    return status;
}

static void *run_rank(void *context)
{
    bench_rank *r = context;
    const settings *o = r->o;
    lp_transport sockets, nccl = {.size = 0};
    lp_sync *s = NULL;
    const lp_tcp_options tcp = {.host = "127.0.0.1",
                                .port = o->port,
                                .is_sender = r->is_sender,
                                .rank = r->is_sender ? r->index : r->index - o->senders,
                                .size = r->is_sender ? o->senders : o->receivers};
    const lp_sync_options options = {.is_sender = r->is_sender, .mode = o->mode, .bucket = o->bucket};
    r->status = lp_transport_tcp(&sockets, &tcp, &r->err);
    if (r->status != LP_OK)
        return NULL;
    if (!o->is_host)
        r->status = lp_transport_nccl(&nccl, &sockets, gpu_of(o, r->index), NULL, &r->err);
    if (r->status == LP_OK)
        r->status = lp_sync_open(&s, o->is_host ? &sockets : &nccl, r->trace, &options, &r->err);
    if (r->status == LP_OK)
        r->status = run_epochs(r, s, &r->err);
    lp_sync_close(s);
    if (nccl.size > 0)
        lp_transport_close(&nccl);
    lp_transport_close(&sockets);
    return NULL;
}

static void run_world(const settings *o)
{
    pthread_t thread[RANKS_MOST];
    const int size = o->senders + o->receivers;
    for (int i = 0; i < size; i++)
        if (pthread_create(&thread[i], NULL, run_rank, &ranks[i]) != 0)
            exit(2);
    for (int i = 0; i < size; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < size; i++)
        if (ranks[i].status != LP_OK)
            give_up(&ranks[i].err);
}

/* ---- the ceiling: GPU 0 to GPU 1, one message a bucket, two buckets ---- */

typedef struct ceiling {
    lp_nccl nccl;
    lp_nccl_id id;
    lp_nccl_device device[2];
    int64_t bytes, messages;
    double seconds;
    atomic_int failed;
} ceiling;

static ceiling bare;

static bool settle(void *comm, int result)
{
    while (result == LP_NCCL_IN_PROGRESS)
        if (bare.nccl.ncclCommGetAsyncError(comm, &result) != 0)
            return false;
    return result == LP_NCCL_SUCCESS;
}

static bool move_all(int rank, void *comm, void *stream, void *const memory[2])
{
    for (int64_t i = 0; i < bare.messages; i++) {
        const int code = rank == 0
                             ? bare.nccl.ncclSend(memory[i % 2], (size_t)bare.bytes, LP_NCCL_UINT8, 1, comm, stream)
                             : bare.nccl.ncclRecv(memory[i % 2], (size_t)bare.bytes, LP_NCCL_UINT8, 0, comm, stream);
        if (!settle(comm, code))
            return false;
    }
    return bare.device[rank].stream_settle(bare.device[rank].context, stream) == 0;
}

static void *run_bare(void *context)
{
    const int rank = *(const int *)context;
    const lp_nccl_device *d = &bare.device[rank];
    void *comm = NULL, *stream = NULL, *memory[2] = {NULL};
    lp_nccl_config config = {
        .size = sizeof config, .magic = LP_NCCL_CONFIG_MAGIC, .version = LP_NCCL_LEAST, .blocking = 0};
    bool ok = d->enter(d->context) == 0 && d->stream_open(d->context, true, &stream) == 0 &&
              d->allocate(d->context, bare.bytes, &memory[0]) == 0 &&
              d->allocate(d->context, bare.bytes, &memory[1]) == 0;
    if (ok) {
        ok = bare.nccl.ncclCommInitRankConfig(&comm, 2, bare.id, rank, &config) <= LP_NCCL_IN_PROGRESS;
        ok = ok && settle(comm, LP_NCCL_IN_PROGRESS) && move_all(rank, comm, stream, memory); /* warm */
        const int64_t since = lp_clock_ns();
        ok = ok && move_all(rank, comm, stream, memory);
        if (rank == 1)
            bare.seconds = (double)(lp_clock_ns() - since) / 1e9;
    }
    if (!ok)
        atomic_store(&bare.failed, 1);
    if (comm != NULL)
        (void)bare.nccl.ncclCommAbort(comm);
    for (int i = 0; i < 2; i++)
        if (memory[i] != NULL)
            d->release(d->context, memory[i]);
    if (stream != NULL)
        d->stream_close(d->context, stream);
    return NULL;
}

/* Bytes a second. */
static double measure_ceiling(const settings *o, int64_t bytes)
{
    static int number[2] = {0, 1};
    pthread_t thread[2];
    lp_error err;
    if (lp_nccl_open(&bare.nccl, NULL, &err) != LP_OK)
        give_up(&err);
    for (int i = 0; i < 2; i++)
        if (lp_nccl_cuda(&bare.device[i], gpu_of(o, i), &err) != LP_OK)
            give_up(&err);
    bare.bytes = o->bucket;
    bare.messages = (bytes + o->bucket - 1) / o->bucket;
    if (bare.nccl.ncclGetUniqueId(&bare.id) != 0)
        exit(2);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, run_bare, &number[i]) != 0)
            exit(2);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    lp_nccl_close(&bare.nccl);
    if (atomic_load(&bare.failed) || bare.seconds <= 0) {
        fprintf(stderr, "bare messages failed\n");
        exit(2);
    }
    return (double)(bare.bytes * bare.messages) / bare.seconds;
}

/* ---- what it comes to ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median over epochs [first, end) of the slowest receiver's time. */
static double median_seconds(const settings *o, int first, int end)
{
    double t[EPOCHS_MOST] = {0};
    for (int e = first; e < end; e++)
        for (int i = o->senders; i < o->senders + o->receivers; i++) {
            const double seconds = (double)ranks[i].report[e].nanoseconds / 1e9;
            t[e - first] = seconds > t[e - first] ? seconds : t[e - first];
        }
    qsort(t, (size_t)(end - first), sizeof *t, by_value);
    return t[(end - first) / 2];
}

static int judge(const settings *o)
{
    const lp_sync_report *last = &ranks[o->senders].report[o->epochs - 1];
    const double seconds = median_seconds(o, o->epochs > 1, o->epochs), rate = (double)last->bytes_moved / seconds;
    const double bar = o->mode == LP_SYNC_SLICED ? 0.90 : 0.95;
    const bool has_excess = o->mode == LP_SYNC_SLICED && last->bytes_moved != last->bytes_needed;
    printf("%-6s %d to %d: %.2f GiB to a receiver in %.4f s, %.2f GB/s; buckets %lld x 2 bytes",
           lp_sync_mode_name(o->mode), o->senders, o->receivers, (double)last->bytes_moved / (1 << 30), seconds,
           rate / 1e9, (long long)o->bucket);
    if (has_excess)
        printf("; %lld bytes would have done", (long long)last->bytes_needed);
    if (o->is_host) {
        printf("\n");
        return has_excess;
    }
    const double most = measure_ceiling(o, last->bytes_moved);
    const bool is_held = rate >= bar * most && !has_excess;
    printf("; %s %.2f GB/s; ratio %.3f, bar %.3f: %s\n", link_name(o), most / 1e9, rate / most, bar,
           is_held ? "held" : "missed");
    return is_held || !o->is_gated ? 0 : MISSED;
}

/* Seconds of one read of a sender's weights, twice: as much as those and the shadow. */
static double measure_read(bench_rank *r)
{
    const int64_t bytes = tensor_bytes(r->o) / r->o->senders;
    int64_t count;
    const lp_destination_memory *list = lp_destinations_list(r->memory, &count);
    void *stream = NULL, *out = NULL;
    double least = 1e9;
    check(r, r->device.enter(r->device.context));
    check(r, r->device.stream_open(r->device.context, false, &stream));
    check(r, r->device.allocate(r->device.context, 4096, &out));
    for (int n = 0; n < 4; n++) {
        const int64_t since = lp_clock_ns();
        for (int64_t i = 0; i < 2 * count; i++)
            check(r, read_ceiling(list[i % count].data, (size_t)bytes, out, stream));
        check(r, r->device.stream_settle(r->device.context, stream));
        const double seconds = (double)(lp_clock_ns() - since) / 1e9;
        least = seconds < least ? seconds : least;
    }
    r->device.stream_close(r->device.context, stream);
    r->device.release(r->device.context, out);
    return least;
}

static int judge_deltas(const settings *o)
{
    const lp_sync_report *all = &ranks[0].report[0], *shadow = &ranks[0].report[1];
    const double full = (double)all->bytes_moved, read = o->is_host ? 0 : measure_read(&ranks[0]);
    const double link = o->is_host ? 0 : measure_ceiling(o, all->bytes_moved);
    int code = 0;
    printf("delta  %d to %d, %s: %.2f GiB; buckets %lld x 2 bytes, shadow %.2f GiB; everything first: %.4f s\n",
           o->senders, o->receivers, o->elem == 1 ? "FP8" : "BF16", full / (1 << 30), (long long)o->bucket,
           (double)shadow->shadow_bytes / (1 << 30), (double)ranks[o->senders].report[0].nanoseconds / 1e9);
    if (!o->is_host)
        printf("  one read of weights and shadow %.3f ms; %s %.2f GB/s, everything at that %.3f ms\n", read * 1e3,
               link_name(o), link / 1e9, full / link * 1e3);
    for (int c = 0; c < CHANGES; c++) {
        const int first = 1 + c * ROUNDS;
        const lp_sync_report *last = &ranks[o->senders].report[first + ROUNDS - 1];
        const double seconds = median_seconds(o, first, first + ROUNDS), bytes = (double)last->bytes_moved;
        const double most = o->is_host ? 1 : bytes / link > read ? bytes / link : read;
        const bool is_held = seconds <= 1.5 * most && seconds <= 1.1 * full / link && last->mode == LP_SYNC_DELTA;
        printf("  %2d %%, %-9s: %8.1f MiB in %lld frames, %8.3f ms", changes[c].percent,
               changes[c].is_clustered ? "clustered" : "scattered", bytes / (1 << 20), (long long)last->frames,
               seconds * 1e3);
        if (!o->is_host)
            printf("; over the link %8.3f ms; %.2f of the longer one, bar 1.50; %.3f of everything, bar 1.10: %s",
                   bytes / link * 1e3, seconds / most, seconds / (full / link), is_held ? "held" : "missed");
        printf("\n");
        code = is_held || !o->is_gated || o->is_host ? code : MISSED;
    }
    return code;
}

static int64_t number(int argc, char **argv, const char *name, int64_t fallback)
{
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoll(argv[i + 1], NULL, 10);
    return fallback;
}

static bool flag(int argc, char **argv, const char *name)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    settings o = {.is_gated = flag(argc, argv, "--gate"),
                  .is_host = flag(argc, argv, "--host"),
                  .is_one = flag(argc, argv, "--one")};
    const char *mode = argc > 1 ? argv[1] : "";
    if (o.is_one && (setenv("CUDA_MODULE_LOADING", "EAGER", 1) != 0 ||
                     setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1) !=
                         0)) /* loaded before kernels wait for one another, and not behind them */
        return 2;
    o.mode = strcmp(mode, "packed") == 0   ? LP_SYNC_PACKED
             : strcmp(mode, "sliced") == 0 ? LP_SYNC_SLICED
             : strcmp(mode, "delta") == 0  ? LP_SYNC_DELTA
                                           : 0;
    o.hidden = o.is_host ? 256 : 8192; /* a layer is 1 MiB, or 1 GiB */
    o.layers = number(argc, argv, "--gib", o.is_host ? 4 : 20);
    o.senders = (int)number(argc, argv, "--senders", 1);
    o.receivers = (int)number(argc, argv, "--receivers", 1);
    o.elem = flag(argc, argv, "--fp8") ? 1 : 2;
    o.epochs = o.mode == LP_SYNC_DELTA ? DELTA_EPOCHS : (int)number(argc, argv, "--epochs", 6);
    o.bucket = number(argc, argv, "--bucket", o.is_host ? 1 : 256) << 20;
    o.port = 20000 + (int)(getpid() % 20000);
    if (o.mode == 0 || o.senders < 1 || o.receivers < 1 || o.senders + o.receivers > RANKS_MOST || o.epochs < 1 ||
        o.epochs > EPOCHS_MOST || o.layers < 1 || o.bucket < 1) {
        fprintf(stderr, "usage: bench_sync packed|sliced|delta [--gib N] [--senders N] [--receivers N] [--bucket MIB] "
                        "[--epochs N] [--fp8] [--gate] [--one|--host]\n");
        return 2;
    }
    const bool is_split = o.mode == LP_SYNC_SLICED;
    lp_checkpoint *model = make_model(&o);
    lp_trace *trainer = record(&o, model, o.senders, 0);
    lp_trace *server = record(&o, model, is_split && o.receivers == 1 ? 2 : o.receivers, is_split ? 1 : 0);
    for (int i = 0; i < o.senders + o.receivers; i++) {
        ranks[i] = (bench_rank){.o = &o, .index = i, .is_sender = i < o.senders};
        ranks[i].trace = ranks[i].is_sender ? trainer : server;
        bind_rank(&ranks[i]);
        lp_error err;
        if (!o.is_host && lp_nccl_cuda(&ranks[i].device, gpu_of(&o, i), &err) != LP_OK)
            give_up(&err);
        if (ranks[i].is_sender)
            load_trainer(&ranks[i]);
    }
    run_world(&o);
    int code = o.mode == LP_SYNC_DELTA ? judge_deltas(&o) : judge(&o);
    if (o.senders == 1 && o.receivers == 1 && !is_split && !is_equal(&ranks[0], &ranks[1])) {
        printf("the receiver does not hold what was sent\n");
        code = 2;
    }
    for (int i = 0; i < o.senders + o.receivers; i++) {
        free_noise(&ranks[i]);
        lp_plan_close(ranks[i].plan);
        lp_destinations_free(ranks[i].memory);
    }
    lp_trace_close(trainer);
    lp_trace_close(server);
    lp_checkpoint_close(model);
    return code;
}
