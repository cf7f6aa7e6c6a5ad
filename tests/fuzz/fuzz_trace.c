/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a trace file: what opens and expands survives its text form with the same digests. */
#include "tests/fuzz/demand.h"
#include "traces/trace_file.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int append(void *context, const char *text, size_t bytes)
{
    lp_text_add(context, text, bytes);
    return 0;
}

/* Bad data is never called anything else. */
static void demand_data(lp_status status, const lp_error *err)
{
    demand_error(status, err);
    demand(status == LP_E_FORMAT || status == LP_E_CORRUPT || status == LP_E_VERSION || status == LP_E_HOSTILE ||
           status == LP_E_LIMIT);
}

static void text_and_back(const lp_trace *t)
{
    lp_trace *back = NULL;
    lp_error err = {0};
    uint8_t a[32], b[32];
    lp_text text;
    lp_text_init(&text, NULL);
    demand(lp_trace_dump(t, append, &text, &err) == LP_OK);
    demand(lp_trace_undump(&back, text.data, (size_t)text.bytes, NULL, &err) == LP_OK);
    demand(lp_trace_set_digest(t, a, &err) == LP_OK);
    demand(lp_trace_set_digest(back, b, &err) == LP_OK);
    demand(memcmp(a, b, sizeof a) == 0);
    lp_trace_close(back);
    lp_text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    lp_trace *t = NULL;
    lp_error err = {0};
    uint8_t *image = malloc(bytes > 0 ? bytes : 1);
    demand(image != NULL);
    memcpy(image, data, bytes);
    lp_status status = lp_trace_open_image(&t, image, (int64_t)bytes, "fuzz.lpt", NULL, &err);
    free(image);
    if (status != LP_OK) {
        demand(t == NULL);
        demand_data(status, &err);
        return 0;
    }
    for (int32_t s = 0; s < lp_trace_scope_count(t) && status == LP_OK; s++) {
        const lp_rows *rows;
        status = lp_trace_rows(t, s, &rows, &err);
    }
    if (status == LP_OK)
        text_and_back(t);
    else
        demand_data(status, &err);
    lp_trace_close(t);
    return 0;
}
