/* SPDX-License-Identifier: Apache-2.0 */
/* What moves messages in the library that nccl_one.c makes: rings in device memory, and the kernel that fills and
 * empties them. */
#ifndef LOADPLAN_TEST_NCCL_ONE_COPY_H
#define LOADPLAN_TEST_NCCL_ONE_COPY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A round is one chunk of each block; 4 MiB. The ring stays in the cache, so messages cost memory one read and one
 * write, as they do over a link between two GPUs. */
enum { ONE_BLOCKS = 32, ONE_SLOTS = 4, ONE_CHUNK = 1 << 17, ONE_OPS = 16, ONE_LINE = 32 };

/* From one rank to another, in the memory of the receiver. Rounds are counted from the first message on. */
typedef struct one_ring {
    uint32_t filled[ONE_BLOCKS][ONE_LINE], emptied[ONE_BLOCKS][ONE_LINE]; /* first word of each line */
    uint8_t slot[ONE_BLOCKS][ONE_SLOTS][ONE_CHUNK];
} one_ring;

typedef struct one_op {
    one_ring *ring;
    uint8_t *data;
    uint64_t bytes;
    uint32_t first, rounds; /* number of its first round; how many they are */
    uint32_t is_send;
} one_op;

/* Messages that go on at the same time. */
typedef struct one_group {
    one_op op[ONE_OPS];
    uint32_t count;
    float ns_per_byte;    /* that a message takes at least; 0: as fast as it goes */
    const uint32_t *stop; /* host memory: not 0 ends whatever waits */
    uint64_t *time;       /* host memory: when the first message began and ended, in ns; NULL: not told */
} one_group;

/* Returns a code of cudaError_t. */
int one_move(const one_group *group, void *stream);

#ifdef __cplusplus
}
#endif

#endif
