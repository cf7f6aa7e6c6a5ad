/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loadplan/sync.h: weights from ranks to ranks.
 *
 *   transport   how bytes cross ranks: one table, made by sockets, by NCCL over sockets, or inside one process
 *   sync        senders (a trainer) bring receivers (servers) to new weights, epoch by epoch
 *
 * An epoch is all or nothing across ranks: before the first byte all agree on plans, names, content and number; a rank
 * that fails, dies or stalls is named and ends the epoch for everyone; no rank reports success before every one has
 * verified what it got. After a failure the destinations of receivers are poisoned until a later epoch, of a higher
 * number, has loaded everything. docs/distributed.md has the protocol.
 *
 * Conventions are those of loadplan/trace.h. A transport and a sync belong to one thread at a time.
 */
#ifndef LOADPLAN_SYNC_H
#define LOADPLAN_SYNC_H

#include "replayer/replayer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- transports -------------------------------------------------------------------------------------------------- */

/* One message between two ranks. Messages of one pair of ranks and one direction arrive in the order in which they were
 * started; both sides state the same size. */
typedef struct lp_transfer {
    int32_t peer;
    bool is_send;
    bool is_host;   /* data is host memory, also where the transport's own is not: for what is small */
    bool is_behind; /* may wait until those before it in the list are done: it would share their link */
    void *data;     /* not written by sends */
    int64_t bytes;
} lp_transfer;

typedef struct lp_block {
    const void *data;
    int64_t bytes;
} lp_block;

/* Who takes part in a round: ranks [0, senders) send, the others receive. */
typedef struct lp_round {
    int32_t rank, world, senders;
    uint32_t number; /* of this round, rising */
} lp_round;

/* A failure of any rank ends the round for all: every call of the round then returns LP_E_PEER and names it. */
typedef struct lp_transport {
    size_t size; /* sizeof(lp_transport) */
    void *context;
    /* Starts a round together with all others, and ends the one before. Ranks may differ from round to round.
     * LP_E_INCOMPLETE: the senders have ended, there are no more rounds. */
    lp_status (*join)(void *context, lp_round *round, lp_error *err);
    /* Every rank gives a block (LP_GATHER_MAX bytes at most) and sees those of all ranks, which live until the next
     * call. Also a barrier. */
    lp_status (*gather)(void *context, const void *mine, int64_t bytes, const lp_block **all, lp_error *err);
    /* Starts messages, all of them together, and returns a ticket to wait for. The data belongs to the transport until
     * then, or until a start or a wait fails: that cancels. */
    lp_status (*start)(void *context, const lp_transfer *transfer, int64_t count, int64_t *ticket, lp_error *err);
    lp_status (*wait)(void *context, int64_t ticket, lp_error *err);
    /* Takes every message of this rank back that is still under way: afterwards the transport touches no data of its
     * caller. Where there was one, the round cannot be completed any more, and the caller ends it by fail. */
    void (*cancel)(void *context);
    /* For bytes that go another way: LP_E_PEER when the round is over. peer: the rank that is waited for since since_ns
     * (monotonic), or -1; it is named when that takes too long. */
    lp_status (*check)(void *context, int32_t peer, int64_t since_ns, lp_error *err);
    /* Ends the round for everyone. */
    void (*fail)(void *context, const char *reason);
    void (*alive)(void *context);                     /* says that this rank is busy, not stuck */
    const char *(*name)(void *context, int32_t rank); /* "receiver 3 of 'engine'"; lives until the next join */
    /* Memory for messages. NULL when there is none. Where download is NULL it is the host's. */
    void *(*take)(void *context, int64_t bytes);
    void (*give_back)(void *context, void *memory);
    lp_status (*upload)(void *context, void *to, const void *from_host, int64_t bytes, lp_error *err);
    lp_status (*download)(void *context, void *to_host, const void *from, int64_t bytes, lp_error *err);
    void (*close)(void *context);
    const struct lp_lane *lane; /* of the library's own transports, whose payloads can stay on a device; else NULL */
} lp_transport;

enum { LP_GATHER_MAX = 64 << 20 };

/* NULL is allowed; the struct itself is the caller's. */
LP_API void lp_transport_close(lp_transport *transport);

/* Ranks of one process: transport[i] of `world` is rank i, of which the first `senders` send. Each rank is a thread of
 * its own. A rank that makes no call for timeout_ns while another waits for it is named; 0: 300 s. */
LP_API lp_status lp_transport_local(lp_transport *transport, int32_t world, int32_t senders, int64_t timeout_ns,
                                    const lp_platform *platform, lp_error *err);

