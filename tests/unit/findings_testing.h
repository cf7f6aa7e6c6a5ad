/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the tests of check and diff. Included by test programs only. */
#ifndef LOADPLAN_FINDINGS_TESTING_H
#define LOADPLAN_FINDINGS_TESTING_H

#include "model_testing.h"
#include "tests/random_numbers.h"
#include "traces/findings.h"

#include <string.h>

static inline const lp_finding *finding_of(const lp_findings *f, const char *rule, const char *family)
{
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        const lp_finding *x = lp_findings_at(f, i);
        if (strcmp(x->rule->id, rule) == 0 && (family == NULL || strcmp(x->family, family) == 0))
            return x;
    }
    return NULL;
}

static inline void print_findings(const lp_findings *f)
{
    print_message("%s\n", lp_findings_summary(f));
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        const lp_finding *x = lp_findings_at(f, i);
        print_message("  %s %s (%d): %s\n", x->rule->id, x->family, (int)x->members, x->text);
    }
}

/* The one finding of a rule; every other finding of the report has to be expected too, so the count is asked for. */
static inline const lp_finding *expect(const lp_findings *f, int64_t count, const char *rule, const char *family)
{
    const lp_finding *x = finding_of(f, rule, family);
    if (lp_findings_count(f) != count || x == NULL)
        print_findings(f);
    assert_int_equal(lp_findings_count(f), count);
    assert_non_null(x);
    return x;
}

static inline void expect_text(const lp_finding *x, const char *part)
{
    if (strstr(x->text, part) == NULL)
        fail_msg("'%s' is not in '%s'", part, x->text);
}

/* A destination with everything said. */
static inline uint32_t add_dest_with(lp_trace *t, lp_destination dest)
{
    uint32_t index;
    int64_t stride[LP_VIEW_DIMS], elements = 1;
    for (int32_t i = dest.ndim; i-- > 0;) {
        stride[i] = elements * (lp_dtype_bits(dest.dtype) / 8);
        elements *= dest.shape[i];
    }
    if (dest.stride == NULL)
        dest.stride = stride;
    if (dest.storage_bytes == 0)
        dest.storage_bytes = elements * (lp_dtype_bits(dest.dtype) / 8);
    if (dest.group == NULL)
        dest.group = "root";
    if (dest.slot_count == 0)
        dest.slot_dim = -1;
    assert_ok(lp_trace_add_destination(t, &dest, &index, ERR));
    return index;
}

static inline void add_map(lp_trace *t, const char *name, uint32_t dest, const lp_map *map, uint32_t provenance)
{
    assert_ok(lp_trace_add_record(
        t, &(lp_record){.name = name_index(t, name), .dest = dest, .map = map, .provenance = provenance}, ERR));
    lp_map_free(map, NULL);
}

/* out = or_if_zero(max(in), constant) over `count` F32 of destination (or staged name) `in`. */
static inline void add_max_derive(lp_trace *t, uint32_t out, bool staged, uint32_t in, int64_t count, float constant)
{
    uint32_t bits;
    memcpy(&bits, &constant, sizeof bits);
    const lp_map *read = byte_map(0, 0, count * 4, 1, 0, 0), *write = byte_map(0, 0, 4, 1, 0, 0);
    const lp_derive_input input = {.staged = staged, .index = in, .dtype = LP_F32, .count = count, .map = read};
    const lp_node node[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = count},
                            {.op = LP_OP_MAX, .dtype = LP_F32, .arg = {0}, .count = 1},
                            {.op = LP_OP_CONST, .dtype = LP_F32, .bits = bits, .count = 1},
                            {.op = LP_OP_OR_IF_ZERO, .dtype = LP_F32, .arg = {1, 2}, .count = 1}};
    assert_ok(lp_trace_add_derive(t,
                                  &(lp_derive){.dest = out,
                                               .nnode = 4,
                                               .ninput = 1,
                                               .node = node,
                                               .input = &input,
                                               .map = write,
                                               .error_text = "",
                                               .provenance = LP_NONE},
                                  ERR));
    lp_map_free(read, NULL);
    lp_map_free(write, NULL);
}

/* A check that `count` F32 of destination `in` are close to 1. */
static inline void add_close_check(lp_trace *t, uint32_t in, int64_t count, float tolerance)
{
    uint32_t bits;
    memcpy(&bits, &tolerance, sizeof bits);
    const lp_map *read = byte_map(0, 0, count * 4, 1, 0, 0);
    const lp_derive_input input = {.index = in, .dtype = LP_F32, .count = count, .map = read};
    const lp_node node[] = {{.op = LP_OP_INPUT, .dtype = LP_F32, .count = count},
                            {.op = LP_OP_CONST, .dtype = LP_F32, .bits = 0x3f800000, .count = 1},
                            {.op = LP_OP_ALL_CLOSE, .arg = {0, 1}, .bits = bits}};
    assert_ok(lp_trace_add_derive(t,
                                  &(lp_derive){.dest = LP_NONE,
                                               .nnode = 3,
                                               .ninput = 1,
                                               .node = node,
                                               .input = &input,
                                               .error_text = "{index} is not 1",
                                               .provenance = LP_NONE},
                                  ERR));
    lp_map_free(read, NULL);
}

static inline uint32_t place_at(lp_trace *t, const char *file, int32_t line, uint32_t flags)
{
    uint32_t index;
    assert_ok(lp_trace_add_provenance(t, &(lp_provenance){.file = file, .line = line, .chain = "", .flags = flags},
                                      &index, ERR));
    return index;
}

static inline void add_refusal(lp_trace *t, const char *name, uint32_t dest, const lp_map *region, uint32_t provenance)
{
    assert_ok(lp_trace_add_refusal(t,
                                   &(lp_refusal){.name = name_index(t, name),
                                                 .dest = dest,
                                                 .map = region,
                                                 .operation = "aten.max",
                                                 .reason = "over a CPU copy",
                                                 .provenance = provenance},
                                   ERR));
}

/* ---- rounds against an oracle ---- */

static uint64_t running_seed; /* 0: no round is running */

/* A teardown: a round that failed can be taken again. */
static inline int name_the_seed(void **state)
{
    (void)state;
    if (running_seed != 0)
        print_message("failed with LOADPLAN_TEST_SEED=%llu\n", (unsigned long long)running_seed);
    return 0;
}

/* A writer to the screen, for a round that is run alone. */
static inline int show(void *context, const char *text, size_t bytes)
{
    (void)context;
    return fwrite(text, 1, bytes, stdout) == bytes ? 0 : -1;
}

#endif
