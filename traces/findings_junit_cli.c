/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings as JUnit XML. One suite a family, one case a finding, and a suite of the rules that found nothing, so that a
 * clean run is a list of passed cases rather than an empty report. No times: the report of equal traces is equal.
 */
#include "traces/findings_cli.h"

#include <stdlib.h>

/* Text that XML 1.0 can hold. Names are sanitised before (control characters are written out), so what is left to do is
 * markup and the two code points that XML excludes although they are characters. */
static void print_escaped(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (strncmp(p, "\xef\xbf\xbe", 3) == 0 || strncmp(p, "\xef\xbf\xbf", 3) == 0) {
            fputs("\xef\xbf\xbd", out);
            p += 2;
        } else if (*p == '\n') {
            fputs("&#10;", out);
        } else if (!lp_cli_print_entity(out, *p)) {
            fputc((unsigned char)*p < 0x20 ? '?' : *p, out);
        }
    }
}

static bool print_name(FILE *out, const char *name)
{
    char *text = findings_clean(name);
    if (text != NULL)
        print_escaped(out, text);
    free(text);
    return text != NULL;
}

/* A finding fails its case when it would fail the run. */
static bool is_failure(const findings_run *run, const lp_finding *x)
{
    const char *fail_on = lp_settings_find(run->settings.list, "fail-on");
    fail_on = lp_cli_text(run->cli, "fail-on", fail_on != NULL ? fail_on : "deny");
    return x->suppressed == NULL && (x->level == LP_DENY || (x->level == LP_WARN && strcmp(fail_on, "warn") == 0));
}

static bool print_case(const findings_run *run, const lp_finding *x)
{
    FILE *out = run->cli->out;
    fputs("  <testcase classname=\"", out);
    bool ok = print_name(out, x->family);
    fprintf(out, "\" name=\"%s: ", x->rule->id);
    print_escaped(out, x->text);
    if (x->file[0] != '\0') {
        fputs("\" file=\"", out);
        ok = print_name(out, lp_cli_settings_relative(&run->settings, x->file)) && ok;
        if (x->line > 0)
            fprintf(out, "\" line=\"%d", (int)x->line);
    }
    fputs("\">\n", out);
    if (x->suppressed != NULL) {
        fputs("   <skipped message=\"", out);
        ok = print_name(out, x->suppressed) && ok;
        fputs("\"/>\n", out);
    } else if (is_failure(run, x)) {
        fprintf(out, "   <failure type=\"%s\" message=\"", x->rule->id);
        print_escaped(out, x->text);
        fputs("\">", out);
        print_escaped(out, x->hint);
        fputs("</failure>\n", out);
    } else {
        fprintf(out, "   <system-out>%s: ", findings_level_name(x->level));
        print_escaped(out, x->text);
        fputs("</system-out>\n", out);
    }
    fputs("  </testcase>\n", out);
    return ok;
}

static void print_quiet_rules(const findings_run *run)
{
    FILE *out = run->cli->out;
    const bool is_diff = run->base != NULL;
    int cases = 0;
    bool *is_told = calloc((size_t)lp_rule_count(), sizeof *is_told);
    for (int i = 0; i < lp_rule_count(); i++) {
        for (int64_t k = 0; is_told != NULL && k < lp_findings_count(run->findings); k++)
            is_told[i] = is_told[i] || lp_findings_at(run->findings, k)->rule == lp_rule_at(i);
        cases += lp_rule_at(i)->of_diff == is_diff && is_told != NULL && !is_told[i];
    }
    fprintf(out, " <testsuite name=\"rules\" tests=\"%d\" failures=\"0\" skipped=\"0\">\n", cases);
    for (int i = 0; is_told != NULL && i < lp_rule_count(); i++)
        if (lp_rule_at(i)->of_diff == is_diff && !is_told[i])
            fprintf(out, "  <testcase classname=\"rules\" name=\"%s\"/>\n", lp_rule_at(i)->id);
    fputs(" </testsuite>\n", out);
    free(is_told);
}

bool findings_print_junit(const findings_run *run)
{
    FILE *out = run->cli->out;
    int64_t count, failures = 0;
    findings_place *list = findings_arrange(run, true, &count);
    if (list == NULL)
        return false;
    bool ok = true;
    for (int64_t i = 0; i < count; i++)
        failures += is_failure(run, lp_findings_at(run->findings, list[i].index));
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", out);
    fprintf(out, "<testsuites name=\"loadplan %s\" failures=\"%lld\">\n", run->cli->command->name, (long long)failures);
    for (int64_t i = 0; i < count;) {
        const int64_t first = i, family = list[i].family;
        int64_t failed = 0, skipped = 0;
        for (; i < count && list[i].family == family; i++) {
            const lp_finding *x = lp_findings_at(run->findings, list[i].index);
            failed += is_failure(run, x);
            skipped += x->suppressed != NULL;
        }
        fputs(" <testsuite name=\"", out);
        ok = print_name(out, lp_findings_at(run->findings, list[first].index)->family) && ok;
        fprintf(out, "\" tests=\"%lld\" failures=\"%lld\" skipped=\"%lld\">\n", (long long)(i - first),
                (long long)failed, (long long)skipped);
        for (int64_t k = first; k < i; k++)
            ok = print_case(run, lp_findings_at(run->findings, list[k].index)) && ok;
        fputs(" </testsuite>\n", out);
    }
    print_quiet_rules(run);
    fputs("</testsuites>\n", out);
    lp_release(NULL, list);
    return ok;
}
