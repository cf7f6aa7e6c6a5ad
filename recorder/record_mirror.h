/* SPDX-License-Identifier: Apache-2.0 */
/* A mirror from the inside: what each storage of the other framework holds. */
#ifndef LOADPLAN_RECORD_MIRROR_H
#define LOADPLAN_RECORD_MIRROR_H

#include "recorder/record_private.h"

typedef enum mirror_kind {
    MIRROR_SOURCE = 1,      /* the checkpoint tensor `base` */
    MIRROR_DESTINATION = 2, /* memory of the destinations in the list that begins with `base` */
    MIRROR_TEMPORARY = 3,   /* the temporary `base` */
    MIRROR_VALUE = 4,       /* the expression node `base`, row-major */
    MIRROR_CAST = 5         /* the cast `base` of another tensor, row-major, not done yet */
} mirror_kind;

typedef struct mirror_storage {
    int64_t bytes;
    int64_t writes; /* so far; tells whether a cast that is not done yet still sees what it saw */
    uint32_t base;
    uint8_t kind;
    bool is_condition; /* a value of ones and zeros that the framework calls BOOL */
} mirror_storage;

typedef struct mirror_cast {
    lp_tensor tensor; /* with cast_to */
    int64_t storage, writes;
} mirror_cast;

struct lp_mirror {
    lp_recorder *recorder;
    const lp_alloc *alloc;
    mirror_storage *storage;
    int64_t storages, storage_capacity;
    mirror_cast *cast;
    int64_t casts, cast_capacity;
    uint32_t *next; /* by destination: the next one in the same storage, or LP_NONE */
    int64_t destinations, next_capacity;
};

/* The recorder's tensor that g stands for; invalid, with a misuse kept, when there is none. */
lp_tensor mirror_tensor(const char *file, int line, lp_mirror *m, const lp_strided *g);

/* Ends a call. Misuse is not sticky here: what a framework's loader does to one name must not stop the others, so the
 * names that the `count` tensors read are refused instead, and `dst` (invalid: unknown) holds their place. LP_E_REFUSED
 * after that, LP_E_UNSUPPORTED when they read no name; LP_E_MEMORY is passed on. */
lp_status mirror_settle(const char *file, int line, lp_mirror *m, int count, const lp_tensor *tensor, lp_tensor dst,
                        const char *operation, int64_t refusals_before, lp_error *err);

/* Whether any checkpoint name is in the tensors, which could then be refused. */
bool mirror_reads_names(lp_recorder *r, int count, const lp_tensor *tensor);

/* Whether g is all of its storage, row-major. */
bool mirror_is_whole(const lp_mirror *m, const lp_strided *g);

/* Makes the storage a fresh temporary with nothing in it. */
bool mirror_make_temporary(lp_mirror *m, int64_t storage);

#endif
