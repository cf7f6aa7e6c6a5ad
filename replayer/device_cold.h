/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold starts into the memory of a device: threads read the ranges that a plan needs into pinned buffers, lanes carry
 * them into slots of device memory, and the plan's program moves them to the destinations. Private to the replayer.
 *
 * What a device can do is a table, so that tests run the whole pipeline in host memory and with faults.
 */
#ifndef LOADPLAN_DEVICE_COLD_H
#define LOADPLAN_DEVICE_COLD_H

#include "replayer/plan.h"
#include "replayer/read_queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A lane is a queue of work on the device, a mark a point in one. Calls return 0 or a code for error_text, unless they
 * take an lp_error. */
typedef struct lp_cold_device {
    void *context;
    const char *(*error_text)(void *context, int code);
    int (*enter)(void *context); /* by every thread, before its first call */
    int (*allocate)(void *context, int64_t bytes, void **out);
    void (*release)(void *context, void *memory); /* NULL is allowed, here and below */
    int (*pin)(void *context, void *host, int64_t bytes);
    void (*unpin)(void *context, void *host);
    int (*fetch)(void *context, void *host, const void *device, int64_t bytes); /* returns when it is done */
    int (*store)(void *context, void *device, const void *host, int64_t bytes); /* the same */

    int (*lane_open)(void *context, void **lane);
    void (*lane_close)(void *context, void *lane);
    int (*lane_wait)(void *context, void *lane); /* until it is empty */
    int (*mark_open)(void *context, void **mark);
    void (*mark_close)(void *context, void *mark);
    int (*mark_set)(void *context, void *mark, void *lane);
    int (*mark_wait)(void *context, void *mark);                 /* the caller waits */
    int (*mark_query)(void *context, void *mark, bool *is_past); /* nobody does */
    int (*lane_follow)(void *context, void *lane, void *mark);   /* the lane waits */
    int (*clear)(void *context, void *lane, void *device, int64_t bytes);
    /* `rows` rows of `bytes` from pinned memory to the device. */
    int (*copy)(void *context, void *lane, void *device, int64_t device_pitch, const void *host, int64_t host_pitch,
                int64_t bytes, int64_t rows);

    lp_status (*program_open)(void *context, void **program, const lp_plan *plan, lp_error *err);
    void (*program_close)(void *context, void *program);
    int64_t (*program_bytes)(void *context, const void *program);
    lp_status (*program_fill)(void *context, void *program, void *lane, lp_error *err); /* the fills of begin */
    lp_status (*program_push)(void *context, void *program, const lp_handle *handle, const void *const *data,
                              int64_t count, void *lane, lp_error *err);
    /* Of every destination that has a loader; others are left as they are. */
    lp_status (*digests)(void *context, const lp_plan *plan, uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], lp_error *err);
} lp_cold_device;

/* "cuda:0". LP_E_DEVICE: there is none. Only in builds with CUDA. */
lp_status lp_cuda_device_open(lp_cold_device *out, const char *name, lp_error *err);
void lp_cuda_device_close(lp_cold_device *device);

/* LP_E_DEVICE with the device's words when code is not 0. */
lp_status lp_cold_check(const lp_cold_device *device, int code, const char *verb, lp_error *err);

/* ---- destinations: one block of device memory, not cleared ---- */

typedef struct lp_cold_memory {
    const lp_cold_device *device;
    const lp_alloc *alloc;
    void *block;
    int64_t bytes; /* of the block */
    lp_destination_memory *list;
    int64_t count;
} lp_cold_memory;

lp_status lp_cold_memory_take(lp_cold_memory *out, const lp_cold_device *device, const lp_trace *trace,
                              const lp_scope *scope, const lp_platform *platform, lp_error *err);
void lp_cold_memory_give_back(lp_cold_memory *memory);

/* Copies all storages of a plan on the device into those of a plan of the same rows in host memory. */
lp_status lp_cold_fetch(const lp_cold_device *device, const lp_plan *from, lp_plan *to, lp_error *err);

/* ---- the ring: pinned memory, lanes and slots, kept from load to load ---- */

