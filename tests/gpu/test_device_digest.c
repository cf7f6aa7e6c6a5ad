/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value digest on the device is that of the CPU: tensors of any unit, permuted strides with gaps, odd addresses,
 * rows that are no multiple of a word. A swap of two words must change it.
 *
 *   test_device_digest [tensors] [seed]
 */
#include "gpu_testing.h"
#include "random_forms.h"
#include "replayer/device_digest.h"

/* So large that all blocks have long chunks, and something is left over: in a row, and words across. */
static void test_large(uint64_t *state)
{
    const lp_form forms[] = {
        {.unit = 2, .ndim = 2, .shape = {9001, 8192}, .stride = {16384, 2}},
        {.unit = 4, .ndim = 3, .shape = {3, 16384, 768}, .stride = {16384 * 768 * 4, 4, 16384 * 4}},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        lp_form form = forms[i];
        lp_digest_job job;
        lp_value_sum wanted = {{0, 0}}, seen;
        char *device;
        uint64_t *sum;
        form.bytes = form.unit;
        for (int d = 0; d < form.ndim; d++)
            form.bytes *= form.shape[d];
        form.span = form.bytes;
        uint8_t *host = malloc((size_t)form.bytes), *logical = malloc((size_t)form.bytes);
        CHECK(host != NULL && logical != NULL, "no memory");
        for (int64_t b = 0; b + 8 <= form.bytes; b += 8) {
            const uint64_t word = random_next(state);
            memcpy(host + b, &word, 8);
        }
        gather(&form, host, logical);
        lp_value_sum_add(&wanted, 0, logical, form.bytes);
        CUDA(cudaMalloc((void **)&device, (size_t)form.bytes));
        CUDA(cudaMalloc((void **)&sum, 16));
        put_device(device, host, (size_t)form.bytes);
        CHECK(lp_digest_job_of(&job, &form, (uint64_t)(uintptr_t)device, NULL) == LP_OK, "no job");
        CHECK(job.has_vectors && job.mode[0].extent.value % 256 == 0, "large tensor %zu is not read in long rows", i);
        fill_device(sum, 0, 16);
        CUDA(lp_device_value_sum(&job, device, sum, NULL));
        CUDA(cudaMemcpy(&seen, sum, 16, cudaMemcpyDeviceToHost));
        CHECK(memcmp(&seen, &wanted, sizeof seen) == 0, "large tensor %zu has another digest", i);
        CUDA(cudaFree(device));
        CUDA(cudaFree(sum));
        free(host);
        free(logical);
    }
}

int main(int argc, char **argv)
{
    const long tensors = argc > 1 ? strtol(argv[1], NULL, 10) : 3000;
    uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    static uint8_t host[FORM_ARENA_BYTES], logical[FORM_LOGICAL_BYTES];
    need_gpu();
    char *device;
    uint64_t *sum;
    CUDA(cudaMalloc((void **)&device, FORM_ARENA_BYTES));
    CUDA(cudaMalloc((void **)&sum, 16));
    for (int64_t i = 0; i < FORM_ARENA_BYTES; i += 8) {
        const uint64_t word = random_next(&state);
        memcpy(host + i, &word, 8);
    }
    put_device(device, host, FORM_ARENA_BYTES);
    long odd = 0, vectors = 0, words = 0, long_rows = 0;
    for (long n = 0; n < tensors; n++) {
        const uint64_t seed = state;
        lp_form form;
        lp_digest_job job;
        lp_error err;
        random_form(&state, &form);
        CHECK(form.span < FORM_ARENA_BYTES - 64 && form.bytes <= FORM_LOGICAL_BYTES,
              "the generator made too large a tensor");
        const int64_t at = random_below(&state, 2) == 0 ? random_below(&state, 4) * 16 : random_below(&state, 64);
        gather(&form, host + at, logical);
        lp_value_sum wanted = {{0, 0}}, seen;
        lp_value_sum_add(&wanted, 0, logical, form.bytes);
        CHECK(lp_digest_job_of(&job, &form, (uint64_t)(uintptr_t)(device + at), &err) == LP_OK, "%s", err.text);
        fill_device(sum, 0, 16);
        CUDA(lp_device_value_sum(&job, device + at, sum, NULL));
        CUDA(cudaMemcpy(&seen, sum, 16, cudaMemcpyDeviceToHost));
        CHECK(memcmp(&seen, &wanted, sizeof seen) == 0, "seed %llu: %016llx %016llx, should be %016llx %016llx",
              (unsigned long long)seed, (unsigned long long)seen.lane[0], (unsigned long long)seen.lane[1],
              (unsigned long long)wanted.lane[0], (unsigned long long)wanted.lane[1]);
        odd += job.is_odd;
        vectors += job.has_vectors;
        long_rows += job.has_vectors && job.mode[0].extent.value % 256 == 0;
        words += !job.is_odd && !job.has_vectors;
    }
    CHECK(odd > 0 && vectors > long_rows && words > 0 && long_rows > 0, "a way of reading was not tested");

    test_large(&state);

    /* Two rows change places: same words, other digest. */
    const lp_form rows = {.unit = 256, .bytes = 1024, .span = 1024, .ndim = 1, .shape = {4}, .stride = {256}};
    const lp_form swapped = {.unit = 256, .bytes = 1024, .span = 1024, .ndim = 1, .shape = {4}, .stride = {-256}};
    lp_value_sum one, other;
    lp_digest_job job;
    CHECK(lp_digest_job_of(&job, &rows, (uint64_t)(uintptr_t)device, NULL) == LP_OK, "no job");
    fill_device(sum, 0, 16);
    CUDA(lp_device_value_sum(&job, device, sum, NULL));
    CUDA(cudaMemcpy(&one, sum, 16, cudaMemcpyDeviceToHost));
    CHECK(lp_digest_job_of(&job, &swapped, (uint64_t)(uintptr_t)(device + 768), NULL) == LP_OK, "no job");
    fill_device(sum, 0, 16);
    CUDA(lp_device_value_sum(&job, device + 768, sum, NULL));
    CUDA(cudaMemcpy(&other, sum, 16, cudaMemcpyDeviceToHost));
    CHECK(one.lane[0] != other.lane[0] && one.lane[1] != other.lane[1], "rows in another order have the same digest");
    printf("%ld tensors: %ld by vectors (%ld in long rows), %ld by words, %ld by bytes: equal to the CPU's\n", tensors,
           vectors, long_rows, words, odd);
    CUDA(cudaFree(device));
    CUDA(cudaFree(sum));
    return 0;
}
