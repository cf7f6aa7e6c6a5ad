/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as one JSON object, and as one object a line. docs/schemas/ has the schemas. */
#include "traces/findings_cli.h"

enum { FORMAT = 1 };

static json_t *finding_json(const void *context, int64_t i)
{
    const findings_run *run = context;
    const lp_finding *x = lp_findings_at(run->findings, i);
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:i, s:I, s:I, s:o, s:i, s:s, s:s, s:s, s:o}", "rule", x->rule->id,
                     "level", findings_level_name(x->level), "family", findings_clean_json(x->family), "members",
                     (json_int_t)x->members, "tensor", findings_clean_json(x->tensor), "rank", (int)x->rank, "byte_lo",
                     (json_int_t)x->byte_lo, "byte_hi", (json_int_t)x->byte_hi, "file",
                     findings_clean_json(lp_cli_settings_relative(&run->settings, x->file)), "line", (int)x->line,
                     "text", x->text, "hint", x->hint, "fingerprint", x->fingerprint, "suppressed",
                     findings_clean_json(x->suppressed != NULL ? x->suppressed : ""));
}

static json_t *unused_json(const findings_run *run, const lp_suppression *x)
{
    return json_pack("{s:s, s:o, s:o, s:i}", "rule", x->rule->id, "glob", findings_clean_json(x->glob), "file",
                     findings_clean_json(lp_cli_settings_relative(&run->settings, run->suppressions_path)), "line",
                     (int)x->line);
}

static bool is_unused(const findings_run *run, const lp_suppression *x)
{
    return !x->is_used && x->rule->of_diff == (run->base != NULL);
}

static json_t *counts_json(const findings_run *run)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "deny", (json_int_t)run->denied, "warn", (json_int_t)run->warned, "allow",
                     (json_int_t)run->allowed, "suppressed", (json_int_t)run->suppressed);
}

/* False when something was missing: jansson hands NULL through. */
static bool append(json_t *list, json_t *value)
{
    return value != NULL && json_array_append_new(list, value) == 0;
}

bool findings_print_json(const findings_run *run)
{
    const lp_cli_list findings = {"findings", lp_findings_count(run->findings), finding_json, run};
    json_t *unused = json_array();
    bool ok = unused != NULL;
    for (int64_t i = 0; ok && i < run->suppressions.count; i++)
        if (is_unused(run, &run->suppressions.item[i]))
            ok = append(unused, unused_json(run, &run->suppressions.item[i]));
    json_t *root =
        json_pack("{s:i, s:s, s:o, s:s, s:i, s:o, s:o, s:o}", "format", FORMAT, "command", run->cli->command->name,
                  "trace", findings_clean_json(run->trace), "summary", lp_findings_summary(run->findings), "exit",
                  run->verdict, "counts", counts_json(run), findings.key, json_array(), "unused_suppressions", unused);
    ok = ok && root != NULL;
    if (ok && run->base != NULL)
        ok = json_object_set_new(root, "base", findings_clean_json(run->base)) == 0;
    ok = ok && lp_cli_dump_lists(run->cli->out, root, &findings, 1);
    json_decref(root);
    return ok;
}

/* ---- one object a line ---- */

/* Prints {"type": type, ...value...}. */
static bool print_line(const findings_run *run, const char *type, json_t *value)
{
    json_t *line = json_pack("{s:s}", "type", type);
    const bool ok = line != NULL && value != NULL && json_object_update(line, value) == 0 &&
                    lp_cli_dump_json(run->cli->out, line, JSON_COMPACT) && fputc('\n', run->cli->out) != EOF;
    json_decref(value);
    json_decref(line);
    return ok;
}

bool findings_print_ndjson(const findings_run *run)
{
    json_t *version = json_pack("{s:i, s:s, s:s, s:o}", "format", FORMAT, "loadplan", lp_version(), "command",
                                run->cli->command->name, "trace", findings_clean_json(run->trace));
    if (version != NULL && run->base != NULL)
        json_object_set_new(version, "base", findings_clean_json(run->base));
    bool ok = print_line(run, "version", version);
    for (int64_t i = 0; ok && i < lp_findings_count(run->findings); i++)
        ok = print_line(run, "finding", finding_json(run, i));
    for (int64_t i = 0; ok && i < run->suppressions.count; i++)
        if (is_unused(run, &run->suppressions.item[i]))
            ok = print_line(run, "unused_suppression", unused_json(run, &run->suppressions.item[i]));
    return ok && print_line(run, "summary",
                            json_pack("{s:s, s:i, s:o}", "summary", lp_findings_summary(run->findings), "exit",
                                      run->verdict, "counts", counts_json(run)));
}
