/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of one safetensors file: read, checked against the file's size, never the payload. Private to traces/.
 *
 * Verdicts are those of the reference reader, with two exceptions: a name that appears twice (however it is escaped)
 * and a tensor entry written as an array are refused here.
 */
#ifndef LOADPLAN_SAFETENSORS_H
#define LOADPLAN_SAFETENSORS_H

#include "traces/base.h"

enum { LP_SAFETENSORS_PREFIX_BYTES = 8, LP_SAFETENSORS_HEADER_MAX = 100000000 };

typedef struct lp_safetensors_entry {
    const char *name; /* may hold NUL: name_bytes counts */
    size_t name_bytes;
    const uint64_t *shape;
    lp_dtype dtype;
    int32_t ndim;
    uint64_t begin, end; /* in the data behind the header */
    int64_t header_off;  /* where its name begins in the file */
} lp_safetensors_entry;

typedef struct lp_safetensors lp_safetensors;

typedef struct lp_bytes {
    const char *data;
    size_t bytes;
} lp_bytes;

struct lp_safetensors {
    lp_strings names, metadata_keys; /* keys in order of first appearance */
    lp_bytes *metadata_value;        /* one for each key; the last one wins */
    int64_t metadata_capacity;
    lp_arena arena;
    lp_safetensors_entry *entry; /* in order of the data */
    int64_t count, capacity;
    int64_t data_off; /* of the data in the file */
};

/* Parses the `bytes` bytes of a header that stands at offset 8 of a file of `file_bytes` bytes. On success the caller
 * frees *out; strings live in it. `path` is for errors. */
lp_status lp_safetensors_parse(lp_safetensors *out, const char *header, int64_t bytes, int64_t file_bytes,
                               const char *path, const lp_alloc *alloc, lp_error *err);

/* The same from an open file. */
lp_status lp_safetensors_read(lp_safetensors *out, const lp_platform *platform, int fd, const char *path,
                              int64_t file_bytes, lp_error *err);

void lp_safetensors_free(lp_safetensors *s);

#endif
