/* SPDX-License-Identifier: Apache-2.0 */
/* What `info` says about many tensors at once: by dtype and by family. Part of the program. */
#ifndef LOADPLAN_INFO_GROUPS_H
#define LOADPLAN_INFO_GROUPS_H

#include "traces/base.h"
#include "traces/cli.h"

/* Tensors of one family that also agree in dtype and shape. */
typedef struct lp_info_group {
    const char *family;
    const lp_checkpoint_tensor *first;
    int64_t tensors, bytes;
} lp_info_group;

typedef struct lp_info_groups {
    lp_strings keys;
    lp_info_group *item; /* largest first */
    int64_t count, capacity;
} lp_info_groups;

bool lp_info_groups_make(lp_info_groups *g, const lp_checkpoint *c); /* false when out of memory */
void lp_info_groups_free(lp_info_groups *g);

typedef struct lp_info_dtype {
    lp_dtype dtype;
    int64_t tensors, bytes;
} lp_info_dtype;

/* The dtypes that occur, largest first; returns how many. */
int lp_info_dtypes(lp_info_dtype out[LP_DTYPE_COUNT], const lp_checkpoint *c);

/* "[2048, 3584]"; a shape of very many dimensions is shortened. */
const char *lp_info_shape(char buffer[192], const lp_checkpoint_tensor *t);
json_t *lp_info_shape_json(const lp_checkpoint_tensor *t);

/* A name of the catalogue: NUL, kept there as C0 80, is NUL again. */
const char *lp_info_name(char *buffer, size_t buffer_bytes, const char *name); /* sanitised, for people */
json_t *lp_info_name_json(const char *name);

/* "1 tensor", "2 files" with thousands separated; a ring of buffers, for use inside one printf. */
const char *lp_info_count(int64_t count, const char *singular);

/* A trace instead of a checkpoint: info_trace_cli.c. Returns an exit code. */
int lp_info_trace(lp_cli *cli, const char *path);

/* The list of every tensor, for --tensors. */
void lp_info_print_tensors(lp_cli *cli, const lp_checkpoint *c);
json_t *lp_info_tensor_json(const void *checkpoint, int64_t i); /* an element of that list (lp_cli_list) */

#endif
