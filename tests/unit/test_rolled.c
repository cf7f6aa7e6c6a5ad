/* SPDX-License-Identifier: Apache-2.0 */
/* Rolled payloads: what a reader sees through the table of file calls, and which destinations that must change. */
#include "replay_testing.h"

#include "replayer/rolled_io.h"
#include "replayer/rolled_verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { FILE_BYTES = 6000 };

typedef struct bed {
    lp_checkpoint *checkpoint;
    char path[64];
    uint8_t bytes[FILE_BYTES];
    int64_t used;
    lp_error err;
} bed;

static void open_bed(bed *b)
{
    memset(b, 0, sizeof *b);
    snprintf(b->path, sizeof b->path, "/tmp/loadplan-rolled-XXXXXX");
    const int fd = mkstemp(b->path);
    assert_true(fd >= 0);
    close(fd);
    const lp_checkpoint_file file = {.path = b->path, .size_bytes = FILE_BYTES};
    assert_ok(b, lp_checkpoint_new(&b->checkpoint, NULL, &b->err));
    assert_ok(b, lp_checkpoint_add_file(b->checkpoint, &file, &b->err));
    b->used = 11; /* a header of odd size */
}

static void add_file_tensor(bed *b, const char *name, lp_dtype dtype, int64_t count, int64_t gap)
{
    const lp_checkpoint_tensor t = {
        .name = name, .dtype = dtype, .ndim = 1, .shape = &count, .file = 0, .file_off = b->used};
    assert_ok(b, lp_checkpoint_add(b->checkpoint, &t, &b->err));
    b->used += count * lp_dtype_bits(dtype) / 8 + gap;
    assert_true(b->used <= FILE_BYTES);
}

static void seal_bed(bed *b, uint64_t seed)
{
    world w = {.random = seed};
    const int fd = open(b->path, O_WRONLY);
    assert_ok(b, lp_checkpoint_seal(b->checkpoint, &b->err));
    for (int i = 0; i < FILE_BYTES; i++)
        b->bytes[i] = (uint8_t)next_random(&w);
    assert_int_equal(write(fd, b->bytes, FILE_BYTES), FILE_BYTES);
    close(fd);
}

static void close_bed(bed *b)
{
    unlink(b->path);
    lp_checkpoint_close(b->checkpoint);
}

static void test_reads_are_those_of_the_rolled_file(void **state)
{
    bed b;
    lp_rolled_io r;
    uint8_t want[FILE_BYTES], seen[FILE_BYTES];
    world w = {.random = 3};
    (void)state;
    open_bed(&b);
    add_file_tensor(&b, "a", LP_BF16, 700, 0);
    add_file_tensor(&b, "b", LP_F32, 1, 5); /* one element, and bytes of nobody behind it */
    add_file_tensor(&b, "c", LP_F64, 100, 0);
    add_file_tensor(&b, "d", LP_U8, 0, 0);
    add_file_tensor(&b, "e", LP_F4, 100, 0); /* moves by a byte */
    add_file_tensor(&b, "f", LP_F6_E2M3, 40, 0);
    add_file_tensor(&b, "g", LP_I8, 999, 0);
    seal_bed(&b, 1);
    memcpy(want, b.bytes, FILE_BYTES);
    for (int64_t i = 0; i < lp_checkpoint_count(b.checkpoint); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(b.checkpoint, i);
        const int64_t bits = lp_dtype_bits(t->dtype), step = bits == 6 ? 3 : bits == 4 ? 1 : bits / 8;
        for (int64_t k = 0; k < t->bytes; k++)
            want[t->file_off + k] = b.bytes[t->file_off + (k + t->bytes - step) % t->bytes];
    }
    assert_ok(&b, lp_rolled_io_make(&r, b.checkpoint, NULL, &b.err));
    const lp_io *io = &r.table;
    assert_int_equal(io->open(io->context, b.path, O_RDONLY | O_DIRECT, 0), -EINVAL);
    const int fd = io->open(io->context, b.path, O_RDONLY, 0);
    assert_true(fd >= 0);
    for (int rolled = 1; rolled >= 0; rolled--) {
        r.is_rolled = rolled == 1;
        for (int round = 0; round < 2000; round++) {
            const int64_t off = pick(&w, FILE_BYTES), bytes = 1 + pick(&w, FILE_BYTES - off);
            assert_ok(&b, lp_read_exact(io, fd, b.path, seen, bytes, off, &b.err));
            assert_memory_equal(seen, (rolled == 1 ? want : b.bytes) + off, (size_t)bytes);
        }
    }
    r.is_rolled = true;
    assert_int_equal(lp_read_exact(io, fd, b.path, seen, 2, FILE_BYTES - 1, &b.err), LP_E_CORRUPT);
    io->close(io->context, fd);

    /* Files that are none of the checkpoint's are left alone. */
    char other[] = "/tmp/loadplan-rolled-other-XXXXXX";
    const int made = mkstemp(other);
    assert_int_equal(write(made, b.bytes, 100), 100);
    close(made);
    const int plain = io->open(io->context, other, O_RDONLY, 0);
    assert_ok(&b, lp_read_exact(io, plain, other, seen, 100, 0, &b.err));
    assert_memory_equal(seen, b.bytes, 100);
    io->close(io->context, plain);
    unlink(other);
    lp_rolled_io_free(&r);
    close_bed(&b);
}

