/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random plans on the device against the byte-by-byte reference: runs from one byte on, misaligned bases, permuted,
 * reversed and repeated sources, casts and fills, many items a push, pushes of some of the items. Bytes that no plan
 * owns must keep their poison.
 *
 *   test_device_copy [plans] [seed]      default 4096 plans; the long run is 100000
 */
#include "gpu_testing.h"

static uint64_t seed;

static void fail(uint64_t plan_seed, const char *what, const lp_error *err)
{
    fprintf(stderr, "plan seed %llu: %s: %s\n", (unsigned long long)plan_seed, what, err->text);
    exit(1);
}

int main(int argc, char **argv)
{
    const long plans = argc > 1 ? strtol(argv[1], NULL, 10) : 4096;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    need_gpu();
    uint8_t *source = malloc(PLAN_SOURCE_BYTES), *wanted = malloc(PLAN_ARENA_BYTES), *seen = malloc(PLAN_ARENA_BYTES);
    char *device_source, *arena;
    CHECK(source != NULL && wanted != NULL && seen != NULL, "out of memory");
    CUDA(cudaMalloc((void **)&device_source, PLAN_SOURCE_BYTES));
    CUDA(cudaMalloc((void **)&arena, PLAN_ARENA_BYTES));
    uint64_t state = seed;
    for (int64_t i = 0; i < PLAN_SOURCE_BYTES; i += 8) {
        const uint64_t word = random_next(&state);
        memcpy(source + i, &word, 8);
    }
    put_device(device_source, source, PLAN_SOURCE_BYTES);
    static random_plan p;
    long done = 0, moves[5] = {0}, tiles[3] = {0};
    for (uint64_t round = 0; done < plans; round++) {
        uint64_t plan_seed = seed * 1000003 + round, s = plan_seed;
        lp_error err;
        const int64_t used = make_plan(&p, &s);
        lp_device_program *program;
        if (lp_device_program_new(&program, PLAN_ITEMS, lp_alloc_default(), &err) != LP_OK)
            fail(plan_seed, "program", &err);
        for (uint32_t i = 0; i < PLAN_ITEMS; i++)
            for (int k = 0; k < p.steps[i]; k++)
                if (lp_device_program_add(program, i, &p.step[i][k], (uint64_t)(uintptr_t)(arena + p.dst[i][k]),
                                          &err) != LP_OK)
                    fail(plan_seed, "step", &err);
        if (lp_device_program_end(program, &err) != LP_OK)
            fail(plan_seed, "end", &err);
        for (int64_t i = 0; i < program->desc_count; i++)
            moves[program->desc[i].move]++;
        tiles[0] += program->rows.count;
        tiles[1] += program->words.count;
        tiles[2] += program->others.count;

        /* One push of some items, one of the others; or all at once. */
        memset(wanted, PLAN_POISON, PLAN_ARENA_BYTES);
        fill_device(arena, PLAN_POISON, (size_t)used);
        lp_device_exec *exec;
        lp_device_push *push;
        CUDA(lp_device_exec_open(&exec, program));
        CUDA(lp_device_push_open(&push, exec, PLAN_ITEMS));
        for (uint64_t half = 0; half < 2; half++) {
            uint32_t item[PLAN_ITEMS], count = 0;
            const void *base[PLAN_ITEMS];
            for (uint32_t i = 0; i < PLAN_ITEMS; i++)
                if (round % 4 == 0 ? half == 0 : (plan_seed >> (i % 13) & 1) == half) {
                    item[count] = i;
                    base[count++] = device_source + p.base[i];
                }
            CUDA(lp_device_push_set(push, item, base, count, NULL));
            CUDA(lp_device_push_run(push, NULL));
        }
        for (int i = 0; i < PLAN_ITEMS; i++)
            for (int k = 0; k < p.steps[i]; k++) {
                walk w = {&p.step[i][k], source + p.base[i], wanted + p.dst[i][k]};
                CHECK(lp_map_walk(w.step->map, reference_run, &w) == 0, "the reference cannot cast");
                lp_map_free(p.step[i][k].map, NULL);
                done++;
            }
        CUDA(cudaMemcpy(seen, arena, (size_t)used, cudaMemcpyDeviceToHost));
        for (int64_t i = 0; i < used; i++)
            CHECK(seen[i] == wanted[i], "plan seed %llu: byte %lld is %02x, should be %02x",
                  (unsigned long long)plan_seed, (long long)i, seen[i], wanted[i]);
        lp_device_push_close(push);
        lp_device_exec_close(exec);
        lp_device_program_free(program);
    }
    printf(
        "%ld plans: %ld runs, %ld transposes, %ld casts, %ld fills; tiles: %ld rows, %ld words, %ld others: equal to "
        "the reference\n",
        done, moves[LP_MOVE_RUNS], moves[LP_MOVE_WORDS], moves[LP_MOVE_CAST], moves[LP_MOVE_FILL], tiles[0], tiles[1],
        tiles[2]);
    for (int m = LP_MOVE_RUNS; m <= LP_MOVE_FILL; m++)
        CHECK(moves[m] > 0, "no plan took way %d", m);
    for (int t = 0; t < 3; t++)
        CHECK(tiles[t] > 0, "no plan took kernel %d", t);
    free(source);
    free(wanted);
    free(seen);
    CUDA(cudaFree(device_source));
    CUDA(cudaFree(arena));
    return 0;
}
