/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a suppression file: what is accepted can be written as text that says the same. */
#include "tests/fuzz/demand.h"
#include "traces/glob.h"
#include "traces/suppress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    lp_suppressions s, again;
    lp_error err = {0};
    lp_text text;
    lp_suppressions_init(&s, NULL);
    lp_suppressions_init(&again, NULL);
    lp_text_init(&text, NULL);
    const lp_status status = lp_suppressions_parse(&s, (const char *)data, (int64_t)bytes, "fuzz.txt", &err);
    if (status != LP_OK) {
        demand_error(status, &err);
        demand(status == LP_E_FORMAT || status == LP_E_LIMIT);
        goto free_all;
    }
    for (int64_t i = 0; i < s.count; i++)
        lp_suppression_text(&text, s.item[i].rule->id, s.item[i].glob, s.item[i].reason);
    demand(!text.failed);
    demand(lp_suppressions_parse(&again, text.data != NULL ? text.data : "", text.bytes, "again.txt", &err) == LP_OK);
    demand(again.count == s.count);
    for (int64_t i = 0; i < s.count; i++) {
        demand(again.item[i].rule == s.item[i].rule);
        demand(strcmp(again.item[i].glob, s.item[i].glob) == 0);
        demand(strcmp(again.item[i].reason, s.item[i].reason) == 0);
        demand(again.item[i].line == i + 1);
        /* A glob against another line's text: bounded work, and '*' takes everything. */
        lp_glob_match(s.item[i].glob, s.item[s.count - 1 - i].reason);
        demand(lp_glob_match("*", s.item[i].reason));
    }

free_all:
    lp_text_free(&text);
    lp_suppressions_free(&again);
    lp_suppressions_free(&s);
    return 0;
}
