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
#include "sync_bench_ceiling.h"
#include "sync_bench_world.h"

#include <unistd.h>

enum { MISSED = 1 };

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
