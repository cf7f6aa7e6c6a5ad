/* SPDX-License-Identifier: Apache-2.0 */
/* One progress line on stderr, such as `record  37% 214/577 GiB  4.1 GiB/s  eta 1m28s`: drawn late, seldom, and erased.
 */
#include "traces/base.h"
#include "traces/cli_private.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const int64_t second_ns = 1000000000;

/* Tests cannot wait for two seconds: LOADPLAN_PROGRESS_STEP=MS lets a made-up clock go on by that much at each call. */
static int64_t now_ns(void)
{
    static int64_t made_up_ns = 1;
    struct timespec t;
    const char *step = getenv("LOADPLAN_PROGRESS_STEP");
    if (step != NULL)
        return made_up_ns += atoi(step) * INT64_C(1000000);
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * second_ns + t.tv_nsec;
}

static bool plain(void)
{
    const char *how = getenv("LOADPLAN_PROGRESS");
    return how != NULL && strcmp(how, "plain") == 0;
}

/* Whether the command was asked for something that machines read. */
static bool is_for_machines(const lp_cli *cli)
{
    const lp_cli_state *s = cli->state;
    for (int i = 0; cli->command != NULL && i < cli->command->option_count; i++)
        if (strcmp(cli->command->options[i].name, "format") == 0 && s->value[i] != NULL)
            return strcmp(s->value[i], "text") != 0;
    return false;
}

static bool wanted(const lp_cli *cli)
{
    const lp_cli_state *s = cli->state;
    if (cli->quiet > 0 || s->progress == 0)
        return false;
    if (s->progress == 1)
        return true;
    if (is_for_machines(cli))
        return false;
    return plain() || (isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp());
}

void lp_cli_progress(lp_cli *cli, const char *title, int64_t done, int64_t total, bool is_bytes)
{
    lp_cli_state *s = cli->state;
    const int64_t now = now_ns();
    if (s->started_ns == 0) {
        s->started_ns = now;
        s->drawn_ns = 0;
    }
    const int64_t interval = plain() ? 10 * second_ns : second_ns / 6;
    if (now - s->started_ns < 2 * second_ns || now - s->drawn_ns < interval || !wanted(cli))
        return;
    s->drawn_ns = now;
    const double seconds = (double)(now - s->started_ns) / (double)second_ns;
    const double rate = (double)done / seconds;
    char left[32] = "", done_text[32], total_text[32], rate_text[32];
    if (total > 0 && done > 0 && done <= total) {
        const int64_t eta = (int64_t)((double)(total - done) / rate + 0.5);
        if (eta >= 60)
            snprintf(left, sizeof left, "  eta %lldm%02llds", (long long)(eta / 60), (long long)(eta % 60));
        else
            snprintf(left, sizeof left, "  eta %llds", (long long)eta);
    }
    const int percent = total > 0 ? (int)((double)done * 100 / (double)total) : 0;
    if (is_bytes) {
        lp_format_bytes(done_text, done);
        lp_format_bytes(total_text, total);
        lp_format_bytes(rate_text, (int64_t)rate);
    } else {
        lp_format_count(done_text, done);
        lp_format_count(total_text, total);
        if (rate < 10)
            snprintf(rate_text, sizeof rate_text, "%.1f", rate);
        else
            lp_format_count(rate_text, (int64_t)rate);
    }
    if (plain())
        fprintf(stderr, "%s %d%% %s/%s %s/s%s\n", title, percent, done_text, total_text, rate_text, left);
    else
        fprintf(stderr, "\r\x1b[K%s %3d%% %s/%s  %s/s%s", title, percent, done_text, total_text, rate_text, left);
    fflush(stderr);
    s->drawn = !plain();
}

void lp_cli_progress_end(lp_cli *cli)
{
    lp_cli_state *s = cli->state;
    if (s->drawn)
        fputs("\r\x1b[K", stderr);
    s->drawn = false;
    s->started_ns = 0;
}
