/* SPDX-License-Identifier: Apache-2.0 */
/* Findings on the command line. */
#include "traces/findings_cli.h"

#include <stdlib.h>

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

static const char *level_name(lp_level level)
{
    return level == LP_DENY ? "deny" : level == LP_WARN ? "warn" : "allow";
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
            return lp_cli_usage(cli, "there is no rule '%s'", lp_cli_clean(id));
        if (f != NULL && lp_findings_set_level(f, rule, level, err) != LP_OK)
            return lp_cli_fail(cli, err);
        text += bytes + (comma != NULL);
    }
    return 0;
}

int findings_check_options(lp_cli *cli)
{
    return apply_rules(cli, NULL, NULL);
}

/* ---- text ---- */

static void print_finding(lp_cli *cli, const lp_finding *x)
{
    static const char *const colour[] = {"", "\x1b[33m", "\x1b[31m"};
    const char *on = cli->color ? colour[x->level] : "", *off = cli->color && x->level > LP_ALLOW ? "\x1b[0m" : "";
    fprintf(cli->out, "  %s%s %s%s: %s", on, level_name(x->level), x->rule->id, off, x->text);
    const bool placed = x->file[0] != '\0' && strstr(x->text, x->file) == NULL;
    if (x->rank >= 0)
        fprintf(cli->out, " (rank %d", (int)x->rank);
    if (placed)
        fprintf(cli->out, "%s%s:%d", x->rank >= 0 ? ", " : " (", lp_cli_clean(x->file), (int)x->line);
    fputs(x->rank >= 0 || placed ? ")\n" : "\n", cli->out);
    if (x->hint[0] != '\0')
        fprintf(cli->out, "  hint: %s\n", x->hint);
}

/* A finding in the order of print: families as they first appear, so that the worst comes first. */
typedef struct place {
    int64_t family, index;
} place;

static int by_family(const void *pa, const void *pb)
{
    const place *a = pa, *b = pb;
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* The shown findings by family; allowed ones are shown under -v only. NULL when out of memory. */
static place *arrange(const lp_cli *cli, const lp_findings *f, int64_t *count)
{
    lp_strings families;
    place *list = lp_allocate(NULL, (size_t)lp_findings_count(f) * sizeof *list);
    lp_strings_init(&families, NULL);
    *count = 0;
    for (int64_t i = 0; list != NULL && i < lp_findings_count(f); i++) {
        const lp_finding *x = lp_findings_at(f, i);
        if (x->level == LP_ALLOW && cli->verbose == 0)
            continue;
        const int64_t family = lp_strings_add(&families, x->family, strlen(x->family));
        if (family < 0) {
            lp_release(NULL, list);
            list = NULL;
            break;
        }
        list[(*count)++] = (place){family, i};
    }
    lp_strings_free(&families);
    if (list != NULL)
        qsort(list, (size_t)*count, sizeof *list, by_family);
    return list;
}

/* One heading a family, none where the first line has named the only one. */
static bool print_text(lp_cli *cli, const lp_findings *f, const char *title)
{
    int64_t count;
    place *list = arrange(cli, f, &count);
    if (list == NULL)
        return false;
    fprintf(cli->out, "%s%s\n", title, lp_findings_summary(f));
    const bool is_one = count > 0 && list[0].family == list[count - 1].family;
    const bool named = is_one && strstr(lp_findings_summary(f), lp_findings_at(f, list[0].index)->family) != NULL;
    for (int64_t i = 0; i < count; i++) {
        const lp_finding *x = lp_findings_at(f, list[i].index);
        if (!named && (i == 0 || list[i].family != list[i - 1].family)) {
            char number[32];
            fprintf(cli->out, "%s (%s %s)\n", lp_cli_clean(x->family), lp_format_count(number, x->members),
                    x->members == 1 ? "tensor" : "tensors");
        }
        print_finding(cli, x);
    }
    lp_release(NULL, list);
    return true;
}

/* ---- JSON ---- */

static json_t *finding_json(const lp_finding *x)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:i, s:I, s:I, s:s, s:i, s:s, s:s}", "rule", x->rule->id, "level",
                     level_name(x->level), "family", lp_cli_clean(x->family), "members", (json_int_t)x->members,
                     "tensor", lp_cli_clean(x->tensor), "rank", (int)x->rank, "byte_lo", (json_int_t)x->byte_lo,
                     "byte_hi", (json_int_t)x->byte_hi, "file", lp_cli_clean(x->file), "line", (int)x->line, "text",
                     x->text, "hint", x->hint);
}

static json_t *findings_json(const lp_cli *cli, const lp_findings *f, const char *base, const char *trace)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < lp_findings_count(f); i++)
        json_array_append_new(list, finding_json(lp_findings_at(f, i)));
    json_t *root = json_pack("{s:i, s:s, s:s, s:s, s:o}", "format", 1, "command", cli->command->name, "trace",
                             lp_cli_clean(trace), "summary", lp_findings_summary(f), "findings", list);
    if (root != NULL && base != NULL)
        json_object_set_new(root, "base", json_string(lp_cli_clean(base)));
    return root;
}

/* ---- the whole report ---- */

static int verdict(const lp_cli *cli, const lp_findings *f)
{
    const char *fail_on = lp_cli_text(cli, "fail-on", "deny");
    if (lp_cli_flag(cli, "exit-zero", false) || strcmp(fail_on, "never") == 0)
        return LP_EXIT_DONE;
    const lp_level least = strcmp(fail_on, "warn") == 0 ? LP_WARN : LP_DENY;
    return lp_findings_worst(f) >= least ? LP_EXIT_NO : LP_EXIT_DONE;
}

int findings_report(lp_cli *cli, lp_findings *f, const char *title, const char *base, const char *trace)
{
    lp_error err;
    const char *output = lp_cli_text(cli, "output", NULL);
    int code = apply_rules(cli, f, &err);
    if (code == 0 && output != NULL)
        code = lp_cli_open_output(cli, output, lp_cli_flag(cli, "force", false));
    if (code == 0) {
        const char *format = lp_cli_text(cli, "format", "text");
        if (strcmp(format, "github") == 0) {
            findings_print_github(cli, f, title);
        } else if (strcmp(format, "json") == 0) {
            if (!lp_cli_json(cli, findings_json(cli, f, base, trace)))
                code = LP_EXIT_ENVIRONMENT;
        } else if (!print_text(cli, f, title)) {
            lp_fail_memory(&err);
            code = lp_cli_fail(cli, &err);
        }
        if (code == 0)
            code = lp_cli_close_output(cli);
        if (code == 0)
            code = verdict(cli, f);
    }
    lp_findings_free(f);
    return code;
}
