/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a settings file: what is accepted holds each key once, and reads the same again. */
#include "tests/fuzz/demand.h"
#include "traces/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    lp_settings *s = NULL, *again = NULL;
    lp_error err = {0};
    lp_text text;
    const lp_status status = lp_settings_parse(&s, (const char *)data, (int64_t)bytes, "fuzz.conf", NULL, &err);
    if (status != LP_OK) {
        demand(s == NULL);
        demand_error(status, &err);
        demand(status == LP_E_FORMAT || status == LP_E_LIMIT);
        return 0;
    }
    lp_text_init(&text, NULL);
    for (int32_t i = 0; i < s->count; i++) {
        demand(lp_settings_find(s, s->item[i].key) == s->item[i].value);
        lp_text_format(&text, "%s = %s\n", s->item[i].key, s->item[i].value);
    }
    demand(!text.failed);
    demand(lp_settings_parse(&again, text.data != NULL ? text.data : "", text.bytes, "again.conf", NULL, &err) ==
           LP_OK);
    demand(again->count == s->count);
    for (int32_t i = 0; i < s->count; i++)
        demand(strcmp(lp_settings_find(again, s->item[i].key), s->item[i].value) == 0);
    lp_text_free(&text);
    lp_settings_free(again);
    lp_settings_free(s);
    return 0;
}
