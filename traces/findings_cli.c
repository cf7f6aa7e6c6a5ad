/* SPDX-License-Identifier: Apache-2.0 */
/* Findings on the command line: levels, suppressions, which format, and the exit code. */
#include "traces/cli_private.h"
#include "traces/findings_cli.h"

#include <stdlib.h>

enum { SUPPRESSIONS_BYTES_MAX = 1 << 24 };

static bool level_of(const char *text, size_t bytes, lp_level *level)
{
    static const char *const names[] = {"allow", "warn", "deny"};
    for (int i = 0; i < 3; i++)
        if (strlen(names[i]) == bytes && memcmp(names[i], text, bytes) == 0) {
            *level = (lp_level)i;
            return true;
        }
    return false;
}

const char *findings_level_name(lp_level level)
{
    return level == LP_DENY ? "deny" : level == LP_WARN ? "warn" : "allow";
}

bool findings_is_shown(const findings_run *run, const lp_finding *x)
{
    return run->cli->verbose > 0 || (x->level > LP_ALLOW && x->suppressed == NULL);
}

char *findings_clean(const char *name)
{
    const size_t bytes = strlen(name), room = 4 * bytes + 1;
    char *text = malloc(room);
    if (text != NULL)
        lp_sanitise(text, room, name, bytes);
    return text;
}

json_t *findings_clean_json(const char *name)
{
    char *text = findings_clean(name);
    json_t *value = text != NULL ? json_string(text) : NULL;
    free(text);
    return value;
}

/* ---- levels ---- */

static const char *rule_name(int index)
{
    return lp_rule_at(index)->id;
}

static int unknown_rule(lp_cli *cli, const char *id)
{
    const char *near = lp_cli_nearest(id, rule_name, lp_rule_count());
    if (near != NULL)
        return lp_cli_usage(cli, "there is no rule '%s'; did you mean '%s'?", lp_cli_clean(id), near);
    return lp_cli_usage(cli, "there is no rule '%s'", lp_cli_clean(id));
}

/* Walks "ID=LEVEL,ID=LEVEL" and applies each to `f` where that is given. */
static int apply_rules(lp_cli *cli, lp_findings *f, lp_error *err)
{
    const char *text = lp_cli_text(cli, "rule", "");
    while (*text != '\0') {
        const char *comma = strchr(text, ',');
        const size_t bytes = comma != NULL ? (size_t)(comma - text) : strlen(text);
        const char *equals = memchr(text, '=', bytes);
        char id[64] = "";
        lp_level level;
        if (equals == NULL || (size_t)(equals - text) >= sizeof id ||
            !level_of(equals + 1, bytes - (size_t)(equals - text) - 1, &level))
            return lp_cli_usage(cli, "--rule wants ID=allow, ID=warn or ID=deny, not '%.*s'", (int)bytes, text);
        memcpy(id, text, (size_t)(equals - text));
        const lp_rule *rule = lp_rule_find(id);
        if (rule == NULL)
            return unknown_rule(cli, id);
        if (f != NULL && lp_findings_set_level(f, rule, level, err) != LP_OK)
            return lp_cli_fail(cli, err);
        text += bytes + (comma != NULL);
    }
    return 0;
}

/* The same for the lines `rule.ID = LEVEL` of the settings. */
static int apply_settings(const findings_run *run, lp_findings *f)
{
    lp_error err;
    const lp_settings *s = run->settings.list;
    for (int32_t i = 0; s != NULL && i < s->count; i++) {
        const lp_setting *x = &s->item[i];
        const bool is_rule = strncmp(x->key, "rule.", 5) == 0, is_fail_on = strcmp(x->key, "fail-on") == 0;
        lp_level level = LP_DENY;
        const bool is_level = level_of(x->value, strlen(x->value), &level);
        if ((is_rule && !is_level) ||
            (is_fail_on && strcmp(x->value, "never") != 0 && (!is_level || level == LP_ALLOW))) {
            lp_fail(&err, LP_E_FORMAT, "'%s' line %d: '%s' is %s, not '%s'",
                    lp_cli_settings_relative(&run->settings, run->settings.path), (int)x->line, x->key,
                    is_rule ? "allow, warn or deny" : "warn, deny or never", x->value);
            return lp_cli_fail(run->cli, &err);
        }
        if (is_rule && f != NULL && lp_findings_set_level(f, lp_rule_find(x->key + 5), level, &err) != LP_OK)
            return lp_cli_fail(run->cli, &err);
    }
    return 0;
}

/* ---- suppressions ---- */

static int read_suppressions(findings_run *run)
{
    lp_error err;
    char *text;
    int64_t bytes;
    const char *named = lp_cli_text(run->cli, "suppressions", NULL);
    const char *set = lp_settings_find(run->settings.list, "suppressions");
    if (named == NULL && set == NULL)
        return 0;
    run->suppressions_path = named != NULL ? strdup(named) : lp_cli_settings_beside(&run->settings, set);
    lp_status status = run->suppressions_path == NULL
                           ? lp_fail_memory(&err)
                           : lp_read_file(NULL, run->suppressions_path, SUPPRESSIONS_BYTES_MAX, &text, &bytes, &err);
    if (status == LP_OK) {
        status = lp_suppressions_parse(&run->suppressions, text, bytes,
                                       lp_cli_settings_relative(&run->settings, run->suppressions_path), &err);
        lp_release(NULL, text);
    }
    return status == LP_OK ? 0 : lp_cli_fail(run->cli, &err);
}

