/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan explain --tensor NAME`: which source fills which bytes of one destination, in words or as a picture. */
#include "replayer/explain_cli.h"
#include "replayer/report_cli.h"
#include "traces/glob.h"

#include <inttypes.h>

static lp_status find(const lp_cli_job *job, const lp_report_rows *rows, const char *name, int32_t *scope,
                      uint32_t *index, lp_error *err)
{
    for (int32_t i = 0; i < job->rank_count; i++) {
        *scope = lp_trace_scope_find(job->trace, job->rank[i]);
        const lp_rows *all = rows->scope[*scope].rows;
        for (*index = 0; *index < all->ndest; ++*index)
            if (lp_glob_match(name, all->dest[*index].name))
                return LP_OK;
    }
    lp_fail(err, LP_E_UNKNOWN_NAME, "no destination is called '%s'", name);
    lp_hint(err, "'loadplan query TRACE \"SELECT DISTINCT name FROM v_destinations\"' lists them");
    return LP_E_UNKNOWN_NAME;
}

static void print_words(const lp_cli_job *job, const lp_rows *rows, const lp_destination *d, const lp_strip *s)
{
    FILE *out = job->cli->out;
    char a[32], b[32];
    fprintf(out, "%s: rank %" PRId32 ", %s [", lp_cli_clean(d->name), lp_scope_rank(&rows->scope),
            lp_dtype_name(d->dtype));
    for (int32_t i = 0; i < d->ndim; i++)
        fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", d->shape[i]);
    fprintf(out, "]%s%s, %s\n", d->layout[0] != '\0' ? ", layout " : "", lp_cli_clean(d->layout),
            lp_format_bytes(a, s->bytes));
    for (int32_t i = 1; i < s->sources; i++) {
        const lp_strip_source *source = &s->source[i];
        const lp_provenance *p = lp_trace_provenance(job->trace, source->provenance);
        fprintf(out, "  %-10s %10s %8s x  %s", lp_report_kind(source->kind), lp_format_bytes(a, source->bytes),
                lp_format_count(b, source->records), lp_cli_clean(source->family));
        if (source->note[0] != '\0')
            fprintf(out, " (%s)", lp_cli_clean(source->note));
        if (p != NULL && p->file[0] != '\0')
            fprintf(out, " at %s:%" PRId32, lp_cli_clean(p->file), p->line);
        fputc('\n', out);
    }
}

int lp_cli_explain_tensor(lp_cli_job *job, const char *name)
{
    lp_error err;
    lp_report_rows rows;
    lp_strip strip;
    int32_t scope = 0;
    uint32_t index = 0;
    int64_t looks = INT64_C(1) << 28;
    lp_status status = lp_report_rows_make(&rows, job->trace, NULL, &err);
    if (status == LP_OK)
        status = find(job, &rows, name, &scope, &index, &err);
    if (status == LP_OK)
        status = lp_report_strip(&strip, &rows, scope, index, &looks, &err);
    if (status == LP_OK) {
        const lp_rows *all = rows.scope[scope].rows;
        if (strcmp(lp_cli_text(job->cli, "format", "text"), "svg") == 0)
            lp_report_write_svg(job->cli->out, job->trace, &strip, &all->dest[index]);
        else
            print_words(job, all, &all->dest[index], &strip);
    }
    lp_report_rows_free(&rows);
    return status == LP_OK ? 0 : lp_cli_fail(job->cli, &err);
}