/* ---- verdicts ---- */

enum { CONSTANT, SINGLE, CLOSE, HALF, OTHER, UNUSED, TENSORS };
static const char *const tensor_name[TENSORS] = {"constant", "single", "close", "half", "other", "unused"};
static const int64_t tensor_rows[TENSORS] = {4, 1, 2, 8, 8, 2}, tensor_columns[TENSORS] = {4, 1, 2, 4, 4, 2};

static float value_of(int tensor, int64_t k)
{
    switch (tensor) {
    case CONSTANT:
        return 3;
    case CLOSE: /* one BF16 value */
        return 1.0f + (float)k * 0x1p-20f;
    case HALF: /* the upper half is constant, and so is what comes before it */
        return k < 15 ? (float)k : 7;
    default:
        return (float)k;
    }
}

/* The tensors as names of the world, and as a file. */
static void write_tensors(bed *b, world *w)
{
    for (int i = 0; i < TENSORS; i++) {
        (void)add_source(w, tensor_name[i], LP_F32, tensor_rows[i], tensor_columns[i]);
        const lp_checkpoint_tensor t = {.name = tensor_name[i],
                                        .dtype = LP_F32,
                                        .ndim = 2,
                                        .shape = (int64_t[]){tensor_rows[i], tensor_columns[i]},
                                        .file = 0,
                                        .file_off = b->used};
        assert_ok(b, lp_checkpoint_add(b->checkpoint, &t, &b->err));
        b->used += tensor_rows[i] * tensor_columns[i] * 4;
    }
    seal_bed(b, 9);
    const int fd = open(b->path, O_WRONLY);
    for (int i = 0; i < TENSORS; i++) {
        const int64_t number = lp_checkpoint_find(b->checkpoint, tensor_name[i]);
        const lp_checkpoint_tensor *t = lp_checkpoint_at(b->checkpoint, number);
        for (int64_t k = 0; k < t->bytes / 4; k++) {
            const float value = value_of(i, k);
            assert_int_equal(pwrite(fd, &value, 4, t->file_off + 4 * k), 4);
        }
    }
    close(fd);
}

/* Destinations that are a copy of rows of one tensor, and what must be said of each. */
typedef struct judged {
    const char *name;
    lp_dtype dtype;
    int64_t rows, columns;
    int tensor;
    int64_t first_row; /* of the tensor */
    uint8_t verdict;
} judged;

static const judged copies[] = {
    {"d_constant", LP_F32, 4, 4, CONSTANT, 0, LP_ROLLED_SAME}, {"d_single", LP_F32, 1, 1, SINGLE, 0, LP_ROLLED_SAME},
    {"d_close", LP_BF16, 2, 2, CLOSE, 0, LP_ROLLED_SAME}, /* a cast */
    {"d_same", LP_F32, 2, 2, CLOSE, 0, LP_ROLLED_OTHER},       {"d_half", LP_F32, 4, 4, HALF, 4, LP_ROLLED_SAME},
    {"d_other", LP_F32, 8, 4, OTHER, 0, LP_ROLLED_OTHER},
};
enum { COPIES = sizeof copies / sizeof *copies };