static void warn_of_unused(const findings_run *run)
{
    const bool is_diff = run->base != NULL;
    for (int64_t i = 0; i < run->suppressions.count; i++) {
        const lp_suppression *x = &run->suppressions.item[i];
        if (!x->is_used && x->rule->of_diff == is_diff)
            lp_cli_warn(run->cli, "'%s' line %d: no finding of %s is at '%s'",
                        lp_cli_clean(lp_cli_settings_relative(&run->settings, run->suppressions_path)), (int)x->line,
                        x->rule->id, lp_cli_clean(x->glob));
    }
}

/* ---- the whole report ---- */

static int read_choice(findings_run *run)
{
    const char *ops = lp_cli_text(run->cli, "ops", NULL);
    lp_error err;
    run->choice = (lp_tensor_choice){.glob = lp_cli_text(run->cli, "tensor", NULL)};
    if (ops == NULL)
        return 0;
    run->choice.rows = &run->ops;
    return lp_number_set_parse(&run->ops, ops, NULL, &err) == LP_OK ? 0 : lp_cli_fail(run->cli, &err);
}

int findings_open(findings_run *run, lp_cli *cli)
{
    *run = (findings_run){.cli = cli};
    lp_suppressions_init(&run->suppressions, NULL);
    int views = 0;
    static const char *const names[] = {"stat", "numstat", "name-only"};
    for (int i = 0; i < 3; i++)
        views += lp_cli_flag(cli, names[i], false);
    if (views > 1 || (views == 1 && strcmp(lp_cli_text(cli, "format", "text"), "text") != 0))
        return lp_cli_usage(cli, "--stat, --numstat, --name-only and --format exclude each other");
    int code = read_choice(run);
    if (code == 0)
        code = apply_rules(cli, NULL, NULL);
    if (code == 0)
        code = lp_cli_settings_open(&run->settings, cli);
    if (code == 0)
        code = apply_settings(run, NULL);
    return code != 0 ? code : read_suppressions(run);
}

static void count_findings(findings_run *run)
{
    const lp_cli *cli = run->cli;
    const char *fail_on = lp_settings_find(run->settings.list, "fail-on");
    fail_on = lp_cli_text(cli, "fail-on", fail_on != NULL ? fail_on : "deny");
    for (int64_t i = 0; i < lp_findings_count(run->findings); i++) {
        const lp_finding *x = lp_findings_at(run->findings, i);
        *(x->suppressed != NULL ? &run->suppressed
          : x->level == LP_DENY ? &run->denied
          : x->level == LP_WARN ? &run->warned
                                : &run->allowed) += 1;
    }
    const bool is_no = run->denied > 0 || (run->warned > 0 && strcmp(fail_on, "warn") == 0);
    const bool never = lp_cli_flag(cli, "exit-zero", false) || strcmp(fail_on, "never") == 0;
    run->verdict = is_no && !never ? LP_EXIT_NO : LP_EXIT_DONE;
}

static bool print(const findings_run *run)
{
    static const struct {
        const char *name;
        bool (*print)(const findings_run *run);
    } formats[] = {
        {"json", findings_print_json},   {"ndjson", findings_print_ndjson}, {"github", findings_print_github},
        {"sarif", findings_print_sarif}, {"junit", findings_print_junit},   {"suppress", findings_print_suppress},
    };
    const char *format = lp_cli_text(run->cli, "format", "text");
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(format, formats[i].name) == 0)
            return formats[i].print(run);
    if (lp_cli_flag(run->cli, "stat", false))
        return findings_print_stat(run);
    if (lp_cli_flag(run->cli, "numstat", false))
        return findings_print_numstat(run);
    if (lp_cli_flag(run->cli, "name-only", false))
        return findings_print_names(run);
    return findings_print_text(run);
}

int findings_report(findings_run *run, lp_findings *f, const char *title, const char *base, const char *trace)
{
    lp_cli *cli = run->cli;
    lp_error err;
    const char *output = lp_cli_text(cli, "output", NULL), *summary = lp_cli_text(cli, "summary-file", NULL);
    run->findings = f;
    run->title = title;
    run->base = base;
    run->trace = trace;
    int code = apply_settings(run, f);
    if (code == 0)
        code = apply_rules(cli, f, &err);
    if (code == 0 && run->suppressions.count > 0 && lp_findings_suppress(f, &run->suppressions, &err) != LP_OK)
        code = lp_cli_fail(cli, &err);
    if (code == 0 && output != NULL)
        code = lp_cli_open_output(cli, output, lp_cli_flag(cli, "force", false));
    if (code != 0)
        return code;
    count_findings(run);
    if (!print(run) && !ferror(cli->out)) { /* a failed write is told where the output is closed */
        lp_fail_memory(&err);
        return lp_cli_fail(cli, &err);
    }
    code = lp_cli_close_output(cli);
    if (code == 0 && summary != NULL)
        code = findings_append_markdown(run, summary);
    if (code != 0)
        return code;
    warn_of_unused(run);
    return run->verdict;
}

void findings_close(findings_run *run)
{
    lp_findings_free(run->findings);
    lp_suppressions_free(&run->suppressions);
    lp_number_set_free(&run->ops);
    lp_cli_settings_close(&run->settings);
    free(run->suppressions_path);
}