typedef struct lp_tcp_options {
    const char *host; /* where ranks meet: the host of sender 0, or of rank 0 of a single group */
    int32_t port;
    bool is_sender;
    const char *group;  /* of receivers: the server that they make up together; NULL: "server" */
    int32_t rank, size; /* in the own group, or among the senders */
    int32_t servers;    /* of sender 0: receiving groups that must be there before a round begins; 0: 1 */
    int32_t listener;   /* of sender 0: a listening socket instead of host and port, taken over in any case; 0: none */
    bool is_alone;      /* all ranks are of one group, each sends and receives: cold starts */
    int64_t join_ns;    /* how long a group waits for ranks that are late; 0: 300 s */
    int64_t stall_ns;   /* how long nothing may move between two ranks; 0: 60 s */
    const lp_platform *platform;
} lp_tcp_options;

/* Sockets. Sender 0 listens at host and port, the others try to reach it until join_ns is over. Every rank listens at a
 * port of its own for its peers. The network must be trusted: nothing is encrypted and nobody is asked who he is.
 * Starts one thread, sender 0 two. */
LP_API lp_status lp_transport_tcp(lp_transport *transport, const lp_tcp_options *options, lp_error *err);

/* Payloads by NCCL (libnccl.so.2, loaded now) between the memory of GPUs; rounds, headers and failures by `sockets`, a
 * transport of lp_transport_tcp, which must outlive this one and is closed after it. device: number of the GPU.
 * LP_E_UNSUPPORTED: no CUDA in this build, or no NCCL; LP_E_DEVICE. */
LP_API lp_status lp_transport_nccl(lp_transport *transport, const lp_transport *sockets, int32_t device,
                                   const lp_platform *platform, lp_error *err);

/* ---- what senders have and receivers do -------------------------------------------------------------------------- */

/* Bytes of checkpoint tensors at a sender. Names are numbers of the trace's catalogue. */
typedef struct lp_sync_source {
    void *context;
    /* Calls `range` for the bytes of a tensor that this rank has, rising and disjoint. NULL: it has everything. */
    lp_status (*holds)(void *context, uint32_t name,
                       lp_status (*range)(void *to, int64_t lo, int64_t hi, lp_error *err), void *to, lp_error *err);
    /* Copies `count` runs of `run` bytes, the first from byte lo, `stride` bytes apart, one after the other to `out`.
     */
    lp_status (*read)(void *context, uint32_t name, int64_t lo, int64_t run, int64_t stride, int64_t count, void *out,
                      lp_error *err);
    void (*close)(void *context);        /* NULL: nothing to close */
    const struct lp_sync_packer *packer; /* of the library's own sources in the memory of a device; else NULL */
} lp_sync_source;

/* The files of a checkpoint that matches the trace (lp_trace_match). Both must outlive the source, which
 * holds files open until it is closed. */
LP_API lp_status lp_sync_source_checkpoint(lp_sync_source *out, const lp_checkpoint *checkpoint, const lp_trace *trace,
                                           const lp_platform *platform, lp_error *err);
/* The memory that a plan is bound to, read backwards: where the trainer's own loader put the bytes. Destinations that
 * casts or derives made hold no checkpoint bytes. The plan must outlive the source. Of a plan that is bound to a device
 * bytes are packed there; what wrote them must be done before lp_sync_send. How each frame is packed is made out with
 * the first epoch and kept for those that ask for the same, so that a source is better kept than made anew. */
LP_API lp_status lp_sync_source_plan(lp_sync_source *out, const lp_plan *plan, lp_error *err);
LP_API void lp_sync_source_close(lp_sync_source *source); /* NULL is allowed */

/* ---- epochs ------------------------------------------------------------------------------------------------------ */

typedef enum lp_sync_mode {
    LP_SYNC_PACKED = 1, /* whole tensors, to every receiver */
    LP_SYNC_SLICED = 2, /* to each receiver the bytes that it needs, from the senders that have them */
    LP_SYNC_DELTA = 3   /* what changed since the last epoch; whole tensors to receivers that are not on it */
} lp_sync_mode;

LP_API const char *lp_sync_mode_name(lp_sync_mode mode); /* "packed"; "?" for no mode */

typedef struct lp_sync_options {
    bool is_sender;
    const char *group;  /* of receivers: as in lp_tcp_options */
    lp_sync_mode mode;  /* of senders, equal on all; receivers follow. 0: packed */
    int64_t bucket;     /* payload bytes of a frame, of senders, equal on all; 0: 64 MiB. Each rank takes two. */
    bool no_content_id; /* of senders: do not read everything once more, before, for the content id */
    const lp_platform *platform;
} lp_sync_options;