enum {
    LP_COLD_CHUNK = 16 << 20,      /* what is copied at a time; a quarter of the pinned memory where that is less; */
    LP_COLD_CHUNK_SMALL = 8 << 20, /* the same of small loads, and where files are read directly: few reads fill one */
    LP_COLD_PINNED = 128 << 20,    /* by default */
    LP_COLD_STAGING = 1 << 30,     /* of device memory, by default */
    LP_COLD_UNDER_WAY = 32,        /* direct reads of 4 MiB, of all readers together, where there is a queue */
    LP_COLD_READERS_MOST = 64
};

typedef struct lp_cold_ring lp_cold_ring;

/* Takes nothing but itself; loads take what they need and what is not there yet. */
lp_status lp_cold_ring_new(lp_cold_ring **out, const lp_cold_device *device, const lp_platform *platform,
                           lp_error *err);
void lp_cold_ring_free(lp_cold_ring *ring); /* NULL is allowed */

typedef struct lp_cold_options lp_cold_options;

/* Begins to take pinned memory and lanes for large loads of such options (NULL: the defaults), by a thread of its own:
 * they are there when trace and checkpoint have been opened and the plan is bound. What fails is taken by the load,
 * which has the error. */
void lp_cold_ring_start(lp_cold_ring *ring, const lp_cold_options *options);

/* So many bytes of the ring's pinned memory, which it takes where it has less, for the caller's use while no load goes
 * on. NULL: they are not to be had. */
uint8_t *lp_cold_ring_memory(lp_cold_ring *ring, int64_t bytes);

/* Bytes a second from the pinned memory of an earlier load to its slots, in a few milliseconds; 0: it has none. */
double lp_cold_ring_link_rate(lp_cold_ring *ring);

/* ---- the load ---- */

typedef enum lp_cold_reading {
    LP_COLD_READ_AUTO,   /* directly where the page cache holds less than half of a file */
    LP_COLD_READ_CACHED, /* all through the page cache */
    LP_COLD_READ_DIRECT  /* all directly, where the file system lets us */
} lp_cold_reading;

struct lp_cold_options {
    lp_cold_ring *ring; /* NULL: one for this load */
    int64_t pinned;     /* most bytes of pinned host memory; 0: 128 MiB; at least 256 KiB are taken */
    int64_t staging; /* bytes of device memory in sixteen slots; 0: 1 GiB. More where a tensor is larger than a slot. */
    int32_t readers; /* 0: one for each processor, up to 16 */
    lp_cold_reading reading;
    const lp_read_queue *queue; /* of direct reads; NULL: that of the system where files are the system's too */
    bool allow_fallbacks;
    int (*progress)(void *context, int64_t done, int64_t total); /* NULL, or called by the caller's thread */
    void *progress_context;
};

typedef struct lp_cold_report {
    int64_t bytes_needed, bytes_read, reads; /* read: with the rest of the blocks of direct reads */
    int64_t files, files_direct;
    int64_t bytes_written, bytes_straight; /* straight: from pinned memory to their place */
    int64_t names, batches, derives_run, derives_skipped, fallbacks;
    int64_t pinned_bytes, device_bytes; /* device: slots and program */
    int32_t readers, queues;            /* queues: of the readers that had several direct reads under way */
    int64_t nanoseconds;
    int64_t setup_nanoseconds;  /* before the first read, part of nanoseconds; and of that */
    int64_t plan_nanoseconds;   /* choosing how files are read, and cutting the first batches */
    int64_t derive_nanoseconds; /* behind the last read, part of nanoseconds too */
} lp_cold_report;

/* What a session would report. */
void lp_cold_report_load(const lp_cold_report *r, lp_report *out);

/* Zeroes the storages of `plan`, which is bound to memory of the device, and loads everything. All memory is taken
 * before the first byte is read. The plan's tables (files, memory, log) are called by several threads. Errors as of
 * lp_push_checkpoint and lp_finish, and LP_E_DEVICE; after one the destinations hold no defined bytes. *report is
 * filled in every case. */
lp_status lp_cold_load(const lp_cold_device *device, lp_plan *plan, const lp_checkpoint *checkpoint,
                       const lp_cold_options *options, lp_cold_report *report, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
