/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How processes share weights over a Unix socket, docs/ipc.md: packets, and the description that travels with them.
 * Private to the replayer.
 *
 * Each message is one packet of a SOCK_SEQPACKET socket, a lp_ipc_header and its body, in the byte order of the host.
 * Nothing of variable length is in a packet: what depends on the number of storages stands in the description, sealed
 * memory whose descriptor comes with the welcome. A peer is never trusted: lengths, types and seals are checked, and
 * the description is copied before it is read.
 */
#ifndef LOADPLAN_IPC_PROTOCOL_H
#define LOADPLAN_IPC_PROTOCOL_H

#include "replayer/plan.h"

enum {
    LP_IPC_MAGIC = 0x4950504c, /* "LPPI" */
    LP_IPC_VERSION = 1,
    LP_IPC_DEVICE_BYTES = 64, /* the name of a device, with its NUL */
    LP_IPC_HANDLE_BYTES = 64, /* of a handle to device memory */
    LP_IPC_ALIGN = 512,       /* of storages in memory of ours */
    LP_IPC_TIMEOUT_MS = 10000
};

typedef enum lp_ipc_type {
    LP_IPC_HELLO = 1,   /* client: what it wants */
    LP_IPC_WELCOME = 2, /* server: what there is, with descriptors when they agree */
    LP_IPC_LEASE = 3,   /* client: wants to write */
    LP_IPC_COMMIT = 4,  /* client: has written */
    LP_IPC_ABANDON = 5, /* client: will not write any more */
    LP_IPC_QUERY = 6,   /* client: how do things stand */
    LP_IPC_STATE = 7    /* server: answer to the four above */
} lp_ipc_type;

typedef struct lp_ipc_header {
    uint32_t magic;
    uint16_t version, type; /* these eight bytes are the same in every version */
    uint32_t bytes;         /* of the body */
    uint32_t reserved;
} lp_ipc_header;

enum { LP_IPC_ANY_CONTENT = 1, LP_IPC_WRITE = 2 };

/* The strict key, and what is wanted. */
typedef struct lp_ipc_hello {
    uint8_t plan[32], content[32];
    char device[LP_IPC_DEVICE_BYTES];
    int64_t experts_epoch;
    uint32_t flags, reserved;
} lp_ipc_hello;

typedef enum lp_ipc_answer {
    LP_IPC_YES = 0,
    LP_IPC_OTHER_PLAN = 1,
    LP_IPC_OTHER_CONTENT = 2,
    LP_IPC_OTHER_DEVICE = 3,
    LP_IPC_OTHER_EXPERTS = 4,
    LP_IPC_BUSY = 5, /* another process writes */
    LP_IPC_TORN = 6, /* a writer died or gave up in the middle */
    LP_IPC_FULL = 7, /* as many clients as the server takes */
    LP_IPC_OTHER_VERSION = 8,
    LP_IPC_OTHER_USER = 9
} lp_ipc_answer;

typedef struct lp_ipc_welcome {
    uint32_t answer, writer; /* writer: process that writes, or 0 */
    int64_t experts_epoch;
    char device[LP_IPC_DEVICE_BYTES];
} lp_ipc_welcome;

typedef struct lp_ipc_commit {
    uint8_t content[32]; /* zeros: not known */
    int64_t experts_epoch;
} lp_ipc_commit;

typedef struct lp_ipc_abandon {
    uint32_t is_torn, reserved;
} lp_ipc_abandon;

typedef struct lp_ipc_state {
    uint32_t answer, writer;
    uint64_t word; /* as in the description */
    uint8_t content[32];
    int64_t experts_epoch;
} lp_ipc_state;

typedef struct lp_ipc_packet {
    lp_ipc_header header;
    union {
        lp_ipc_hello hello;
        lp_ipc_welcome welcome;
        lp_ipc_commit commit;
        lp_ipc_abandon abandon;
        lp_ipc_state state;
    } body;
} lp_ipc_packet;

/* ---- the description ---- */

