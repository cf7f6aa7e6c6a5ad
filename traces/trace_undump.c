/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the text of a trace: line by line, in the order in which lp_trace_dump writes, every name known before its
 * use. Digests in comments are not read: they are computed anew from what the lines say.
 */
#include "traces/trace_undump.h"

#include "traces/mistaken_file.h"
#include "traces/trace_schema.h"

/* ---- head ---- */

static lp_status read_version(lp_undump *u)
{
    lp_line *l = &u->line;
    int64_t version;
    if (!lp_line_next(l) || !lp_line_take(l, "loadplan-trace "))
        return lp_fail(u->err, LP_E_FORMAT, "the text does not begin with 'loadplan-trace'");
    LP_TRY(lp_line_integer(l, 0, INT32_MAX, &version));
    if (version / 1000 != LP_TRACE_MAJOR || version % 1000 > LP_TRACE_MINOR)
        return lp_fail(u->err, LP_E_VERSION, "the text has format version %d.%d; this program reads up to %d.%d",
                       (int)(version / 1000), (int)(version % 1000), LP_TRACE_MAJOR, LP_TRACE_MINOR);
    LP_TRY(lp_line_end(l));
    lp_line_next(l);
    return LP_OK;
}

lp_status lp_undump_judge(const char *path, const char *start, int64_t start_bytes, int64_t file_bytes, lp_error *err)
{
    static const char word[] = "loadplan-trace ";
    lp_line l = {.next = start, .stop = start + start_bytes, .err = err};
    if (start_bytes == file_bytes || !lp_line_next(&l) || lp_line_take(&l, word))
        return LP_OK; /* a short text is judged by its reader; comments may go on */
    if (l.end == l.stop && l.end - l.at < (int64_t)sizeof word)
        return LP_OK; /* cut in the middle of the word */
    lp_fail_at(err, LP_E_FORMAT, path, -1, "'%s': the text does not begin with 'loadplan-trace'", path);
    lp_hint_no_trace(err, start, (size_t)start_bytes);
    return LP_E_FORMAT;
}

static lp_status read_header(lp_undump *u)
{
    lp_line *l = &u->line;
    lp_trace_header *h = &u->header;
    const struct {
        const char *word;
        const char **value;
    } known[] = {{"header loader ", &h->loader},
                 {"header loader_version ", &h->loader_version},
                 {"header configuration ", &h->configuration},
                 {"header target ", &h->target}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (lp_line_take(l, known[k].word)) {
            LP_TRY(lp_line_string(l, known[k].value));
            LP_TRY(lp_line_end(l));
            lp_line_next(l);
        }
    int64_t pp, dp, tp, ep;
    LP_TRY(lp_line_expect(l, "layout pp="));
    LP_TRY(lp_line_integer(l, 1, INT32_MAX, &pp));
    LP_TRY(lp_line_expect(l, " dp="));
    LP_TRY(lp_line_integer(l, 1, INT32_MAX, &dp));
    LP_TRY(lp_line_expect(l, " tp="));
    LP_TRY(lp_line_integer(l, 1, INT32_MAX, &tp));
    LP_TRY(lp_line_expect(l, " ep="));
    LP_TRY(lp_line_integer(l, 0, 1, &ep));
    LP_TRY(lp_line_end(l));
    h->layout = (lp_scope){.pp = (int32_t)pp, .dp = (int32_t)dp, .tp = (int32_t)tp, .expert_parallel = ep != 0};
    lp_line_next(l);
    return LP_OK;
}

/* ---- catalogue ---- */

static lp_status read_file(lp_undump *u)
{
    lp_line *l = &u->line;
    lp_checkpoint_file file = {.size_bytes = -1};
    LP_TRY(lp_line_string(l, &file.path));
    if (lp_line_take(l, " bytes="))
        LP_TRY(lp_line_integer(l, 0, INT64_MAX, &file.size_bytes));
    if (lp_line_take(l, " sha256="))
        LP_TRY(lp_line_string(l, &file.sha256));
    LP_TRY(lp_line_end(l));
    if (!lp_text_is_fit(file.path) || !lp_text_is_fit(file.sha256))
        return lp_line_fail(l, "the name of a file is too long or not UTF-8");
    if (!lp_path_is_safe(file.path))
        return lp_line_fail(l, "file '%.200s' is absolute or goes upwards", file.path);
    LP_TRY(lp_line_pass(l, l->number, lp_checkpoint_add_file(u->checkpoint, &file, u->err)));
    lp_line_next(l);
    return LP_OK;
}

lp_status lp_undump_dtype(lp_line *l, lp_dtype *dtype)
{
    const char *start = l->at;
    while (l->at < l->end && *l->at != ' ' && *l->at != '>')
        l->at++;
    *dtype = lp_dtype_parse(start, (size_t)(l->at - start));
    if (*dtype == LP_DTYPE_NONE && (l->at - start != 1 || *start != '-'))
        return lp_line_fail(l, "unknown dtype '%.*s'", (int)(l->at - start < 24 ? l->at - start : 24), start);
    return LP_OK;
}

static lp_status read_name(lp_undump *u)
{
    lp_line *l = &u->line;
    lp_checkpoint_tensor t = {.file = -1, .file_off = -1};
    int64_t file = -1;
    LP_TRY(lp_line_string(l, &t.name));
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_undump_dtype(l, &t.dtype));
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_line_numbers(l, INT32_MAX, &t.shape, &t.ndim));
    if (lp_line_take(l, " file="))
        LP_TRY(lp_line_integer(l, 0, INT32_MAX, &file));
    t.file = (int32_t)file;
    if (file >= 0 && lp_line_take(l, " off="))
        LP_TRY(lp_line_integer(l, 0, INT64_MAX, &t.file_off));
    LP_TRY(lp_line_end(l));
    LP_TRY(lp_line_pass(l, l->number, lp_checkpoint_add(u->checkpoint, &t, u->err)));
    lp_line_next(l);
    return LP_OK;
}

