/* SPDX-License-Identifier: Apache-2.0 */
/* Rank and size from the variables of torchrun, Open MPI, MPICH (and Intel MPI), and Slurm. */
#include "replayer/launch_cli.h"

#include <stdlib.h>
#include <string.h>

/* A launcher and its variables. size comes first: a launcher is there when it is set. */
typedef struct launcher {
    const char *by, *size, *rank, *local_rank, *host, *port;
} launcher;

static const launcher launchers[] = {
    {"torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"},
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MASTER_ADDR",
     "MASTER_PORT"},
    {"mpirun", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MASTER_ADDR", "MASTER_PORT"},
    /* Of the step: a batch script is no step of its own, and has SLURM_PROCID all the same. */
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "MASTER_ADDR", "MASTER_PORT"},
};

static bool number_of(const char *text, int32_t least, int32_t most, int32_t *out)
{
    char *end = NULL;
    if (text == NULL || *text < '0' || *text > '9')
        return false;
    const long value = strtol(text, &end, 10);
    if (*end != '\0' || value < least || value > most)
        return false;
    *out = (int32_t)value;
    return true;
}

bool lp_launch_address(const char *text, char host[LP_HOST_MAX], int32_t *port)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || !number_of(colon + 1, 1, 65535, port))
        return false;
    size_t bytes = (size_t)(colon - text);
    if (bytes > 2 && text[0] == '[' && colon[-1] == ']') {
        text++;
        bytes -= 2;
    } else if (memchr(text, ':', bytes) != NULL) {
        return false; /* an address with colons stands in brackets */
    }
    if (bytes == 0 || bytes >= LP_HOST_MAX)
        return false;
    memcpy(host, text, bytes);
    host[bytes] = '\0';
    return true;
}

/* The first host of "node[03-07,11],other". */
static void first_host(const char *list, char host[LP_HOST_MAX])
{
    const size_t name = strcspn(list, "[,");
    const char *digits = list[name] == '[' ? list + name + 1 : "";
    const size_t number = strcspn(digits, "-,]"), rest = strcspn(digits, "]");
    if (name + number >= LP_HOST_MAX)
        return;
    memcpy(host, list, name);
    memcpy(host + name, digits, number);
    host[name + number] = '\0';
    /* What stands behind the bracket belongs to every host. */
    if (digits[rest] == ']' && digits[rest + 1] != ',' && name + number + strlen(digits + rest + 1) < LP_HOST_MAX)
        strncat(host, digits + rest + 1, strcspn(digits + rest + 1, ","));
}

static int read_launcher(lp_cli *cli, const launcher *l, lp_launch *out)
{
    const char *host = getenv(l->host), *port = getenv(l->port), *nodes = getenv("SLURM_STEP_NODELIST");
    out->by = l->by;
    if (!number_of(getenv(l->size), 1, 1 << 20, &out->size))
        return lp_cli_usage(cli, "'%s' in %s is no number of ranks", lp_cli_clean(getenv(l->size)), l->size);
    if (!number_of(getenv(l->rank), 0, out->size - 1, &out->rank))
        return lp_cli_usage(cli, "%s says %d ranks, but %s is '%s'", l->size, out->size, l->rank,
                            getenv(l->rank) == NULL ? "" : lp_cli_clean(getenv(l->rank)));
    if (!number_of(getenv(l->local_rank), 0, out->size - 1, &out->local_rank))
        out->local_rank = 0; /* not told: one rank a host */
    if (host != NULL && strlen(host) < LP_HOST_MAX)
        memcpy(out->host, host, strlen(host) + 1);
    else if (strcmp(l->by, "srun") == 0 && nodes != NULL)
        first_host(nodes, out->host);
    if (port != NULL && !number_of(port, 1, 65534, &out->port))
        return lp_cli_usage(cli, "'%s' in %s is no port", lp_cli_clean(port), l->port);
    return 0;
}

int lp_launch_environment(lp_cli *cli, lp_launch *out)
{
    *out = (lp_launch){.by = "nobody", .size = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (getenv(launchers[i].size) != NULL)
            return read_launcher(cli, &launchers[i], out);
    return 0;
}

int lp_launch_read(lp_cli *cli, lp_launch *out)
{
    int64_t rank = -1, size = 0;
    *out = (lp_launch){.by = "nobody", .size = 1};
    if (!lp_cli_integer(cli, "of", 0, 1, 1 << 20, &size))
        return LP_EXIT_USAGE;
    if (!lp_cli_integer(cli, "rank", -1, 0, 1 << 20, &rank))
        return LP_EXIT_USAGE;
    if (size > 0 || rank >= 0) {
        if (rank < 0 || rank >= size)
            return lp_cli_usage(cli, "--rank and --of go together: rank 0 to N - 1 of N");
        out->by = "options";
        out->rank = (int32_t)rank;
        out->size = (int32_t)size;
        return 0;
    }
    return lp_launch_environment(cli, out);
}

static bool read_time(lp_cli *cli, const char *name, int64_t fallback, int64_t *nanoseconds)
{
    int64_t seconds;
    if (!lp_cli_integer(cli, name, fallback, 1, 86400, &seconds))
        return false;
    *nanoseconds = seconds * 1000000000;
    return true;
}

bool lp_launch_timeouts(lp_cli *cli, int64_t *join_ns, int64_t *stall_ns)
{
    return read_time(cli, "join-timeout", 300, join_ns) && read_time(cli, "stall-timeout", 60, stall_ns);
}
