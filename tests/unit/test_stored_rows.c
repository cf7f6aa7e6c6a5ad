/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a reader hands in when they are first asked for: expanded once, and judged; those made by hand are the
 * same. */
#include "vector_trace.h"

typedef struct fake_file {
    const lp_trace *original;
    int fault; /* 0: none */
    int expansions, closed;
} fake_file;

enum {
    FAULT_DESTINATIONS_SWAPPED = 1,
    FAULT_RECORDS_SWAPPED,
    FAULT_RECORD_TWICE,
    FAULT_NAME,
    FAULT_DEST,
    FAULT_SRC_OFF,
    FAULT_DST_OFF,
    FAULT_KIND,
    FAULT_FILL,
    FAULT_REFUSAL_NAME,
    FAULT_DERIVE_DEST,
    FAULT_SEQ, /* legal by itself: only the digest tells */
    FAULT_COUNT
};

static lp_status fake_expand(void *context, const lp_trace *t, int32_t scope, lp_rows *rows, lp_arena *arena,
                             lp_error *err)
{
    fake_file *file = context;
    file->expansions++;
    const lp_rows *from;
    LP_TRY(lp_trace_rows(file->original, scope, &from, err));
    *rows = *from;
    lp_destination *dest = lp_arena_copy(arena, from->dest, from->ndest * sizeof *dest);
    lp_record *record = lp_arena_copy(arena, from->record, from->nrecord * sizeof *record);
    lp_refusal *refusal = lp_arena_copy(arena, from->refusal, from->nrefusal * sizeof *refusal);
    lp_derive *derive = lp_arena_copy(arena, from->derive, from->nderive * sizeof *derive);
    for (uint32_t i = 0; i < from->nrecord; i++) {
        int64_t src_off, dst_off;
        LP_TRY(lp_map_pool_add(&t->shared->maps, from->record[i].map, &record[i].map, &src_off, &dst_off, err));
    }
    const lp_destination first = dest[0];
    const lp_record first_record = record[0];
    switch (file->fault) {
    case FAULT_DESTINATIONS_SWAPPED:
        dest[0] = dest[1];
        dest[1] = first;
        break;
    case FAULT_RECORDS_SWAPPED:
        record[0] = record[1];
        record[1] = first_record;
        break;
    case FAULT_RECORD_TWICE:
        record[1] = record[0];
        break;
    case FAULT_NAME:
        record[0].name = 77;
        break;
    case FAULT_DEST:
        record[0].dest = 77;
        break;
    case FAULT_SRC_OFF:
        record[0].src_off = INT64_MAX;
        break;
    case FAULT_DST_OFF:
        record[0].dst_off = -1;
        break;
    case FAULT_KIND:
        record[0].kind = LP_KIND_REPLICATE;
        break;
    case FAULT_FILL:
        record[2].fill_bits = 256;
        break;
    case FAULT_REFUSAL_NAME:
        refusal[0].name = 77;
        break;
    case FAULT_DERIVE_DEST:
        derive[0].dest = 77;
        break;
    case FAULT_SEQ:
        record[0].seq = 9;
        break;
    default:
        break;
    }
    rows->dest = dest;
    rows->record = record;
    rows->refusal = refusal;
    rows->derive = derive;
    return LP_OK;
}

static void fake_close(void *context)
{
    ((fake_file *)context)->closed++;
}

static lp_trace *opened_trace(fake_file *file)
{
    lp_checkpoint *c;
    lp_trace *t;
    uint8_t digest[32];
    const lp_rows *rows;
    assert_ok(lp_checkpoint_copy(&c, lp_trace_checkpoint(file->original), NULL, ERR));
    assert_ok(lp_trace_new_with(&t, c, lp_trace_header_of(file->original), NULL, ERR));
    assert_ok(lp_trace_rows(file->original, 0, &rows, ERR));
    memcpy(digest, rows->digest, 32);
    assert_ok(lp_trace_add_stored_scope(t, &rows->scope, digest, ERR));
    lp_trace_end_stored(t, &(lp_rows_source){.context = file, .expand = fake_expand, .close = fake_close});
    return t;
}

