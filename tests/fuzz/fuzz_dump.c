/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the text form of a trace: what is accepted is written and read again without a change. */
#include "tests/fuzz/demand.h"
#include "traces/trace_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int append(void *context, const char *text, size_t bytes)
{
    lp_text_add(context, text, bytes);
    return 0;
}

static lp_text dump(const lp_trace *t)
{
    lp_error err = {0};
    lp_text text;
    lp_text_init(&text, NULL);
    demand(lp_trace_dump(t, append, &text, &err) == LP_OK);
    demand(!text.failed);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    lp_trace *t = NULL, *again = NULL, *opened = NULL;
    lp_error err = {0};
    uint8_t *image = NULL;
    int64_t image_bytes = 0;
    const lp_status status = lp_trace_undump(&t, (const char *)data, bytes, NULL, &err);
    if (status != LP_OK) {
        demand(t == NULL);
        demand_error(status, &err);
        demand(status == LP_E_FORMAT || status == LP_E_CORRUPT || status == LP_E_VERSION || status == LP_E_LIMIT ||
               status == LP_E_HOSTILE || status == LP_E_UNSUPPORTED);
        return 0;
    }
    lp_text text = dump(t);
    demand(lp_trace_undump(&again, text.data, (size_t)text.bytes, NULL, &err) == LP_OK);
    lp_text text_again = dump(again);
    demand(text.bytes == text_again.bytes && memcmp(text.data, text_again.data, (size_t)text.bytes) == 0);
    /* And through a file. */
    demand(lp_trace_image(t, &image, &image_bytes, &err) == LP_OK);
    demand(lp_trace_open_image(&opened, image, image_bytes, "fuzz.lpt", NULL, &err) == LP_OK);
    lp_text text_opened = dump(opened);
    demand(text.bytes == text_opened.bytes && memcmp(text.data, text_opened.data, (size_t)text.bytes) == 0);
    lp_text_free(&text);
    lp_text_free(&text_again);
    lp_text_free(&text_opened);
    lp_trace_close(t);
    lp_trace_close(again);
    lp_trace_close(opened);
    sqlite3_free(image);
    return 0;
}
