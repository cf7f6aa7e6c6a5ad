/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan explain --push-order`: in which order a layerwise reload stages least. */
#include "replayer/explain_cli.h"

#include <inttypes.h>

static void print_text(const lp_cli_job *job, int32_t rank, const lp_push_order *o)
{
    FILE *out = job->cli->out;
    char host_text[32], device_text[32], names[32];
    int64_t host, device;
    lp_push_order_peaks(o, &host, &device);
    fprintf(out, "%s: rank %d: %s names; in this order %s of staging are enough in host memory, %s on a device\n",
            lp_cli_clean(job->cli->argument[0]), rank, lp_format_count(names, lp_push_order_count(o)),
            lp_format_bytes(host_text, host), lp_format_bytes(device_text, device));
    const char *group = NULL;
    for (int64_t i = 0; i < lp_push_order_count(o); i++) {
        const lp_push_step *step = lp_push_order_at(o, i);
        if (group == NULL || strcmp(group, step->group) != 0)
            fprintf(out, "  %s\n", step->group[0] == '\0' ? "read by checks only" : lp_cli_clean(step->group));
        group = step->group;
        fprintf(out, "    %-58s %11s %11s\n", lp_cli_clean(step->name), lp_format_bytes(host_text, step->host_staging),
                lp_format_bytes(device_text, step->device_staging));
    }
}

static json_t *rank_json(int32_t rank, const lp_push_order *o)
{
    int64_t host, device;
    json_t *order = json_array();
    lp_push_order_peaks(o, &host, &device);
    for (int64_t i = 0; i < lp_push_order_count(o); i++) {
        const lp_push_step *step = lp_push_order_at(o, i);
        json_array_append_new(order, json_pack("{s:s, s:s, s:I, s:I}", "name", step->name, "group", step->group,
                                               "host_staging", (json_int_t)step->host_staging, "device_staging",
                                               (json_int_t)step->device_staging));
    }
    return json_pack("{s:i, s:I, s:I, s:o}", "rank", rank, "host_peak", (json_int_t)host, "device_peak",
                     (json_int_t)device, "order", order);
}

int lp_cli_explain_order(const lp_cli_job *job, bool is_json)
{
    lp_error err;
    json_t *ranks = is_json ? json_array() : NULL;
    for (int32_t i = 0; i < job->rank_count; i++) {
        lp_push_order *o;
        if (lp_push_order_make(&o, job->trace, lp_trace_scope_find(job->trace, job->rank[i]), &err) != LP_OK) {
            json_decref(ranks);
            return lp_cli_fail(job->cli, &err);
        }
        if (is_json)
            json_array_append_new(ranks, rank_json(job->rank[i], o));
        else
            print_text(job, job->rank[i], o);
        lp_push_order_free(o);
    }
    if (!is_json)
        return 0;
    json_t *object = json_pack("{s:i, s:s, s:s, s:o}", "format", 1, "command", "explain --push-order", "trace",
                               lp_cli_clean(job->cli->argument[0]), "ranks", ranks);
    return lp_cli_json(job->cli, object) ? 0 : LP_EXIT_ENVIRONMENT;
}
