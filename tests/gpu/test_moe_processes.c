/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exchange between processes: each rank is one, on as many GPUs as there are; they meet over sockets and open one
 * another's buffers. Every rank computes the whole problem itself and holds its y against that. Then the last rank
 * stays away once, and the others name it.
 *
 *   test_moe_processes [RANKS]
 */
#include "moe_world.h"
#include "replayer/sync.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Most tokens are of one rank, and most routes go to its experts. */
#define UNEVEN(label, format)                                                                                          \
    {                                                                                                                  \
        label, format, 0, 0, .hidden = 512, .intermediate = 256, .experts = 8, .tokens = {96, 32, 32, 32},             \
                             .routing = ROUTE_UNEVEN                                                                   \
    }

static const exchange_case cases[] = {
    {"mxfp4", LP_MXFP4, 0, 0, .hidden = 512, .intermediate = 256, .experts = 3, .tokens = {17, 64, 0, 9}},
    {"nvfp4", LP_NVFP4, 0, 0, .hidden = 512, .intermediate = 256, .experts = 3, .tokens = {96, 1, 30, 9}},
    {"fp8", LP_FP8_BLOCK128, 0, 0, .hidden = 512, .intermediate = 256, .experts = 3, .tokens = {0, 50, 30, 9}},
    UNEVEN("mxfp4-uneven", LP_MXFP4),
    UNEVEN("nvfp4-uneven", LP_NVFP4),
    UNEVEN("fp8-uneven", LP_FP8_BLOCK128),
};

static int32_t ranks = 2, rank;
static int port, listener;

static lp_transport meet_others(void)
{
    const lp_tcp_options options = {.host = "127.0.0.1",
                                    .port = port,
                                    .is_sender = true,
                                    .is_alone = true,
                                    .rank = rank,
                                    .size = ranks,
                                    .listener = rank == 0 ? listener : 0};
    lp_transport transport;
    lp_error err = {0};
    CHECK(lp_transport_tcp(&transport, &options, &err) == LP_OK, "rank %d: %s", rank, err.text);
    return transport;
}

static lp_peer_memory *share_buffer(world *w, const lp_transport *transport, int64_t bytes)
{
    char terms[512], device[16];
    lp_error err = {0};
    lp_peer_memory *memory = NULL;
    lp_peer_memory_info info;
    rank_state *const r = &w->rank[rank];
    snprintf(device, sizeof device, "cuda:%d", r->gpu);
    lp_moe_exchange_terms(&r->shape, ranks, terms, sizeof terms);
    CHECK(lp_peer_memory_open(&memory, transport, device, bytes, terms, NULL, &err) == LP_OK, "rank %d: %s", rank,
          err.text);
    lp_peer_memory_get(memory, &info);
    CHECK(info.rank == rank && info.ranks == ranks && info.shares_device == (ranks > gpus),
          "rank %d of %d is %d of %d here", rank, ranks, info.rank, info.ranks);
    connect_member(w, rank, info.at, info.bytes, info.shares_device);
    CHECK(lp_moe_exchange_clear(info.at[rank], info.bytes, r->stream, &err) == LP_OK, "%s", err.text);
    CUDA(cudaStreamSynchronize(r->stream));
    CHECK(lp_peer_memory_meet(memory, &err) == LP_OK, "rank %d: %s", rank, err.text);
    return memory;
}

static int check_own(const char *name, world *w)
{
    int32_t received[512];
    uint16_t *const whole = whole_result(w);
    CUDA(cudaMemcpy(received, w->whole.io.received, (size_t)w->whole.shape.experts * 4, cudaMemcpyDeviceToHost));
    const int failed = check_rank(name, &w->rank[rank], whole, received);
    free(whole);
    return failed;
}

/* The last rank makes no second call. */
static int check_absence(const char *name, world *w)
{
    rank_state *const r = &w->rank[rank];
    lp_moe_failure failure;
    lp_error err = {0};
    if (rank == ranks - 1)
        return 0;
    r->exchange.timeout_ns = 300000000;
    call(r);
    const lp_status status = lp_moe_exchange_failure(&r->exchange, r->stream, &failure, &err);
    if (status == LP_E_PEER && failure.kind == LP_MOE_NO_TOKENS && failure.rank == ranks - 1)
        return 0;
    printf("FAIL %s: rank %d does not miss the last one: %s\n", name, rank, err.text);
    return 1;
}

static int run_member(const exchange_case *form, const lp_transport *transport, uint64_t seed)
{
    exchange_case c = *form;
    world w;
    lp_error err = {0};
    c.ranks = ranks;
    CUDA(cudaSetDevice(rank % gpus));
    make_whole(&w, &c, rank % gpus, seed);
    const int64_t bytes = make_member(&w, &c, rank);
    lp_peer_memory *const memory = share_buffer(&w, transport, bytes);
    place_tokens(&w, c.tokens);
    problem_route(&w.problem, w.whole.tokens, c.routing, 0, seed);
    upload_tokens(&w.whole, &w.problem);
    upload_tokens(&w.rank[rank], &w.problem);
    CUDA(cudaDeviceSynchronize());
    call(&w.rank[rank]);
    int failed = check_own(c.name, &w);
    CHECK(lp_peer_memory_meet(memory, &err) == LP_OK, "rank %d: %s", rank, err.text);
    failed += check_absence(c.name, &w);
    CUDA(cudaDeviceSynchronize());
    CHECK(lp_peer_memory_meet(memory, &err) == LP_OK, "rank %d: %s", rank, err.text);
    lp_peer_memory_close(memory);
    free_rank(&w.whole);
    free_rank(&w.rank[rank]);
    problem_free(&w.problem);
    if (rank == 0)
        printf("%s %s, %d ranks on %d GPUs\n", failed == 0 ? "ok  " : "FAIL", c.name, ranks, gpus);
    return failed;
}

static int run_rank(void)
{
    int failed = 0;
    need_gpu();
    CUDA(cudaGetDeviceCount(&gpus));
    lp_transport transport = meet_others();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        failed += run_member(&cases[i], &transport, 20261130 + i);
        fflush(stdout);
    }
    lp_transport_close(&transport);
    return failed == 0 ? 0 : 1;
}

static void listen_anywhere(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 16) == 0 &&
              getsockname(listener, (struct sockaddr *)&at, &size) == 0,
          "cannot listen");
    port = ntohs(at.sin_port);
}

int main(int argc, char **argv)
{
    pid_t child[MOST_RANKS];
    int failed = 0, skipped = 0;
    ranks = argc > 1 ? atoi(argv[1]) : 2;
    CHECK(ranks >= 1 && ranks <= MOST_RANKS, "ranks are 1 to %d", MOST_RANKS);
    listen_anywhere();
    for (rank = 0; rank < ranks; rank++) { /* before CUDA is used: a fork does not get it */
        child[rank] = fork();
        CHECK(child[rank] >= 0, "cannot fork");
        if (child[rank] == 0)
            return run_rank();
    }
    for (int32_t i = 0; i < ranks; i++) {
        int outcome = 0;
        CHECK(waitpid(child[i], &outcome, 0) == child[i], "a rank is lost");
        const int code = WIFEXITED(outcome) ? WEXITSTATUS(outcome) : 1;
        skipped += code == 77;
        failed += code != 0 && code != 77;
    }
    return failed > 0 ? 1 : skipped > 0 ? 77 : 0;
}
