/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings as SARIF 2.1.0, for code scanning. Nothing in it changes from run to run: no time, no host, paths relative
 * to the repository, and fingerprints without line numbers, so that an alert stays the same alert when the loader
 * moves.
 */
#include "traces/findings_cli.h"

#include <stdlib.h>

static const char *sarif_level(lp_level level)
{
    return level == LP_DENY ? "error" : level == LP_WARN ? "warning" : "note";
}

/* A path as a relative URI reference; malloc. */
static char *uri_of(const char *path)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    static const char hex[] = "0123456789ABCDEF";
    char *uri = malloc(3 * strlen(path) + 1), *q = uri;
    if (uri == NULL)
        return NULL;
    for (const char *p = path; *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        if (strchr(plain, c) != NULL) {
            *q++ = *p;
            continue;
        }
        *q++ = '%';
        *q++ = hex[c >> 4];
        *q++ = hex[c & 15];
    }
    *q = '\0';
    return uri;
}

/* ---- rules ---- */

/* The rules of the command, in the order of the table; *number of each is its place in the list. */
static json_t *rules_json(bool is_diff)
{
    json_t *list = json_array();
    for (int i = 0; i < lp_rule_count(); i++) {
        const lp_rule *rule = lp_rule_at(i);
        if (rule->of_diff != is_diff)
            continue;
        json_t *x = json_pack(
            "{s:s, s:{s:s}, s:{s:s}, s:{s:s}}", "id", rule->id, "shortDescription", "text", rule->sentence, "help",
            "text", is_diff ? "docs/diff.md explains the rules of diff" : "docs/check.md explains the rules of check",
            "defaultConfiguration", "level", sarif_level(rule->level));
        if (x == NULL || json_array_append_new(list, x) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static int rule_index(const lp_rule *wanted)
{
    int index = 0;
    for (int i = 0; i < lp_rule_count() && lp_rule_at(i) != wanted; i++)
        index += lp_rule_at(i)->of_diff == wanted->of_diff;
    return index;
}

/* ---- results ---- */

/* The trace by its place in the repository, else by its name alone; malloc. */
static char *trace_uri(const findings_run *run)
{
    char *whole = realpath(run->trace, NULL);
    const char *slash = strrchr(run->trace, '/');
    const char *path = whole != NULL ? lp_cli_settings_relative(&run->settings, whole) : NULL;
    const bool is_inside = path != NULL && path > whole + 1;
    char *uri = uri_of(is_inside ? path : slash != NULL ? slash + 1 : run->trace);
    free(whole);
    return uri;
}

typedef struct sarif {
    const findings_run *run;
    char *trace; /* its URI */
} sarif;

/* Where the loader's line is unknown, the place is the trace: code scanning wants one. */
static json_t *location_json(const sarif *s, const lp_finding *x)
{
    const bool is_placed = x->file[0] != '\0';
    char *loader = is_placed ? uri_of(lp_cli_settings_relative(&s->run->settings, x->file)) : NULL;
    if (is_placed && loader == NULL)
        return NULL;
    json_t *physical =
        json_pack("{s:{s:s, s:s}}", "artifactLocation", "uri", is_placed ? loader : s->trace, "uriBaseId", "%SRCROOT%");
    free(loader);
    if (physical != NULL && is_placed && x->line > 0)
        json_object_set_new(physical, "region", json_pack("{s:i}", "startLine", (int)x->line));
    json_t *logical =
        json_pack("[{s:o, s:s}]", "fullyQualifiedName", findings_clean_json(x->tensor), "kind", "variable");
    return json_pack("{s:o, s:o}", "physicalLocation", physical, "logicalLocations", logical);
}

static json_t *result_json(const void *context, int64_t i)
{
    const sarif *s = context;
    const lp_finding *x = lp_findings_at(s->run->findings, i);
    char *family = findings_clean(x->family), *message = NULL, number[32];
    lp_text text;
    lp_text_init(&text, NULL);
    if (family != NULL)
        lp_text_format(&text, "%s (%s %s): %s%s%s", family, lp_format_count(number, x->members),
                       x->members == 1 ? "tensor" : "tensors", x->text, x->hint[0] != '\0' ? ". Hint: " : "", x->hint);
    message = text.failed ? NULL : text.data;
    json_t *properties =
        json_pack("{s:s?, s:I, s:i, s:I, s:I}", "family", family, "members", (json_int_t)x->members, "rank",
                  (int)x->rank, "byteLo", (json_int_t)x->byte_lo, "byteHi", (json_int_t)x->byte_hi);
    json_t *result = json_pack("{s:s, s:i, s:s, s:{s:s}, s:[o], s:{s:s}, s:o}", "ruleId", x->rule->id, "ruleIndex",
                               rule_index(x->rule), "level", sarif_level(x->level), "message", "text",
                               message != NULL ? message : "", "locations", location_json(s, x), "partialFingerprints",
                               "loadplanFinding/v1", x->fingerprint, "properties", properties);
    if (result != NULL && x->suppressed != NULL)
        json_object_set_new(
            result, "suppressions",
            json_pack("[{s:s, s:o}]", "kind", "external", "justification", findings_clean_json(x->suppressed)));
    if (message == NULL) {
        json_decref(result);
        result = NULL;
    }
    lp_text_free(&text);
    free(family);
    return result;
}

bool findings_print_sarif(const findings_run *run)
{
    const sarif s = {.run = run, .trace = trace_uri(run)};
    const lp_cli_list results = {"results", lp_findings_count(run->findings), result_json, &s};
    json_t *rules = rules_json(run->base != NULL);
    json_t *driver = json_pack("{s:s, s:s, s:s, s:o}", "name", "loadplan", "version", lp_version(), "semanticVersion",
                               lp_version(), "rules", rules);
    json_t *base = json_pack("{s:{s:{s:s}}}", "%SRCROOT%", "description", "text", "the root of the repository");
    json_t *job = json_pack("{s:{s:s}, s:{s:o}, s:o, s:s, s:o}", "automationDetails", "id",
                            run->base != NULL ? "loadplan/diff/" : "loadplan/check/", "tool", "driver", driver,
                            "originalUriBaseIds", base, "columnKind", "unicodeCodePoints", results.key, json_array());
    json_t *root = json_pack("{s:s, s:s, s:[o]}", "$schema", "https://json.schemastore.org/sarif-2.1.0.json", "version",
                             "2.1.0", "runs", job);
    const bool ok = rules != NULL && s.trace != NULL && lp_cli_dump_lists(run->cli->out, root, &results, 1);
    json_decref(root);
    free(s.trace);
    return ok;
}
