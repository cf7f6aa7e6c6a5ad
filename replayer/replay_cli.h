/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of this room share. Part of the program. */
#ifndef LOADPLAN_REPLAY_CLI_H
#define LOADPLAN_REPLAY_CLI_H

#include "replayer/device_cold.h"
#include "replayer/replayer.h"
#include "traces/base.h"
#include "traces/cli.h"
#include "traces/number_set.h"

/* One rank, loaded into fresh memory of the host, or of a device. */
typedef struct lp_cli_load {
    lp_destinations *memory;
    lp_shared *shared;         /* instead of `memory`, where the job asks for it */
    lp_attachment *attachment; /* instead of both, where the weights are another process's */
    lp_plan *plan;
    lp_cold_memory on_device;
    lp_plan *copy; /* of what is on the device, in host memory; NULL: none was asked for */
    lp_destinations *copy_memory;
    uint8_t (*digest)[LP_VALUE_DIGEST_BYTES];
    lp_cold_report cold; /* of a load into device memory */
    double link;         /* bytes a second from its pinned memory; 0: not measured */
    lp_report report;
    lp_read_stats reads;
} lp_cli_load;

/* What is loaded and how. */
typedef struct lp_cli_job {
    lp_cli *cli;
    lp_trace *trace;
    lp_checkpoint *checkpoint; /* NULL in a dummy load */
    int32_t *rank;
    int32_t rank_count;
    lp_load_mode mode;
    bool allow_fallbacks;
    const char *session_device; /* where sessions load to; NULL: the CPU, or `device` */
    bool is_shared;             /* load into memory that other processes can map */
    const char *tensor;         /* glob over destinations, or NULL */
    const lp_number_set *ops;   /* rows whose destinations are loaded, or NULL; then */
    lp_strings chosen;          /* these are their names, of the rank that is being loaded */
    lp_cold_device table;
    const lp_cold_device *device; /* NULL: the CPU */
    lp_cold_ring *ring;           /* of the device; ranks share it */
} lp_cli_job;

/* Opens the trace of argument 0, the checkpoint of --checkpoint (unless it is not needed), and lists the ranks of
 * --rank that the trace has. 0, or an exit code. */
int lp_cli_job_open(lp_cli_job *job, lp_cli *cli, bool needs_checkpoint, const char *default_rank);
void lp_cli_job_close(lp_cli_job *job);

/* Loads one rank. 0, or an exit code; *load is to be freed in every case. */
int lp_cli_load_rank(const lp_cli_job *job, int32_t rank, lp_cli_load *load);
int lp_cli_load_rank_on_device(const lp_cli_job *job, int32_t rank, lp_cli_load *load);
/* Of what lies on the device: its digests, and its bytes where --output asks for them. */
lp_status lp_cli_device_results(const lp_cli_job *job, int32_t rank, lp_cli_load *load, lp_error *err);
void lp_cli_load_free(lp_cli_load *load);

/* device_session_cli.c: memory on job->session_device for `load`, and a copy of it in host memory afterwards where
 * --output asks for one. */
lp_status lp_cli_copy_back(const lp_cli_job *job, int32_t rank, lp_cli_load *load, lp_error *err);
/* Device staging with which a layerwise session in the order of the files comes through: what the best order needs, and
 * as much again for names that come from the host and are put together there. */
lp_status lp_cli_enough_staging(const lp_trace *trace, int32_t rank, int64_t *staging, lp_error *err);
/* What a plan on a device holds, in a plan of the host (*copy, over *memory), which is made the first time. */
lp_status lp_cli_host_copy(const lp_trace *trace, const lp_scope *scope, const lp_plan *from, lp_destinations **memory,
                           lp_plan **copy, const lp_platform *platform, lp_error *err);
/* A session of meta tensors: every name is pushed, no byte is. */
lp_status lp_cli_push_names(lp_session *s, const lp_plan *plan, lp_error *err);

/* serve_cli.c: the same from the process that serves at `path`. 0, LP_CLI_NOT_ATTACHED (the reason is told, and the
 * rank is to be loaded), or an exit code. */
enum { LP_CLI_NOT_ATTACHED = -1 };
int lp_cli_attach_rank(const lp_cli_job *job, int32_t rank, const char *path, lp_cli_load *load);
/* 0 when what is attached is still what it was at `epoch`. */
int lp_cli_attachment_held(const lp_cli_job *job, const lp_cli_load *load, int64_t epoch);

/* Names the device of the cold loads of whole ranks that follow. 0, or an exit code. */
int lp_cli_device_open(lp_cli_job *job, const char *name);
void lp_cli_device_close(lp_cli_job *job);

/* "x.lpt.digests" in memory of malloc. */
char *lp_cli_sidecar_path(const char *trace_path);

/* Whether --tensor or --ops leave something out, and whether they leave a destination in. */
bool lp_cli_is_part(const lp_cli_job *job);
bool lp_cli_is_selected(void *job, const lp_destination *dest);
/* Names the destinations of --ops for the rank that is loaded next. 0, or an exit code. */
int lp_cli_choose_rows(lp_cli_job *job, int32_t rank);

/* Destinations that are loaded and match. */
int64_t lp_cli_selected_count(const lp_cli_job *job, const lp_rows *rows);

int lp_cli_explain(lp_cli *cli); /* also replay --dry-run */
int lp_cli_explain_world(lp_cli *cli);
int lp_cli_replay(lp_cli *cli);
int lp_cli_replay_world(lp_cli *cli);
int lp_cli_serve(lp_cli *cli);
int lp_cli_verify(lp_cli *cli);
int lp_cli_verify_sync(lp_cli *cli); /* verify --sync */
int lp_cli_doctor(lp_cli *cli);

#endif
