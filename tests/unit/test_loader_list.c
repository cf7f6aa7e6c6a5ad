/* SPDX-License-Identifier: Apache-2.0 */
/* The list of built-in loaders: what is in it can be found, and is told of in docs/loaders.md. */
#include "recorder/recorder.h"
#include "traces/base.h"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

static void loaders_are_found_by_name_and_number(void **state)
{
    (void)state;
    assert_true(lp_loader_count() >= 9);
    for (int i = 0; i < lp_loader_count(); i++) {
        const lp_loader *loader = lp_loader_at(i);
        assert_ptr_equal(lp_loader_find(loader->name), loader);
        assert_true(loader->version[0] != '\0' && strlen(loader->summary) > 5);
        if (i > 0)
            assert_true(strcmp(lp_loader_at(i - 1)->name, loader->name) < 0);
    }
    assert_null(lp_loader_find("auto")); /* a question, not a loader */
    assert_null(lp_loader_at(lp_loader_count()));
    assert_null(lp_loader_at(-1));
}

/* Each has a place in the first column of the first table of docs/loaders.md. */
static void every_loader_is_documented(void **state)
{
    (void)state;
    char *text = NULL;
    int64_t bytes = 0;
    lp_error err;
    if (lp_read_file(NULL, TEST_CASES "/../../docs/loaders.md", 1 << 20, &text, &bytes, &err) != LP_OK)
        fail_msg("%s", err.text);
    char *const table = strstr(text, "\n| loader |");
    assert_non_null(table);
    char *const behind = strstr(table, "\n\n");
    assert_non_null(behind);
    *behind = '\0';
    for (int i = 0; i < lp_loader_count(); i++) {
        char quoted[64];
        bool is_told = false;
        snprintf(quoted, sizeof quoted, "`%s`", lp_loader_at(i)->name);
        for (const char *row = table; row != NULL && !is_told; row = strstr(row + 1, "\n| ")) {
            const char *const name = strstr(row, quoted), *const column = strchr(row + 3, '|');
            is_told = name != NULL && column != NULL && name < column;
        }
        if (!is_told)
            fail_msg("docs/loaders.md has no row for the loader '%s'", lp_loader_at(i)->name);
    }
    lp_release(NULL, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaders_are_found_by_name_and_number),
        cmocka_unit_test(every_loader_is_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
