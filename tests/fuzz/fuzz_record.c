/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a checkpoint's names and its config.json, recorded by a built-in loader. Refused with a reason that is
 * neither a bug nor a wrong call, or a trace that check and explain can judge.
 *
 *   LOADER TP DP EP REST SLOTS     "auto 2 1 0 1 0"; EP 0: experts are split by TP
 *   {"model_type": ...}            one line
 *   BF16 NAME EXTENT ...           a tensor a line
 */
#include "recorder/recorder.h"
#include "replayer/replayer.h"
#include "tests/fuzz/demand.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { LINE_MAX_BYTES = 4096, NAMES_MAX = 512, EXTENTS_MAX = 8, RANKS_MAX = 8 };

typedef struct reader {
    const uint8_t *at, *end;
    char line[LINE_MAX_BYTES];
    char *rest; /* of the line */
} reader;

static bool next_line(reader *r)
{
    size_t n = 0;
    if (r->at == r->end)
        return false;
    for (; r->at < r->end && *r->at != '\n'; r->at++)
        if (n + 1 < sizeof r->line)
            r->line[n++] = (char)*r->at;
    r->at += r->at < r->end;
    r->line[n] = '\0';
    r->rest = r->line;
    return true;
}

/* Up to a blank, or "" at the end of the line. */
static const char *word(reader *r)
{
    char *start = r->rest;
    r->rest += strcspn(r->rest, " ");
    if (*r->rest != '\0')
        *r->rest++ = '\0';
    return start;
}

static void keep(char *out, size_t out_bytes, const char *text)
{
    const size_t n = strnlen(text, out_bytes - 1);
    memcpy(out, text, n);
    out[n] = '\0';
}

static int32_t number(reader *r, int32_t least, int32_t most)
{
    const long value = strtol(word(r), NULL, 10);
    return value < least ? least : value > most ? most : (int32_t)value;
}

static lp_status add_names(lp_checkpoint *c, reader *r, lp_error *err)
{
    lp_status status = LP_OK;
    for (int count = 0; count < NAMES_MAX && status == LP_OK && next_line(r); count++) {
        const char *dtype = word(r);
        int64_t shape[EXTENTS_MAX];
        lp_checkpoint_tensor t = {
            .dtype = lp_dtype_parse(dtype, strlen(dtype)), .shape = shape, .file = -1, .file_off = -1};
        t.name = word(r);
        while (t.ndim < EXTENTS_MAX && *r->rest != '\0')
            shape[t.ndim++] = strtoll(word(r), NULL, 10);
        if (t.name[0] != '\0' || t.ndim > 0)
            status = lp_checkpoint_add(c, &t, err);
    }
    return status == LP_OK ? lp_checkpoint_seal(c, err) : status;
}

static void demand_reason(lp_status status, const lp_error *err)
{
    demand_error(status, err);
    demand(status != LP_E_INTERNAL && status != LP_E_MISUSE);
}

static void judge(const lp_trace *t)
{
    lp_findings *found = NULL;
    lp_explanation e;
    lp_error err = {0};
    lp_status status = lp_check(&found, t, &err);
    if (status != LP_OK)
        demand_reason(status, &err);
    lp_findings_free(found);
    for (int32_t i = 0; i < lp_trace_scope_count(t); i++) {
        status = lp_explain(&e, t, i, &err);
        if (status != LP_OK)
            demand_reason(status, &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    reader r = {.at = data, .end = data + bytes};
    char loader[32], config[LINE_MAX_BYTES];
    lp_error err = {0};
    lp_checkpoint *c = NULL;
    lp_trace *t = NULL;
    if (!next_line(&r))
        return 0;
    keep(loader, sizeof loader, word(&r));
    lp_loader_options o = {.loader = loader, .layout = {.pp = 1}, .config = config};
    o.layout.tp = number(&r, 1, RANKS_MAX);
    o.layout.dp = number(&r, 1, RANKS_MAX / o.layout.tp);
    o.layout.expert_parallel = number(&r, 0, 1) != 0;
    o.rest = (lp_rest)number(&r, LP_REST_ERROR, LP_REST_DECLINE);
    o.slots = number(&r, 0, 64);
    if (!next_line(&r))
        return 0;
    keep(config, sizeof config, r.line);
    o.config_bytes = (int64_t)strlen(config);

    demand(lp_checkpoint_new(&c, NULL, &err) == LP_OK);
    lp_status status = add_names(c, &r, &err);
    if (status == LP_OK)
        status = lp_load_checkpoint(&t, c, &o, &err);
    if (status == LP_OK)
        judge(t);
    else
        demand_reason(status, &err);
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return 0;
}