/* Beside them a fill, a destination of two tensors, and what is computed. */
static void make_world(world *w)
{
    int last = -1; /* "d_other" */
    for (int i = 0; i < COPIES; i++) {
        const judged *c = &copies[i];
        last = add_dest(w, c->name, c->dtype, c->rows, c->columns, 0, "g");
        add_copy(w, c->tensor, last, 0, c->rows, c->first_row);
    }
    add_fill(w, -1, add_dest(w, "d_fill", LP_F32, 2, 2, 0, "g"), 0, 2, 1);
    const int both = add_dest(w, "d_both", LP_F32, 12, 4, 0, "g");
    add_copy(w, CONSTANT, both, 0, 4, 0);
    add_copy(w, OTHER, both, 4, 8, 0);
    const int max = add_dest(w, "d_max", LP_F32, 1, 1, 0, "g");
    w->derive[w->nderive++] = (derive){.kind = DERIVE_MAX, .dest = max, .input = last};
    build_world(w, NULL);
}

static uint8_t verdict_on(const char *name)
{
    for (int i = 0; i < COPIES; i++)
        if (strcmp(copies[i].name, name) == 0)
            return copies[i].verdict;
    return strcmp(name, "d_both") == 0 ? LP_ROLLED_OTHER : LP_ROLLED_NOT_LOADED;
}

static lp_plan *bind_world(world *w, uint8_t memory[DESTS_MAX][4096], const lp_platform *platform)
{
    lp_destination_memory list[DESTS_MAX];
    lp_plan *plan = NULL;
    for (int i = 0; i < w->ndest; i++)
        list[i] = (lp_destination_memory){.name = w->dest[i].name,
                                          .dtype = w->dest[i].dtype,
                                          .ndim = 2,
                                          .shape = w->dest[i].shape,
                                          .stride = w->dest[i].stride,
                                          .data = memory[i],
                                          .storage = memory[i],
                                          .storage_bytes = w->dest[i].storage_bytes};
    assert_ok(w, lp_bind(&plan, w->trace, NULL, list, w->ndest, &(lp_bind_options){.platform = platform}, &w->err));
    return plan;
}

static void test_what_must_change(void **state)
{
    static uint8_t memory[DESTS_MAX][4096];
    const lp_platform platform = {.io = NULL};
    world w;
    bed b;
    uint8_t verdict[DESTS_MAX];
    (void)state;
    memset(&w, 0, sizeof w);
    open_bed(&b);
    write_tensors(&b, &w);
    make_world(&w);
    lp_plan *plan = bind_world(&w, memory, &platform);
    memset(verdict, LP_ROLLED_OTHER, sizeof verdict);
    assert_ok(&w, lp_rolled_judge(plan, b.checkpoint, verdict, &w.err));
    const lp_rows *rows = lp_plan_rows(plan);
    assert_int_equal(rows->ndest, COPIES + 3);
    for (uint32_t i = 0; i < rows->ndest; i++) {
        const char *name = rows->dest[i].name;
        if (verdict[i] != verdict_on(name))
            fail_msg("'%s' is judged %d, not %d", name, verdict[i], verdict_on(name));
    }
    memset(verdict, LP_ROLLED_NOT_LOADED, sizeof verdict); /* only what is asked for is read */
    unlink(b.path);
    assert_ok(&w, lp_rolled_judge(plan, b.checkpoint, verdict, &w.err));
    memset(verdict, LP_ROLLED_OTHER, sizeof verdict);
    assert_int_equal(lp_rolled_judge(plan, b.checkpoint, verdict, &w.err), LP_E_IO);
    lp_plan_close(plan);
    free_world(&w);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_are_those_of_the_rolled_file),
        cmocka_unit_test(test_what_must_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
