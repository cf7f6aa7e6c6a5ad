/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan bench`: chooses benches, runs each in a process of its own, and reports them. */
#include "traces/bench_cli.h"
#include "traces/bench_report.h"

#include "traces/base.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BENCHES_MAX = 64, ROUNDS_DEFAULT = 5 };

static const lp_bench_table *const *joined;
static int joined_count;

void lp_bench_join(const lp_bench_table *const *tables, int count)
{
    joined = tables;
    joined_count = count;
}

/* ---- for the benches ---- */

void lp_bench_path(const lp_bench_bed *bed, const char *name, char path[512])
{
    snprintf(path, 512, "%s/%s", bed->folder, name);
}

lp_status lp_bench_file_bytes(const char *path, double *bytes, lp_error *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return lp_fail_errno(err, errno, "look at", path);
    *bytes = (double)st.st_size;
    return LP_OK;
}

static int64_t read_clock(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

lp_bench_clock lp_bench_start(void)
{
    const int64_t cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    return (lp_bench_clock){.wall_ns = read_clock(CLOCK_MONOTONIC), .cpu_ns = cpu};
}

void lp_bench_stop(lp_bench_result *result, lp_bench_clock started)
{
    const int64_t wall = read_clock(CLOCK_MONOTONIC) - started.wall_ns;
    const int64_t cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID) - started.cpu_ns;
    if (result->rounds == LP_BENCH_ROUNDS_MAX)
        return;
    if (result->rounds == 0 || cpu < result->cpu_ns)
        result->cpu_ns = cpu;
    result->ns[result->rounds++] = wall;
}

double lp_bench_seconds(const lp_bench_result *result)
{
    int64_t least = result->rounds > 0 ? result->ns[0] : 0;
    for (int i = 1; i < result->rounds; i++)
        least = result->ns[i] < least ? result->ns[i] : least;
    return (double)least * 1e-9;
}

/* ---- one bench, in a child process ---- */

static volatile sig_atomic_t stopped_by;

static void note_signal(int number)
{
    stopped_by = number;
}

/* What the child tells its parent, in memory that both have. */
typedef struct message {
    lp_status status;
    lp_error err;
    lp_bench_result result;
} message;

static void run_child(const lp_bench_bed *bed, lp_bench_fn run, message *m)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    m->status = run(bed, &m->result, &m->err);
    exit(0); /* not _exit: leak checks and coverage counts come at the end of a process */
}

/* LP_OK when the child came to an end by itself; what it found is in *m. */
static lp_status run_apart(const lp_bench_bed *bed, const char *name, lp_bench_fn run, message *m, int64_t *peak_bytes,
                           lp_error *err)
{
    struct rusage usage;
    int how;
    memset(m, 0, sizeof *m);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        run_child(bed, run, m);
    if (child < 0)
        return lp_fail_errno(err, errno, "start a process for", name);
    while (wait4(child, &how, 0, &usage) < 0) {
        if (errno != EINTR)
            return lp_fail_errno(err, errno, "wait for", name);
        if (stopped_by != 0)
            kill(child, SIGTERM); /* ours, by its number */
    }
    *peak_bytes = (int64_t)usage.ru_maxrss * 1024;
    if (stopped_by != 0)
        return lp_fail(err, LP_E_IO, "stopped by signal %d", (int)stopped_by);
    if (WIFSIGNALED(how))
        return lp_fail(err, LP_E_INTERNAL, "bench '%s' was ended by signal %d", name, WTERMSIG(how));
    if (m->status != LP_OK && err != NULL)
        *err = m->err;
    return m->status;
}

/* ---- the run ---- */

typedef struct bench_run {
    lp_cli *cli;
    lp_bench_bed bed;
    message *message;
    const lp_bench *bench[BENCHES_MAX]; /* of all tables */
    bool is_wanted[BENCHES_MAX], has_run[BENCHES_MAX];
    int count;
    lp_bench_line line[BENCHES_MAX];
    int line_count;
} bench_run;

static void gather(bench_run *run)
{
    for (int t = 0; t < joined_count; t++)
        for (int i = 0; i < joined[t]->count && run->count < BENCHES_MAX; i++)
            run->bench[run->count++] = &joined[t]->bench[i];
}

static int find(const bench_run *run, const char *name)
{
    for (int i = 0; i < run->count; i++)
        if (strcmp(run->bench[i]->name, name) == 0)
            return i;
    return -1;
}

/* Runs the bench and what it needs, each once. One that nobody asked for leaves no line. */
static lp_status run_bench(bench_run *run, int index, lp_error *err)
{
    const lp_bench *b = run->bench[index];
    int64_t peak_bytes;
    if (run->has_run[index])
        return LP_OK;
    run->has_run[index] = true;
    if (b->needs != NULL)
        LP_TRY(run_bench(run, find(run, b->needs), err));
    lp_bench_bed bed = run->bed;
    if (!run->is_wanted[index])
        bed.rounds = 1;
    if (b->prepare != NULL)
        LP_TRY(run_apart(&bed, b->name, b->prepare, run->message, &peak_bytes, err));
    lp_cli_note(run->cli, "%s: %s", b->name, b->summary);
    LP_TRY(run_apart(&bed, b->name, b->run, run->message, &peak_bytes, err));
    if (run->is_wanted[index])
        run->line[run->line_count++] = lp_bench_judge(b, &run->message->result, peak_bytes, run->bed.is_small);
    return LP_OK;
}

/* A bench that fails leaves no line, but those after it run. Returns the exit code of the first failure. */
static int run_wanted(bench_run *run)
{
    int exit_code = 0;
    for (int i = 0; i < run->count && stopped_by == 0; i++) {
        lp_error err;
        if (!run->is_wanted[i])
            continue;
        lp_cli_progress(run->cli, "bench", run->line_count, run->count, false);
        if (run_bench(run, i, &err) == LP_OK)
            continue;
        lp_cli_progress_end(run->cli);
        const int failed = lp_cli_fail(run->cli, &err);
        exit_code = exit_code == 0 ? failed : exit_code;
    }
    lp_cli_progress_end(run->cli);
    return exit_code;
}

/* ---- the folder ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

/* Makes the folder that the benches share, runs them, and removes it whatever happened. */
static int run_in_folder(bench_run *run)
{
    char folder[512];
    lp_error err;
    const char *parent = lp_cli_text(run->cli, "folder", "/tmp");
    if (strlen(parent) > 256)
        return lp_cli_usage(run->cli, "the name of the folder is too long");
    snprintf(folder, sizeof folder, "%s/loadplan-bench-XXXXXX", parent);
    if (mkdtemp(folder) == NULL) {
        lp_fail_errno(&err, errno, "make a folder in", parent);
        return lp_cli_fail(run->cli, &err);
    }
    run->bed.folder = folder;
    const struct sigaction noting = {.sa_handler = note_signal};
    sigaction(SIGINT, &noting, NULL);
    sigaction(SIGTERM, &noting, NULL);
    const int exit_code = run_wanted(run);
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    run->bed.folder = NULL;
    if (stopped_by != 0) {
        signal(stopped_by, SIG_DFL);
        raise(stopped_by);
    }
    return exit_code;
}

/* ---- the command ---- */

/* Whether `name` is the bench's, or the group before its first dots. */
static bool is_of(const lp_bench *bench, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(bench->name, name, length) == 0 && (bench->name[length] == '\0' || bench->name[length] == '.');
}

static int choose(bench_run *run)
{
    lp_cli *cli = run->cli;
    for (int a = 0; a < cli->argument_count; a++) {
        const bool is_all = strcmp(cli->argument[a], "all") == 0;
        bool is_known = false;
        for (int i = 0; i < run->count; i++)
            if (is_all ? !run->bench[i]->is_apart : is_of(run->bench[i], cli->argument[a]))
                is_known = run->is_wanted[i] = true;
        if (!is_known)
            return lp_cli_usage(cli, "there is no bench '%s'; 'loadplan bench --list' names them",
                                lp_cli_clean(cli->argument[a]));
    }
    if (cli->argument_count == 0)
        return lp_cli_usage(cli, "which bench? 'all', or a name of 'loadplan bench --list'");
    return 0;
}

static int print_list(bench_run *run, bool is_json)
{
    const int exit_code = lp_bench_print_list(run->cli, run->bench, run->count, is_json);
    return exit_code != 0 ? exit_code : lp_cli_close_output(run->cli);
}

/* Exit code of what was seen. */
static int verdict(const bench_run *run)
{
    const bool is_gate = lp_cli_flag(run->cli, "gate", false);
    for (int i = 0; i < run->line_count; i++)
        if (run->line[i].result.wrong > 0 || (is_gate && run->line[i].is_missed))
            return LP_EXIT_NO;
    return LP_EXIT_DONE;
}

static int run_and_print(bench_run *run, bool is_json)
{
    lp_error err;
    run->message = mmap(NULL, sizeof *run->message, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->message == MAP_FAILED) {
        lp_fail_memory(&err);
        return lp_cli_fail(run->cli, &err);
    }
    const int failed = run_in_folder(run);
    munmap(run->message, sizeof *run->message);
    if (failed != 0 && run->line_count == 0)
        return failed;
    int exit_code = lp_bench_print(run->cli, &run->bed, run->line, run->line_count, is_json);
    if (exit_code == 0)
        exit_code = lp_cli_close_output(run->cli);
    return failed != 0 ? failed : exit_code != 0 ? exit_code : verdict(run);
}

static int run_command(lp_cli *cli)
{
    bench_run run = {.cli = cli};
    int64_t rounds, threads;
    const bool is_json = strcmp(lp_cli_text(cli, "format", "text"), "json") == 0;
    const bool is_list = lp_cli_flag(cli, "list", false);
    gather(&run);
    if (!lp_cli_integer(cli, "rounds", ROUNDS_DEFAULT, 1, LP_BENCH_ROUNDS_MAX, &rounds) ||
        !lp_cli_integer(cli, "threads", 0, 0, 256, &threads))
        return LP_EXIT_USAGE;
    int exit_code = is_list ? 0 : choose(&run);
    const char *output = lp_cli_text(cli, "output", NULL);
    if (exit_code == 0 && output != NULL)
        exit_code = lp_cli_open_output(cli, output, lp_cli_flag(cli, "force", false));
    if (exit_code != 0)
        return exit_code;
    run.bed = (lp_bench_bed){.platform = lp_cli_platform(cli),
                             .rounds = (int)rounds,
                             .threads = (int32_t)threads,
                             .is_small = lp_cli_flag(cli, "small", false)};
    return is_list ? print_list(&run, is_json) : run_and_print(&run, is_json);
}

static const lp_option options[] = {
    {"list", 0, NULL, NULL, "say what there is instead"},
    {"format", 0, "FORMAT", "text|json", "how to print (default text)"},
    {"gate", 0, NULL, NULL, "exit with 1 when a bar is missed"},
    {"rounds", 0, "N", NULL, "how often each is timed; the best counts (default 5)"},
    {"threads", 'j', "N", NULL, "threads of the executor (default 0: physical cores)"},
    {"small", 0, NULL, NULL, "small sizes, to try that all work; bars are not judged"},
    {"folder", 0, "DIR", NULL, "where to keep files meanwhile, up to 400 MiB (default /tmp)"},
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},
    {"force", 'f', NULL, NULL, "replace an existing output"},
};

const lp_command lp_bench_command = {
    .name = "bench",
    .arguments = "NAME...|all",
    .summary = "time what has a bar: recording, judging, opening, moving, reading",
    .details =
        "Prints one line for each bench: the size of one operation, how often it was timed, the fastest, the middle "
        "and the slowest time, the rate of the fastest, the value with its bar, and the peak of memory. "
        "docs/performance.md defines every column.\n\n"
        "A name stands for all benches that begin with it and a dot. Those that need a GPU (megamoe) are not part of "
        "'all'.\n\n"
        "Exit codes: 0 all ran, also where a bar is missed; 1 a result was wrong, or with --gate a bar was missed; "
        "4 no memory or no place for files.\n\n"
        "Example:  loadplan bench trace.record trace.check --format=json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .least = 0,
    .most = -1,
    .run = run_command,
};
