/* SPDX-License-Identifier: Apache-2.0 */
/* Rows chosen by number, and the tensors that they speak of. */
#include "traces/row_choice.h"

/* Calls `row` for the chosen rows of a rank; stops at the first failure. */
static lp_status each_row(const lp_rows *rows, const lp_number_set *set,
                          lp_status (*row)(void *context, const lp_rows *rows, int64_t number, lp_error *err),
                          void *context, lp_error *err)
{
    const int64_t count = (int64_t)rows->nrecord + rows->nderive + rows->nrefusal;
    for (int64_t i = 0; i < set->count; i++) {
        const lp_number_range *r = &set->range[i];
        for (int64_t n = r->lo; n <= r->hi && n < count; n += r->step) {
            LP_TRY(row(context, rows, n, err));
            if (r->step >= count - n)
                break;
        }
    }
    return LP_OK;
}

/* What row `number` writes, or LP_NONE. */
static uint32_t destination_of(const lp_rows *rows, int64_t number)
{
    if (number < rows->nrecord)
        return rows->record[number].dest;
    number -= rows->nrecord;
    return number < rows->nderive ? rows->derive[number].dest : rows->refusal[number - rows->nderive].dest;
}

static lp_status mark(void *context, const lp_rows *rows, int64_t number, lp_error *err)
{
    bool *dest = context;
    const uint32_t index = destination_of(rows, number);
    (void)err;
    if (index != LP_NONE)
        dest[index] = true;
    return LP_OK;
}

void lp_chosen_destinations(const lp_rows *rows, const lp_number_set *set, bool *dest)
{
    (void)each_row(rows, set, mark, dest, NULL);
}

typedef struct naming {
    lp_strings *names;
    const lp_checkpoint *checkpoint;
} naming;

static bool add_checkpoint_name(const naming *n, uint32_t name)
{
    if (name == LP_NAME_BEGIN)
        return true;
    const char *text = lp_checkpoint_at(n->checkpoint, name)->name;
    return lp_strings_add(n->names, text, strlen(text)) >= 0;
}

static bool add_destination(const naming *n, const lp_rows *rows, uint32_t dest)
{
    return dest == LP_NONE || lp_strings_add(n->names, rows->dest[dest].name, strlen(rows->dest[dest].name)) >= 0;
}

static bool add_inputs(const naming *n, const lp_rows *rows, const lp_derive *derive)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < derive->ninput; i++) {
        const lp_derive_input *input = &derive->input[i];
        ok = input->staged ? add_checkpoint_name(n, input->index) : add_destination(n, rows, input->index);
    }
    return ok;
}

static lp_status add_names(void *context, const lp_rows *rows, int64_t number, lp_error *err)
{
    const naming *n = context;
    bool ok = add_destination(n, rows, destination_of(rows, number));
    if (number < rows->nrecord)
        ok = ok && add_checkpoint_name(n, rows->record[number].name);
    else if ((number -= rows->nrecord) < rows->nderive)
        ok = ok && add_inputs(n, rows, &rows->derive[number]);
    else
        ok = ok && add_checkpoint_name(n, rows->refusal[number - rows->nderive].name);
    return ok ? LP_OK : lp_fail_memory(err);
}

lp_status lp_chosen_tensors(lp_strings *names, const lp_trace *t, const lp_number_set *set, lp_error *err)
{
    naming n = {names, lp_trace_checkpoint(t)};
    for (int32_t i = 0; i < lp_trace_scope_count(t); i++) {
        const lp_rows *rows;
        LP_TRY(lp_trace_rows(t, i, &rows, err));
        LP_TRY(each_row(rows, set, add_names, &n, err));
    }
    return LP_OK;
}