static void rows_of_a_file_are_expanded_at_first_use(void **state)
{
    (void)state;
    lp_trace *original = vector_trace(&(variant){0});
    fake_file file = {.original = original};
    lp_trace *t = opened_trace(&file);
    const lp_rows *rows;
    uint8_t digest[2][32];
    assert_ok(lp_trace_set_digest(original, digest[0], ERR));
    assert_ok(lp_trace_set_digest(t, digest[1], ERR));
    assert_memory_equal(digest[0], digest[1], 32);
    assert_int_equal(file.expansions, 0);
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_int_equal(file.expansions, 1);
    assert_int_equal(rows->nrecord, 3);
    assert_int_equal(lp_trace_release_rows(t, 0), LP_OK);
    assert_ok(lp_trace_structure_key(original, digest[0], ERR));
    assert_ok(lp_trace_structure_key(t, digest[1], ERR)); /* expands, and drops again */
    assert_memory_equal(digest[0], digest[1], 32);
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_int_equal(file.expansions, 3);
    lp_trace_close(t);
    assert_int_equal(file.closed, 1);
    lp_trace_close(original);
}

static void wrong_rows_of_a_file_are_corrupt(void **state)
{
    (void)state;
    lp_trace *original = vector_trace(&(variant){.check = true});
    for (int fault = 1; fault < FAULT_COUNT; fault++) {
        fake_file file = {.original = original, .fault = fault};
        lp_trace *t = opened_trace(&file);
        const lp_rows *rows;
        lp_error err = {0};
        if (lp_trace_rows(t, 0, &rows, &err) != LP_E_CORRUPT)
            fail_msg("fault %d was not seen", fault);
        if (fault == FAULT_SEQ)
            assert_string_equal(err.text, "the rows of rank 0 do not have the plan digest that is stored");
        file.fault = 0; /* a failed expansion leaves nothing behind */
        assert_ok(lp_trace_rows(t, 0, &rows, ERR));
        lp_trace_close(t);
    }
    lp_trace_close(original);
}

static void rows_made_by_hand_give_the_same_trace(void **state)
{
    (void)state;
    lp_trace *original = vector_trace(&(variant){.check = true}), *t;
    lp_checkpoint *c;
    const lp_rows *from, *rows;
    assert_ok(lp_trace_rows(original, 0, &from, ERR));
    assert_ok(lp_checkpoint_copy(&c, lp_trace_checkpoint(original), NULL, ERR));
    assert_ok(lp_trace_new_with(&t, c, lp_trace_header_of(original), NULL, ERR));
    lp_record reversed[3];
    for (int i = 0; i < 3; i++)
        reversed[i] = from->record[2 - i];
    lp_rows given = *from;
    given.record = reversed;
    assert_ok(lp_trace_add_rows(t, &given, ERR));
    assert_ok(lp_trace_seal(t, ERR));
    assert_ok(lp_trace_rows(t, 0, &rows, ERR));
    assert_memory_equal(rows->digest, from->digest, 32);
    lp_trace_close(t);

    lp_error err;
    assert_ok(lp_checkpoint_copy(&c, lp_trace_checkpoint(original), NULL, ERR));
    assert_ok(lp_trace_new_with(&t, c, NULL, NULL, ERR));
    reversed[1] = reversed[0];
    assert_int_equal(lp_trace_add_rows(t, &given, &err), LP_E_CORRUPT);
    assert_int_equal(lp_trace_seal(t, &err), LP_E_MISUSE);
    lp_trace_close(t);
    lp_trace_close(original);
}

static void stored_scopes_come_in_order_of_ranks(void **state)
{
    (void)state;
    lp_trace *t;
    lp_error err;
    const uint8_t digest[32] = {0};
    assert_ok(lp_trace_new_with(&t, small_checkpoint(1, 1), &(lp_trace_header){.layout = {.tp = 4}}, NULL, ERR));
    assert_ok(lp_trace_add_stored_scope(t, &(lp_scope){.tp = 4, .tp_rank = 1}, digest, ERR));
    assert_int_equal(lp_trace_add_stored_scope(t, &(lp_scope){.tp = 4, .tp_rank = 1}, digest, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "scope 1 is not in the order of ranks");
    assert_int_equal(lp_trace_add_stored_scope(t, &(lp_scope){.tp = 2, .tp_rank = 1}, digest, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "scope 1 has other sizes than the trace");
    lp_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_file_are_expanded_at_first_use),
        cmocka_unit_test(wrong_rows_of_a_file_are_corrupt),
        cmocka_unit_test(rows_made_by_hand_give_the_same_trace),
        cmocka_unit_test(stored_scopes_come_in_order_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