static lp_status read_catalogue(lp_undump *u)
{
    LP_TRY(lp_checkpoint_new(&u->checkpoint, &u->platform, u->err));
    while (lp_line_take(&u->line, "file "))
        LP_TRY(read_file(u));
    while (lp_line_take(&u->line, "name "))
        LP_TRY(read_name(u));
    LP_TRY(lp_line_pass(&u->line, u->line.number, lp_checkpoint_seal(u->checkpoint, u->err)));
    while (lp_line_take(&u->line, "map ")) {
        LP_TRY(lp_line_map_definition(&u->line, &u->maps));
        LP_TRY(lp_line_end(&u->line));
        lp_line_next(&u->line);
    }
    return LP_OK;
}

/* ---- scopes ---- */

static lp_status read_scope(lp_undump *u)
{
    lp_line *l = &u->line;
    int64_t pp, dp, tp;
    const int64_t number = l->number;
    LP_TRY(lp_line_expect(l, "pp="));
    LP_TRY(lp_line_integer(l, 0, INT32_MAX, &pp));
    LP_TRY(lp_line_expect(l, " dp="));
    LP_TRY(lp_line_integer(l, 0, INT32_MAX, &dp));
    LP_TRY(lp_line_expect(l, " tp="));
    LP_TRY(lp_line_integer(l, 0, INT32_MAX, &tp));
    LP_TRY(lp_line_end(l));
    lp_line_next(l);
    lp_rows rows = {.scope = u->header.layout};
    rows.scope.pp_rank = (int32_t)pp;
    rows.scope.dp_rank = (int32_t)dp;
    rows.scope.tp_rank = (int32_t)tp;
    LP_TRY(lp_undump_rows(u, &rows));
    u->records += rows.nrecord;
    u->derives += rows.nderive;
    u->refusals += rows.nrefusal;
    /* The rows are judged as a whole: the error names the row, and this the scope. */
    const lp_status status = lp_line_pass(l, number, lp_trace_add_rows(u->trace, &rows, u->err));
    lp_arena_free(&u->arena); /* the trace has copies */
    return status;
}

static lp_status read_end(lp_undump *u)
{
    lp_line *l = &u->line;
    int64_t names, scopes, records, derives, refusals;
    LP_TRY(lp_line_expect(l, "END names="));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &names));
    LP_TRY(lp_line_expect(l, " scopes="));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &scopes));
    LP_TRY(lp_line_expect(l, " records="));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &records));
    LP_TRY(lp_line_expect(l, " derives="));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &derives));
    LP_TRY(lp_line_expect(l, " refusals="));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &refusals));
    LP_TRY(lp_line_end(l));
    if (names != lp_checkpoint_count(u->trace->checkpoint) || scopes != lp_trace_scope_count(u->trace) ||
        records != u->records || derives != u->derives || refusals != u->refusals)
        return lp_line_fail(l, "the counts of the END line are not those of the text");
    return lp_line_next(l) ? lp_line_fail(l, "something stands behind the END line") : LP_OK;
}

static lp_status read_all(lp_undump *u)
{
    LP_TRY(read_version(u));
    LP_TRY(read_header(u));
    LP_TRY(read_catalogue(u));
    lp_checkpoint *checkpoint = u->checkpoint;
    u->checkpoint = NULL; /* taken over, also on failure */
    LP_TRY(lp_line_pass(&u->line, 1, lp_trace_new_with(&u->trace, checkpoint, &u->header, &u->platform, u->err)));
    lp_arena_free(&u->arena);
    u->header = (lp_trace_header){.layout = u->header.layout};
    while (lp_line_take(&u->line, "scope "))
        LP_TRY(read_scope(u));
    LP_TRY(read_end(u));
    return lp_line_pass(&u->line, u->line.number, lp_trace_seal(u->trace, u->err));
}

lp_status lp_trace_undump(lp_trace **out, const char *text, size_t text_bytes, const lp_platform *platform,
                          lp_error *err)
{
    lp_undump u = {.platform = lp_platform_resolve(platform), .err = err};
    lp_arena_init(&u.arena, u.platform.alloc);
    lp_map_texts_init(&u.maps, u.platform.alloc);
    u.line = (lp_line){.next = text, .stop = text + text_bytes, .arena = &u.arena, .err = err};
    const lp_status status = read_all(&u);
    if (status == LP_OK)
        *out = u.trace;
    else
        lp_trace_close(u.trace);
    if (status == LP_E_FORMAT && (text_bytes == 0 || text[0] != 'l'))
        lp_hint_no_trace(err, text, text_bytes);
    lp_checkpoint_close(u.checkpoint);
    lp_map_texts_free(&u.maps);
    lp_arena_free(&u.arena);
    return status;
}
