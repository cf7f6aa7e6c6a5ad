/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of one and two small tensors, and paths that must open as a checkpoint, or say why they do not. */
#ifndef LOADPLAN_CHECKPOINT_OPENING_H
#define LOADPLAN_CHECKPOINT_OPENING_H

#include "tests/unit/checkpoint_files.h"

#define FOUR(name) "{\"" name "\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}"
#define TWO(name1, name2)                                                                                              \
    "{\"" name1 "\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"" name2                                  \
    "\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]}}"

static inline lp_checkpoint *open_good(const char *path)
{
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    if (lp_checkpoint_open(&c, path, &err) != LP_OK)
        fail_msg("%s", err.text);
    return c;
}

static inline void expect_error(const char *path, lp_status expected, const char *text, const char *hint)
{
    lp_checkpoint *c = NULL;
    lp_error err = {0};
    const lp_status status = lp_checkpoint_open(&c, path, &err);
    if (status != expected || strstr(err.text, text) == NULL || strstr(err.hint, hint) == NULL)
        fail_msg("%s: %s '%s' (%s), expected %s '%s' (%s)", path, lp_status_name(status), err.text, err.hint,
                 lp_status_name(expected), text, hint);
    assert_null(c);
    assert_int_equal(lp_checkpoint_open(&c, path, NULL), expected);
}

#endif
