/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoint catalogue from the inside: what the openers (file, index, folder, trace) fill and checkpoint.c seals.
 * Private to traces/.
 */
#ifndef LOADPLAN_CHECKPOINT_CATALOGUE_H
#define LOADPLAN_CHECKPOINT_CATALOGUE_H

#include "traces/base.h"

/* One entry of the name table: index + 1 (0: free) and some bits of the hash, so that a probe rarely reads a name. */
typedef struct lp_name_slot {
    uint32_t index, tag;
} lp_name_slot;

typedef struct lp_name_table {
    int64_t slot_count; /* a power of two */
    lp_name_slot slot[];
} lp_name_table;

/* Where the table stands once it was built. Apart from the catalogue, which lookups only read. */
typedef struct lp_name_lookup {
    _Atomic(lp_name_table *) table;
} lp_name_lookup;

typedef struct lp_metadata_pair {
    const char *key, *value;
} lp_metadata_pair;

typedef struct lp_safetensors lp_safetensors;

struct lp_checkpoint {
    lp_platform platform;
    lp_arena arena; /* names, shapes, paths */
    lp_checkpoint_tensor *tensor;
    int64_t count, capacity;
    lp_checkpoint_file *file;
    int64_t file_count, file_capacity;
    lp_metadata_pair *metadata; /* of the safetensors files, in the order of files and keys */
    int64_t metadata_count, metadata_capacity;
    lp_name_lookup *lookup;
    const char *folder;
    const char *config;        /* of a header bundle, else NULL */
    const char *unusable_name; /* the first name that holds a NUL, see lp_checkpoint_unusable_name */
    int64_t bytes;
    bool is_sealed;
};

/* Seals a catalogue whose names are known to rise, such as a trace's. */
lp_status lp_checkpoint_seal_sorted(lp_checkpoint *c, lp_error *err);

/* Payload bytes of a tensor. Extents are multiplied in order, as the reference reader does, so that a product that
 * overflows before a zero is an error. LP_E_CORRUPT names `name`. */
lp_status lp_tensor_bytes(int64_t *bytes, const char *name, lp_dtype dtype, int64_t ndim, const uint64_t *shape,
                          lp_error *err);

/* Reads the header of the open safetensors file `fd` and appends the file and its tensors. */
lp_status lp_checkpoint_add_safetensors(lp_checkpoint *c, const char *path, int fd, const lp_file_stat *st,
                                        lp_error *err);

/* Appends the tensors and metadata of a header, as those of file number `file`, or of none (-1). */
lp_status lp_checkpoint_add_header(lp_checkpoint *c, const lp_safetensors *s, int32_t file, lp_error *err);

/* Reads the index at `path` and the headers of the shards that it lists. */
lp_status lp_checkpoint_add_index(lp_checkpoint *c, const char *path, lp_error *err);

/* Opens a file or folder and says what it is; the caller closes *fd. Where opening itself fails *fd is -errno. */
lp_status lp_checkpoint_open_file(const lp_checkpoint *c, const char *path, int *fd, lp_file_stat *st, lp_error *err);

/* folder/name in the arena, or name alone in the current folder; NULL when out of memory. */
const char *lp_checkpoint_join(lp_checkpoint *c, const char *folder, const char *name);

/* The checkpoint file in a folder, in the arena: its index, else its only safetensors file. */
lp_status lp_checkpoint_choose_file(lp_checkpoint *c, const char *folder, const char **path, lp_error *err);

/* The SHA-256 in the name of the file that `path` leads to, as the blobs of the Hugging Face cache have it, into
 * digits[65]; false when there is none. */
bool lp_checkpoint_blob_digest(const char *path, char digits[65]);

/* Appends a tensor whose strings and shape already live in c->arena and whose bytes are known. */
lp_status lp_checkpoint_append(lp_checkpoint *c, const lp_checkpoint_tensor *tensor, lp_error *err);

/* Copies `bytes` bytes of valid UTF-8 into the arena as a C string. A NUL inside becomes the bytes C0 80, which no
 * valid UTF-8 holds. keep_name also notes that such a name cannot be recorded. NULL when out of memory. */
const char *lp_checkpoint_keep_text(lp_checkpoint *c, const char *text, size_t bytes);
const char *lp_checkpoint_keep_name(lp_checkpoint *c, const char *name, size_t bytes);

#endif
