/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files as text, read from memory and from a file. */
#ifndef LOADPLAN_SAFETENSORS_TESTING_H
#define LOADPLAN_SAFETENSORS_TESTING_H

#include "tests/unit/checkpoint_files.h"
#include "traces/safetensors.h"

#include <fcntl.h>

#define A     "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
#define ONE   "{" A "}"
#define F32_8 "\"shape\":[2],\"data_offsets\":[0,8]"

/* An entry named a (or any) with these parts as JSON. */
#define ENTRY(name, dtype, shape, offsets)                                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define TENSOR(dtype, shape, offsets) "{" ENTRY("a", dtype, shape, offsets) "}"

static inline lp_status parse(lp_safetensors *s, const char *header, size_t header_bytes, int64_t data_bytes,
                              lp_error *err)
{
    /* A copy of the exact size, so that a sanitiser sees a read past the end. */
    char *copy = malloc(header_bytes > 0 ? header_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, header, header_bytes);
    const lp_status status = lp_safetensors_parse(s, copy, (int64_t)header_bytes,
                                                  8 + (int64_t)header_bytes + data_bytes, "x.safetensors", NULL, err);
    free(copy);
    return status;
}

static inline lp_status read_path(lp_safetensors *s, const char *path, const lp_platform *platform, lp_error *err)
{
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    const lp_status status = lp_safetensors_read(s, platform, fd, path, st.st_size, err);
    close(fd);
    return status;
}

#endif