/* How the bytes stand, in one word that readers load without asking: epoch << 2, torn, being written. */
enum { LP_IPC_WORD_WRITING = 1, LP_IPC_WORD_TORN = 2, LP_IPC_WORD_EPOCH = 2 /* shift */ };

enum { LP_IPC_HOST = 1, LP_IPC_DEVICE = 2 };

/* At the beginning of the description; `block_count` blocks and `storage_count` storages follow. */
typedef struct lp_ipc_head {
    uint32_t magic, version, kind, block_count;
    uint64_t storage_count;
    uint64_t word; /* changed by the server, atomically */
    uint8_t reserved[32];
} lp_ipc_head;

/* One allocation: of a device, by handle; or the one of host memory, whose descriptor comes beside. */
typedef struct lp_ipc_block {
    uint8_t handle[LP_IPC_HANDLE_BYTES];
    int64_t bytes;
} lp_ipc_block;

/* In the order in which the rows of the scope name storages first. */
typedef struct lp_ipc_storage {
    uint32_t block, reserved;
    int64_t offset, bytes;
} lp_ipc_storage;

int64_t lp_ipc_description_bytes(uint32_t blocks, uint32_t storages);

/* ---- storages of a scope ---- */

typedef struct lp_ipc_places {
    const lp_alloc *alloc;
    const lp_rows *rows;
    uint32_t count; /* storages */
    uint32_t *of;   /* by destination */
    int64_t *bytes; /* by storage */
    uint8_t **base; /* by storage; filled by the user */
    lp_destination_memory *list;
} lp_ipc_places;

lp_status lp_ipc_places_make(lp_ipc_places *p, const lp_rows *rows, const lp_alloc *alloc, lp_error *err);
void lp_ipc_places_list(lp_ipc_places *p); /* fills `list` from `base` */
void lp_ipc_places_free(lp_ipc_places *p);

/* ---- memory that can be served ---- */

struct lp_ipc_device;

struct lp_shared {
    const lp_alloc *alloc;
    const struct lp_ipc_device *device; /* NULL: host */
    struct lp_ipc_device *own_device;   /* to be closed, or NULL */
    char name[LP_IPC_DEVICE_BYTES];
    lp_ipc_places places;
    int fd; /* of the host memory, or -1 */
    uint8_t *map;
    int64_t map_bytes;
    void *device_block; /* taken here, or NULL */
    lp_ipc_block *block;
    uint32_t block_count;
    lp_ipc_storage *storage;
};

/* Sealed memory of this size, mapped; *fd is the caller's. */
lp_status lp_ipc_memory_new(int *fd, uint8_t **map, const char *name, int64_t bytes, lp_error *err);

/* ---- sockets ---- */

/* Listens at `path`, which then is a socket of mode 0600 (0666 for any user). The socket of a server that died is
 * replaced; LP_E_EXISTS: a server answers there, or it is another kind of file. *device and *inode name the file. */
lp_status lp_ipc_listen(int *fd, const char *path, bool any_user, uint64_t *device, uint64_t *inode, lp_error *err);
void lp_ipc_unlink(const char *path, uint64_t device, uint64_t inode); /* if it is still that file */

/* LP_E_PEER: nobody answers. Calls on *fd then wait `timeout_ms` at most. */
lp_status lp_ipc_connect(int *fd, const char *path, int32_t timeout_ms, lp_error *err);

/* The user at the other end may use the weights of this process. */
bool lp_ipc_is_own_user(int fd, bool any_user, int32_t *pid);

/* One packet; false with errno. Never blocks longer than the socket's timeout, never raises SIGPIPE. */
bool lp_ipc_send(int fd, lp_ipc_type type, const void *body, uint32_t bytes, const int *fds, int fd_count);

enum { LP_IPC_FDS_MAX = 2 };

/* The next packet: its body's bytes, or -1 with errno (0: the peer is gone, EPROTO: not a packet of this protocol).
 * Descriptors that come with it are put into fds (-1: none) and are the caller's, also on failure. A header of another
 * version counts as a packet of no body. */
int64_t lp_ipc_receive(int fd, lp_ipc_packet *packet, int fds[LP_IPC_FDS_MAX]);

#endif