typedef struct lp_sync lp_sync;

/* `trace` is the rank's own: that of the servers at receivers, that of the trainer (or of the servers, where a folder
 * is sent) at senders. Traces of both sides must have one catalogue. Transport and trace must outlive the sync. */
LP_API lp_status lp_sync_open(lp_sync **out, const lp_transport *transport, const lp_trace *trace,
                              const lp_sync_options *options, lp_error *err);
LP_API void lp_sync_close(lp_sync *s); /* before its transport is closed */

/* Goes on with another transport, such as a new connection after the senders have ended: what the rank has seen and
 * holds stays. lp_sync_detach comes before the old transport is closed; in between only lp_sync_close is allowed. */
LP_API void lp_sync_detach(lp_sync *s);
LP_API void lp_sync_attach(lp_sync *s, const lp_transport *transport);

typedef struct lp_sync_report {
    int64_t epoch;
    lp_sync_mode mode;    /* how this rank sent or was served: packed also where a delta was refused */
    int64_t bytes_moved;  /* payload sent or received by this rank */
    int64_t bytes_needed; /* receivers: source bytes that the plan reads */
    int64_t frames;
    int64_t buffer_bytes; /* memory of buckets, on a device and of the host */
    int64_t shadow_bytes; /* senders, delta: the kept copy */
    int64_t nanoseconds;  /* from the agreement on */
    uint8_t content[32];  /* content id; zeros: not known */
    lp_report load;       /* receivers */
} lp_sync_report;

/* One epoch. epoch 0: one more than any rank has seen; else exactly this one, which must be higher. LP_E_MISMATCH:
 * ranks disagree, and nothing was moved. LP_E_PEER: another rank failed, is gone or stalled, and is named. After a
 * LP_E_INCOMPLETE: the senders have ended. After a failure the sync may be used again: that is a new epoch. report may
 * be NULL; its epoch is 0 when ranks did not come to agree. */
LP_API lp_status lp_sync_send(lp_sync *s, const lp_sync_source *source, int64_t epoch, lp_sync_report *report,
                              lp_error *err);
/* The same for receivers: options are those of the session (mode, allow_fallbacks, digests). On failure the plan's
 * destinations are poisoned if a byte was written. A delta is taken by plans of
 * host memory, in cold and direct mode. */
LP_API lp_status lp_sync_recv(lp_sync *s, lp_plan *plan, const lp_session_options *options, int64_t epoch,
                              lp_sync_report *report, lp_error *err);

/* For what belongs to the epoch after lp_sync_send or lp_sync_recv, such as writing files: all ranks say whether they
 * succeeded. LP_OK when all did; else LP_E_PEER with the first one's reason, and the plans
 * of receivers, which must not be closed before, are poisoned. */
LP_API lp_status lp_sync_vote(lp_sync *s, const lp_error *mine, lp_error *err);

/* ---- cold starts of several ranks -------------------------------------------------------------------------------- */

/* Bytes a second; message_ns: what a message costs by itself. NULL instead of this struct: 2 GB/s, 50 GB/s, 20 us. */
typedef struct lp_cold_rates {
    int64_t storage; /* that all ranks read from, together */
    int64_t link;    /* of one rank */
    int64_t message_ns;
} lp_cold_rates;

/* How ranks share the reading of a checkpoint. */
typedef struct lp_cold_costs {
    int64_t names;                     /* that some rank reads */
    int64_t names_shared;              /* read once, and sent to those that need them */
    int64_t bytes_needed, bytes_union; /* source bytes: of all ranks added up, and counted once */
    int64_t bytes_own, bytes_shared;   /* read from files: by those that need them, and for others as well */
    int64_t bytes_read;                /* own and shared: at most 1.05 of the union */
    int64_t bytes_exchanged;           /* that arrive from shared reads, a rank's own part included */
} lp_cold_costs;

/* From the trace of all ranks alone. rates may be NULL. */
LP_API lp_status lp_explain_cold(lp_cold_costs *out, const lp_trace *trace, const lp_cold_rates *rates,
                                 const lp_platform *platform, lp_error *err);

typedef struct lp_cold_world_report {
    lp_cold_costs costs;
    int64_t bytes_read, bytes_read_by_all; /* from files */
    int64_t bytes_moved;                   /* sent and received by this rank */
    int64_t nanoseconds;
    lp_report load;
    int64_t setup_nanoseconds; /* before the first read, part of nanoseconds */
} lp_cold_world_report;

