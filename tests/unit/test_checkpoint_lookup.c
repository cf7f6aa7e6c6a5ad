/* SPDX-License-Identifier: Apache-2.0 */
/* Looking names up: the table is built by the first lookup, by whichever thread that is, and nothing needs it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "traces/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAMES = 5000, THREADS = 8 };

static void name_of(char name[32], int i)
{
    snprintf(name, 32, "layers.%d.weight", i);
}

static lp_checkpoint *make_catalogue(const lp_platform *platform)
{
    lp_checkpoint *c;
    char name[32];
    assert_int_equal(lp_checkpoint_new(&c, platform, NULL), LP_OK);
    for (int i = 0; i < NAMES; i++) {
        const lp_checkpoint_tensor tensor = {.name = name, .dtype = LP_F32, .file = -1, .file_off = -1};
        name_of(name, i);
        assert_int_equal(lp_checkpoint_add(c, &tensor, NULL), LP_OK);
    }
    assert_int_equal(lp_checkpoint_seal(c, NULL), LP_OK);
    return c;
}

/* Every name is found where it stands, and a name between two others is not. Returns what went wrong. */
static int lookups_that_fail(const lp_checkpoint *c)
{
    char name[32];
    int wrong = 0;
    for (int64_t i = 0; i < lp_checkpoint_count(c); i++) {
        wrong += lp_checkpoint_find(c, lp_checkpoint_at(c, i)->name) != i;
        snprintf(name, sizeof name, "%s!", lp_checkpoint_at(c, i)->name);
        wrong += lp_checkpoint_find(c, name) != -1;
    }
    return wrong + (lp_checkpoint_find(c, "") != -1) + (lp_checkpoint_find(c, "zzz") != -1);
}

static void *look_up(void *context)
{
    return (void *)(intptr_t)lookups_that_fail(context);
}

static void threads_may_be_the_first_together(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        lp_checkpoint *c = make_catalogue(NULL);
        pthread_t thread[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, look_up, c), 0);
        for (int i = 0; i < THREADS; i++) {
            void *wrong;
            assert_int_equal(pthread_join(thread[i], &wrong), 0);
            assert_null(wrong);
        }
        lp_checkpoint_close(c);
    }
}

static void *resize_while_there_is_some(void *context, void *old, size_t bytes)
{
    const bool *is_empty = context;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return *is_empty ? NULL : realloc(old, bytes);
}

static void names_are_found_without_memory(void **state)
{
    (void)state;
    bool is_empty = false;
    const lp_alloc alloc = {.size = sizeof alloc, .context = &is_empty, .resize = resize_while_there_is_some};
    const lp_platform platform = {.alloc = &alloc};
    lp_checkpoint *c = make_catalogue(&platform);
    is_empty = true;
    assert_int_equal(lookups_that_fail(c), 0);
    is_empty = false;
    assert_int_equal(lookups_that_fail(c), 0);
    lp_checkpoint_close(c);
}

static void an_open_catalogue_finds_nothing(void **state)
{
    (void)state;
    lp_checkpoint *c;
    const lp_checkpoint_tensor tensor = {.name = "a", .dtype = LP_F32, .file = -1, .file_off = -1};
    assert_int_equal(lp_checkpoint_new(&c, NULL, NULL), LP_OK);
    assert_int_equal(lp_checkpoint_add(c, &tensor, NULL), LP_OK);
    assert_int_equal(lp_checkpoint_find(c, "a"), -1);
    assert_int_equal(lp_checkpoint_seal(c, NULL), LP_OK);
    assert_int_equal(lp_checkpoint_find(c, "a"), 0);
    lp_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_may_be_the_first_together),
        cmocka_unit_test(names_are_found_without_memory),
        cmocka_unit_test(an_open_catalogue_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
