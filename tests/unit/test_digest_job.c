/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs of the device's value digest, read on the host: every word of a tensor stands in exactly one packet, at the
 * position that it has in the digest, whatever the strides.
 */
#include <setjmp.h>
#include <stdarg.h>

#include "device_interpreter.h"
#include "replayer/device_digest.h"
#include "tests/gpu/random_forms.h"

#include <stdio.h>

#include <cmocka.h>

static uint8_t arena[FORM_ARENA_BYTES], logical[FORM_LOGICAL_BYTES];
static uint64_t words[FORM_LOGICAL_BYTES / 8];
static uint8_t seen[FORM_LOGICAL_BYTES / 8];

static void locate(const lp_digest_job *job, uint64_t index, int64_t *off, uint64_t *pos)
{
    *off = 0;
    *pos = 0;
    for (uint32_t k = 0; k < job->rank; k++) {
        const lp_digest_mode *m = &job->mode[k];
        const uint64_t rest = index < 0x80000000u ? run_divide((uint32_t)index, m->extent) : index / m->extent.value;
        *off += (int64_t)(index - rest * m->extent.value) * m->off;
        *pos += (index - rest * m->extent.value) * m->pos;
        index = rest;
    }
}

static void take(uint64_t pos, uint64_t word, int64_t bytes)
{
    assert_true((int64_t)pos < (bytes + 7) / 8);
    assert_false(seen[pos]);
    seen[pos] = 1;
    words[pos] = word;
}

static void read_words(const lp_digest_job *job, const uint8_t *data)
{
    for (uint64_t p = 0; p < job->packets; p++) {
        int64_t off;
        uint64_t pos;
        locate(job, p, &off, &pos);
        for (uint32_t w = 0; w < job->words; w++) {
            const uint8_t *at = data + off + w * job->word_off;
            uint64_t word = 0;
            for (uint32_t k = 0; k < job->parts; k++) {
                assert_int_equal((uintptr_t)(at + k * job->part_off) % job->part_bytes, 0);
                memcpy((uint8_t *)&word + (size_t)k * job->part_bytes, at + k * job->part_off, job->part_bytes);
            }
            take(pos + w * job->word_pos, word, job->bytes);
        }
    }
}

/* Units one after the other, byte by byte. */
static void read_odd(const lp_digest_job *job, const uint8_t *data)
{
    for (uint64_t p = 0; p < job->packets; p++) {
        uint64_t word = 0;
        for (int64_t b = (int64_t)p * 8; b < (int64_t)p * 8 + 8 && b < job->bytes; b++) {
            int64_t off;
            uint64_t unused;
            locate(job, (uint64_t)(b / job->unit), &off, &unused);
            word |= (uint64_t)data[off + b % job->unit] << (8 * (b % 8));
        }
        take(p, word, job->bytes);
    }
}

static void every_word_stands_in_one_packet(void **state)
{
    (void)state;
    uint64_t random = 42;
    long odd = 0, vectors = 0, parted = 0;
    for (size_t i = 0; i < sizeof arena; i++)
        arena[i] = (uint8_t)random_next(&random);
    for (int n = 0; n < 600; n++) {
        lp_form form;
        lp_digest_job job;
        lp_error err;
        random_form(&random, &form);
        const int64_t start = random_below(&random, 3) == 0 ? random_below(&random, 48) : 16 * random_below(&random, 4);
        const uint8_t *data = arena + start;
        assert_int_equal(lp_digest_job_of(&job, &form, (uint64_t)(uintptr_t)data, &err), LP_OK);
        assert_int_equal(job.bytes, form.bytes);
        memset(logical, 0, (size_t)(form.bytes + 7) / 8 * 8);
        gather(&form, data, logical);
        memset(seen, 0, sizeof seen);
        if (job.is_odd)
            read_odd(&job, data);
        else
            read_words(&job, data);
        for (int64_t w = 0; w < (form.bytes + 7) / 8; w++)
            assert_true(seen[w]);
        assert_memory_equal(words, logical, (size_t)form.bytes);
        odd += job.is_odd;
        vectors += job.has_vectors;
        parted += job.parts > 1;
    }
    printf("600 tensors: %ld by bytes, %ld by vectors, %ld of words in parts\n", odd, vectors, parted);
    assert_true(odd > 20 && vectors > 20 && parted > 20);
}

static void what_has_no_job(void **state)
{
    (void)state;
    lp_digest_job job;
    lp_error err;
    lp_form form = {.unit = 1, .bytes = 0, .ndim = 1, .shape = {0}, .stride = {1}};
    assert_int_equal(lp_digest_job_of(&job, &form, 64, &err), LP_OK);
    assert_int_equal(job.packets, 0);
    form = (lp_form){.unit = 1, .bytes = (int64_t)1 << 31, .ndim = 1, .shape = {(int64_t)1 << 31}, .stride = {2}};
    assert_int_equal(lp_digest_job_of(&job, &form, 64, &err), LP_E_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_word_stands_in_one_packet),
                                       cmocka_unit_test(what_has_no_job)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