/* Loads all ranks of the sync's trace together: a sync of senders over a transport of one group
 * (lp_tcp_options.is_alone; lp_transport_local with all ranks as senders). Every rank has the same trace of all ranks
 * and sees the same checkpoint. Six buckets of memory a rank.
 * A plan that is bound to a device goes over a transport of lp_transport_nccl through the same one: what is shared is
 * read by sixteen threads into pinned memory, uploaded, and exchanged from device to device; four buckets of pinned and
 * four to seven of device memory a rank, of 32 MiB at most, and the plan's staging for names that came in part: two for
 * each rank. Where no rank needs what another one reads, each loads by the pipeline of single ranks: 128 MiB of pinned
 * memory, 1 GiB of device memory. LP_E_UNSUPPORTED: NCCL for a plan of host memory, or of another device. Errors and
 * promises as of epochs. options and rates may be NULL. */
LP_API lp_status lp_sync_cold(lp_sync *s, lp_plan *plan, const lp_checkpoint *checkpoint,
                              const lp_session_options *options, const lp_cold_rates *rates,
                              lp_cold_world_report *report, lp_error *err);

/* ---- experts that move between ranks ----------------------------------------------------------------------------- */

/* lp_rebalance of every rank of the sync's trace at once: a sync of senders over a transport of one group, as for cold
 * starts. All ranks give the same map and staging. On success every rank's memory and plan are those of `to`; on
 * failure plans whose memory was touched take full loads only. Memory: the staging, and as much for what other ranks
 * get. LP_E_UNSUPPORTED: plans bound to a device; more than one expert parallel group. Errors else as of epochs and
 * lp_rebalance_begin. */
LP_API lp_status lp_sync_rebalance(lp_sync *s, lp_plan *plan, const lp_expert_map *to, int64_t staging, lp_error *err);

/* ---- memory that all ranks reach --------------------------------------------------------------------------------- */

/* A piece of each rank's device memory that all others address too, such as the buffers of loadplan/exchange.h. */
typedef struct lp_peer_memory lp_peer_memory;

typedef struct lp_peer_memory_info {
    int32_t rank, ranks;
    int64_t bytes;
    bool shares_device; /* another rank has this rank's GPU */
    void *const *at;    /* [ranks] where this rank's GPU sees each rank's memory; lives as long as the peer memory */
} lp_peer_memory_info;

/*
 * Allocates `bytes` on the device ("cuda:0"), which becomes the calling thread's, and opens the memory of all others:
 * ranks of one host, whose GPUs reach each other. The transport begins a round, and is the peer memory's until that is
 * closed. `terms` is a line of text that must be equal on all ranks, as `bytes` must; a rank that differs is named on
 * all of them, and nothing is left open. Content: undefined.
 *   LP_E_MISMATCH     terms or bytes differ
 *   LP_E_PEER         another rank failed or is gone
 *   LP_E_DEVICE       no such device, no memory, or a GPU that this one does not reach
 *   LP_E_ARGUMENT     bytes below 1, or terms of more than 4,000 bytes
 */
LP_API lp_status lp_peer_memory_open(lp_peer_memory **out, const lp_transport *transport, const char *device,
                                     int64_t bytes, const char *terms, const lp_platform *platform, lp_error *err);
LP_API void lp_peer_memory_get(const lp_peer_memory *memory, lp_peer_memory_info *out);
/* Returns when all ranks have called it: after every rank has prepared its memory, before one of them writes to it. */
LP_API lp_status lp_peer_memory_meet(lp_peer_memory *memory, lp_error *err);
/* Nothing may use the memory any more, here or at a peer. Meets the others once more, so that nobody frees what another
 * still has open. NULL is allowed. */
LP_API void lp_peer_memory_close(lp_peer_memory *memory);

/* ---- explaining a sync ------------------------------------------------------------------------------------------- */

typedef struct lp_world_costs {
    int32_t senders, receivers;
    int64_t bytes_needed;          /* of all receivers added up: what must move */
    int64_t bytes_sliced;          /* what a sliced epoch moves */
    int64_t bytes_packed;          /* what a packed epoch sends to each receiver */
    int64_t most_sent, least_sent; /* by one sender, sliced */
    int64_t most_received;         /* by one receiver, sliced */
    int64_t pieces;                /* of the schedule */
} lp_world_costs;

/* From traces of all ranks. trainer NULL: `senders` ranks that hold everything. LP_E_UNSUPPORTED: no sender holds some
 * byte that a receiver needs. */
LP_API lp_status lp_explain_sync(lp_world_costs *out, const lp_trace *server, const lp_trace *trainer, int32_t senders,
                                 const lp_platform *platform, lp_error *err);

#ifdef __cplusplus
}
#endif

#endif
