/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of weights from the inside: one thread, one epoll set, a fixed number of clients. It never waits for a
 * client: what cannot be sent at once, or is not understood, ends that client's connection. Private to the replayer.
 */
#ifndef LOADPLAN_IPC_SERVER_H
#define LOADPLAN_IPC_SERVER_H

#include "replayer/ipc_protocol.h"

enum {
    LP_SERVER_LISTENER = 0, /* its number in the epoll set; a client's is its index + 1 */
    LP_SERVER_NOBODY = 0,
    LP_SERVER_OWN = -1
};

typedef struct lp_server_client {
    int fd; /* -1: a free place */
    int32_t pid;
    bool is_attached;
    int64_t deadline_ns; /* for its hello */
} lp_server_client;

struct lp_server {
    lp_platform platform;
    const lp_shared *shared;
    char *path;
    uint64_t file_device, file_inode;
    int listener, epoll, description;
    uint8_t *map; /* of the description */
    int64_t map_bytes;
    lp_server_client *client;
    int32_t client_limit, attached;
    bool any_user, is_deaf; /* deaf: out of descriptors, the listener is not watched */
    int32_t timeout_ms;
    int32_t writer; /* index + 1 of the client that writes, LP_SERVER_OWN, or LP_SERVER_NOBODY */
    lp_shared_state state;
};

/* ---- ipc_server.c: who writes. Each call tells all clients through the word of the description. ---- */

/* The state as the word that clients watch. */
uint64_t lp_server_word(const lp_shared_state *state);

void lp_server_begin_writing(lp_server *s, int32_t writer, int32_t pid);

/* Ends without new contents; torn ones belong to nobody. */
void lp_server_end_writing(lp_server *s, bool is_changed, bool is_torn);

/* Ends with new contents of that id; NULL or all zeros: it is not known. */
void lp_server_commit(lp_server *s, const uint8_t *content, int64_t experts_epoch);

#endif
