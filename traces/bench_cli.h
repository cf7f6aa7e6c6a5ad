/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Benches: what the rooms give to `loadplan bench`. Part of the program, not of the library.
 *
 * A bench is one row of a room's table: a name, the unit and the bar of its value, and a function that does the work
 * and times it. Each runs in a process of its own, so that its peak of memory is its own and a failure is one row's.
 * Benches meet in a folder: one that needs the file of another names it. docs/performance.md defines every column.
 */
#ifndef LOADPLAN_BENCH_CLI_H
#define LOADPLAN_BENCH_CLI_H

#include "traces/cli.h"

enum { LP_BENCH_ROUNDS_MAX = 100 };

/* What all benches of one run share. */
typedef struct lp_bench_bed {
    const char *folder; /* for their files; private to the run, removed at its end */
    const lp_platform *platform;
    int rounds;      /* how often to time the work, 1 .. LP_BENCH_ROUNDS_MAX */
    int32_t threads; /* 0: physical cores */
    bool is_small;   /* sizes that a test finishes in a moment; bars are not judged */
} lp_bench_bed;

typedef struct lp_bench_result {
    int64_t size; /* what one operation works on, in size_unit of the bench */
    int rounds;
    int64_t ns[LP_BENCH_ROUNDS_MAX]; /* of each round */
    int64_t cpu_ns;                  /* processor time of the cheapest round, all threads */
    double value;                    /* in the bench's unit */
    int64_t wrong;                   /* results that were not what they must be */
    char note[96];                   /* what the value is about, such as the worst of several cases; or "" */
} lp_bench_result;

typedef enum lp_bench_sense { LP_BENCH_NO_BAR = 0, LP_BENCH_AT_MOST = 1, LP_BENCH_AT_LEAST = 2 } lp_bench_sense;

typedef lp_status (*lp_bench_fn)(const lp_bench_bed *bed, lp_bench_result *result, lp_error *err);

typedef struct lp_bench {
    const char *name;      /* "trace.record" */
    const char *summary;   /* one line, lower case, no full stop */
    const char *size_unit; /* "records", "names", "bytes" */
    const char *unit;      /* of the value: "s", "ms", "ratio", "bytes" */
    lp_bench_sense sense;
    double bar;
    int64_t peak_bar;    /* most bytes of memory; 0: no bar */
    const char *needs;   /* the bench whose file it reads, run before it; or NULL */
    lp_bench_fn prepare; /* makes its files, untimed and in a process of its own; `result` is unused; or NULL */
    lp_bench_fn run;
    bool is_apart; /* not part of 'all': it needs a GPU */
} lp_bench;

/* The rooms' tables; main.c joins them. */
typedef struct lp_bench_table {
    const lp_bench *bench;
    int count;
} lp_bench_table;

extern const lp_bench_table lp_trace_benches, lp_recorder_benches, lp_replayer_benches, lp_kernel_benches;

/* Tells the bench command which tables there are, in the order of its report. The array must stay. */
void lp_bench_join(const lp_bench_table *const *tables, int count);

extern const lp_command lp_bench_command;

/* ---- for the benches ---- */

/* FOLDER/name; the trace that `needs` = "trace.save" leaves behind is "measuring.lpt". */
void lp_bench_path(const lp_bench_bed *bed, const char *name, char path[512]);

lp_status lp_bench_file_bytes(const char *path, double *bytes, lp_error *err);

typedef struct lp_bench_clock {
    int64_t wall_ns, cpu_ns;
} lp_bench_clock;

/* One round is what happens between the two. */
lp_bench_clock lp_bench_start(void);
void lp_bench_stop(lp_bench_result *result, lp_bench_clock started);

/* Of the fastest round. */
double lp_bench_seconds(const lp_bench_result *result);

#endif
