/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of one scope from their lines. */
#include "traces/trace_undump.h"

typedef struct scope_reader {
    lp_undump *u;
    lp_line *l;
    lp_strings dest_names; /* numbered as the rows are */
    lp_destination *dest;
    lp_record *record;
    lp_derive *derive;
    lp_refusal *refusal;
    int64_t ndest, dest_capacity, nrecord, record_capacity, nderive, derive_capacity, nrefusal, refusal_capacity;
} scope_reader;

/* Room for one more row; the rows are moved into the arena at the end. */
static lp_status room(scope_reader *s, void **rows, int64_t *capacity, int64_t count, size_t row_bytes)
{
    if (count >= UINT32_MAX - 1)
        return lp_line_fail(s->l, "too many rows in a scope");
    return lp_grow(s->u->platform.alloc, rows, capacity, count + 1, row_bytes) ? LP_OK : lp_fail_memory(s->u->err);
}

static lp_status read_u32(lp_line *l, uint32_t *value)
{
    int64_t wide;
    LP_TRY(lp_line_integer(l, 0, UINT32_MAX, &wide));
    *value = (uint32_t)wide;
    return LP_OK;
}

static lp_status read_name_index(scope_reader *s, uint32_t *index)
{
    const char *name;
    LP_TRY(lp_line_string(s->l, &name));
    const int64_t found = lp_checkpoint_find(s->u->trace->checkpoint, name);
    if (found < 0)
        return lp_line_fail(s->l, "no checkpoint tensor '%.200s'", name);
    *index = (uint32_t)found;
    return LP_OK;
}

static lp_status read_dest_index(scope_reader *s, uint32_t *index)
{
    const char *name;
    LP_TRY(lp_line_string(s->l, &name));
    const int64_t found = lp_strings_find(&s->dest_names, name, strlen(name));
    if (found < 0)
        return lp_line_fail(s->l, "no destination '%.200s' in this scope", name);
    *index = (uint32_t)found;
    return LP_OK;
}

/* [ at "FILE":LINE [via "CHAIN"] [flags=N]] and the end of the line. */
static lp_status read_provenance(scope_reader *s, uint32_t *index)
{
    lp_line *l = s->l;
    lp_provenance p = {.chain = ""};
    int64_t line;
    *index = LP_NONE;
    if (!lp_line_take(l, " at "))
        return lp_line_end(l);
    LP_TRY(lp_line_string(l, &p.file));
    LP_TRY(lp_line_expect(l, ":"));
    LP_TRY(lp_line_integer(l, 0, INT32_MAX, &line));
    p.line = (int32_t)line;
    if (lp_line_take(l, " via "))
        LP_TRY(lp_line_string(l, &p.chain));
    if (lp_line_take(l, " flags="))
        LP_TRY(lp_line_flags(l, lp_prov_flag_names, LP_PROV_FLAG_NAMES, &p.flags));
    LP_TRY(lp_line_end(l));
    return lp_line_pass(l, l->number, lp_trace_add_provenance(s->u->trace, &p, index, s->u->err));
}

/* ---- destinations ---- */

static lp_status read_stride(scope_reader *s, lp_destination *d)
{
    int32_t count;
    if (lp_line_take(s->l, " stride=")) {
        LP_TRY(lp_line_numbers(s->l, LP_DEST_DIMS_MAX, &d->stride, &count));
        return count == d->ndim ? LP_OK : lp_line_fail(s->l, "a stride for each dimension is needed");
    }
    int64_t *stride = lp_arena_get(&s->u->arena, (size_t)d->ndim * sizeof *stride);
    if (stride == NULL)
        return lp_fail_memory(s->u->err);
    d->stride = stride;
    if (!lp_destination_strides(d->dtype, d->ndim, d->shape, stride))
        return lp_line_fail(s->l, "the strides of '%.200s' overflow", d->name);
    return LP_OK;
}

static lp_status read_slots(lp_line *l, lp_destination *d)
{
    int64_t dim, count;
    if (!lp_line_take(l, " slots="))
        return LP_OK;
    LP_TRY(lp_line_integer(l, -1, INT32_MAX, &dim));
    LP_TRY(lp_line_expect(l, ":"));
    LP_TRY(lp_line_integer(l, 0, INT32_MAX, &count));
    d->slot_dim = (int32_t)dim;
    d->slot_count = (int32_t)count;
    return LP_OK;
}

static lp_status read_destination(scope_reader *s)
{
    lp_line *l = s->l;
    lp_destination d = {.layout = "", .slot_dim = -1};
    int64_t version = 0;
    LP_TRY(lp_line_string(l, &d.name));
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_undump_dtype(l, &d.dtype));
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_line_numbers(l, LP_DEST_DIMS_MAX, &d.shape, &d.ndim));
    LP_TRY(read_stride(s, &d));
    d.storage = d.name;
    if (lp_line_take(l, " storage="))
        LP_TRY(lp_line_string(l, &d.storage));
    LP_TRY(lp_line_expect(l, " bytes="));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &d.storage_bytes));
    if (lp_line_take(l, " off="))
        LP_TRY(lp_line_integer(l, 0, INT64_MAX, &d.offset));
    if (lp_line_take(l, " layout="))
        LP_TRY(lp_line_string(l, &d.layout));
    if (lp_line_take(l, " version="))
        LP_TRY(lp_line_integer(l, INT32_MIN, INT32_MAX, &version));
    d.layout_version = (int32_t)version;
    LP_TRY(lp_line_expect(l, " group="));
    LP_TRY(lp_line_string(l, &d.group));
    if (lp_line_take(l, " flags="))
        LP_TRY(lp_line_flags(l, lp_dest_flag_names, LP_DEST_FLAG_NAMES, &d.flags));
    if (lp_line_take(l, " dummy="))
        LP_TRY(lp_line_hex(l, &d.dummy_bits));
    LP_TRY(read_slots(l, &d));
    LP_TRY(lp_line_end(l));
    if (lp_strings_find(&s->dest_names, d.name, strlen(d.name)) >= 0)
        return lp_line_fail(l, "destination '%.200s' is given twice", d.name);
    if (lp_strings_add(&s->dest_names, d.name, strlen(d.name)) < 0)
        return lp_fail_memory(s->u->err);
    LP_TRY(room(s, (void **)&s->dest, &s->dest_capacity, s->ndest, sizeof *s->dest));
    s->dest[s->ndest++] = d;
    return LP_OK;
}

/* ---- records ---- */

static lp_status read_dtypes(lp_line *l, lp_record *r)
{
    lp_dtype from, to;
    const char *start = l->at;
    const bool none = lp_line_take(l, " src=") || lp_line_take(l, " value=");
    l->at = start;
    if (none)
        return LP_OK;
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_undump_dtype(l, &from));
    LP_TRY(lp_line_expect(l, ">"));
    LP_TRY(lp_undump_dtype(l, &to));
    r->src_dtype = (uint8_t)from;
    r->dst_dtype = (uint8_t)to;
    return LP_OK;
}

static lp_status read_record(scope_reader *s, lp_kind kind)
{
    lp_line *l = s->l;
    lp_record r = {.kind = (uint8_t)kind};
    LP_TRY(lp_line_expect(l, " "));
    if (lp_line_take(l, "begin"))
        r.name = LP_NAME_BEGIN;
    else
        LP_TRY(read_name_index(s, &r.name));
    LP_TRY(lp_line_expect(l, " -> "));
    LP_TRY(read_dest_index(s, &r.dest));
    LP_TRY(read_dtypes(l, &r));
    if (kind == LP_KIND_FILL) {
        LP_TRY(lp_line_expect(l, " value="));
        LP_TRY(lp_line_hex(l, &r.fill_bits));
    } else {
        LP_TRY(lp_line_expect(l, " src="));
        LP_TRY(lp_line_integer(l, INT64_MIN, INT64_MAX, &r.src_off));
    }
    LP_TRY(lp_line_expect(l, " dst="));
    LP_TRY(lp_line_integer(l, INT64_MIN, INT64_MAX, &r.dst_off));
    LP_TRY(lp_line_expect(l, " map="));
    LP_TRY(lp_line_map_ref(l, &s->u->maps, &r.map));
    if ((r.map->src_elem == 0) != (kind == LP_KIND_FILL))
        return lp_line_fail(l, "the map is not one of this kind of record");
    if (lp_line_take(l, " seq="))
        LP_TRY(read_u32(l, &r.seq));
    LP_TRY(read_provenance(s, &r.provenance));
    LP_TRY(room(s, (void **)&s->record, &s->record_capacity, s->nrecord, sizeof *s->record));
    s->record[s->nrecord++] = r;
    return LP_OK;
}

/* ---- derives ---- */

static lp_status read_input(scope_reader *s, lp_derive_input *input)
{
    lp_line *l = s->l;
    *input = (lp_derive_input){0};
    input->staged = lp_line_take(l, "name ");
    if (!input->staged)
        LP_TRY(lp_line_expect(l, "dest "));
    LP_TRY(input->staged ? read_name_index(s, &input->index) : read_dest_index(s, &input->index));
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_undump_dtype(l, &input->dtype));
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &input->count));
    LP_TRY(lp_line_expect(l, " "));
    return lp_line_map_ref(l, &s->u->maps, &input->map);
}

static lp_status read_op(lp_line *l, uint16_t *op)
{
    const char *word;
    size_t bytes;
    LP_TRY(lp_line_word(l, &word, &bytes));
    for (int i = 0; i < 256; i++) {
        const char *name = lp_op_name((lp_op)i);
        if (lp_op_arity((lp_op)i) >= 0 && strlen(name) == bytes && memcmp(name, word, bytes) == 0) {
            *op = (uint16_t)i;
            return LP_OK;
        }
    }
    return lp_line_fail(l, "unknown operation '%.*s'", (int)(bytes < 24 ? bytes : 24), word);
}

static lp_status read_node(lp_line *l, lp_node *node)
{
    lp_dtype dtype;
    *node = (lp_node){0};
    LP_TRY(read_op(l, &node->op));
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_undump_dtype(l, &dtype));
    node->dtype = (uint16_t)dtype;
    LP_TRY(lp_line_expect(l, " "));
    LP_TRY(lp_line_integer(l, 0, INT64_MAX, &node->count));
    for (int a = 0; a < 3; a++) {
        LP_TRY(lp_line_expect(l, a == 0 ? " " : ","));
        LP_TRY(read_u32(l, &node->arg[a]));
    }
    LP_TRY(lp_line_expect(l, " "));
    return lp_line_hex(l, &node->bits);
}

/* Lists "(ITEM; ITEM)" of inputs and nodes; the arrays grow outside the arena and are copied into it. */
static lp_status read_inputs(scope_reader *s, lp_derive *d)
{
    const lp_alloc *alloc = s->u->platform.alloc;
    lp_derive_input *input = NULL;
    int64_t capacity = 0;
    lp_status status = LP_OK;
    LP_TRY(lp_line_expect(s->l, " inputs=("));
    while (!lp_line_take(s->l, ")")) {
        if (d->ninput > 0)
            LP_TRY_GOTO(lp_line_expect(s->l, "; "), release);
        if (d->ninput >= LP_DERIVE_INPUTS_MAX) {
            status = lp_line_fail(s->l, "more than %d inputs", LP_DERIVE_INPUTS_MAX);
            goto release;
        }
        LP_TRY_GOTO(room(s, (void **)&input, &capacity, d->ninput, sizeof *input), release);
        LP_TRY_GOTO(read_input(s, &input[d->ninput++]), release);
    }
    d->input = lp_arena_copy(&s->u->arena, input, d->ninput * sizeof *input);
    status = d->input != NULL ? LP_OK : lp_fail_memory(s->u->err);
release:
    lp_release(alloc, input);
    return status;
}

static lp_status read_nodes(scope_reader *s, lp_derive *d)
{
    const lp_alloc *alloc = s->u->platform.alloc;
    lp_node *node = NULL;
    int64_t capacity = 0;
    lp_status status = LP_OK;
    LP_TRY(lp_line_expect(s->l, " nodes=("));
    while (!lp_line_take(s->l, ")")) {
        if (d->nnode > 0)
            LP_TRY_GOTO(lp_line_expect(s->l, "; "), release);
        if (d->nnode >= LP_DERIVE_NODES_MAX) {
            status = lp_line_fail(s->l, "more than %d nodes", LP_DERIVE_NODES_MAX);
            goto release;
        }
        LP_TRY_GOTO(room(s, (void **)&node, &capacity, d->nnode, sizeof *node), release);
        LP_TRY_GOTO(read_node(s->l, &node[d->nnode++]), release);
    }
    d->node = lp_arena_copy(&s->u->arena, node, d->nnode * sizeof *node);
    status = d->node != NULL ? LP_OK : lp_fail_memory(s->u->err);
release:
    lp_release(alloc, node);
    return status;
}

static lp_status read_derive(scope_reader *s)
{
    lp_line *l = s->l;
    lp_derive d = {.dest = LP_NONE, .error_text = ""};
    if (!lp_line_take(l, "check"))
        LP_TRY(read_dest_index(s, &d.dest));
    if (lp_line_take(l, " map="))
        LP_TRY(lp_line_map_ref(l, &s->u->maps, &d.map));
    if (lp_line_take(l, " error="))
        LP_TRY(lp_line_string(l, &d.error_text));
    LP_TRY(read_inputs(s, &d));
    LP_TRY(read_nodes(s, &d));
    LP_TRY(read_provenance(s, &d.provenance));
    LP_TRY(room(s, (void **)&s->derive, &s->derive_capacity, s->nderive, sizeof *s->derive));
    s->derive[s->nderive++] = d;
    return LP_OK;
}

/* ---- refusals ---- */

static lp_status read_refusal(scope_reader *s)
{
    lp_line *l = s->l;
    lp_refusal r = {.dest = LP_NONE};
    LP_TRY(read_name_index(s, &r.name));
    if (lp_line_take(l, " -> "))
        LP_TRY(read_dest_index(s, &r.dest));
    if (lp_line_take(l, " map="))
        LP_TRY(lp_line_map_ref(l, &s->u->maps, &r.map));
    LP_TRY(lp_line_expect(l, " op="));
    LP_TRY(lp_line_string(l, &r.operation));
    LP_TRY(lp_line_expect(l, " reason="));
    LP_TRY(lp_line_string(l, &r.reason));
    LP_TRY(read_provenance(s, &r.provenance));
    LP_TRY(room(s, (void **)&s->refusal, &s->refusal_capacity, s->nrefusal, sizeof *s->refusal));
    s->refusal[s->nrefusal++] = r;
    return LP_OK;
}

/* ---- the scope ---- */

static lp_status read_lines(scope_reader *s)
{
    lp_line *l = s->l;
    for (; lp_line_take(l, "dest "); lp_line_next(l))
        LP_TRY(read_destination(s));
    for (;; lp_line_next(l)) {
        lp_kind kind = 0;
        for (lp_kind k = LP_KIND_COPY; k <= LP_KIND_FILL && kind == 0; k++)
            if (lp_line_take(l, lp_kind_name(k)))
                kind = k;
        if (kind == 0)
            break;
        LP_TRY(read_record(s, kind));
    }
    for (; lp_line_take(l, "derive "); lp_line_next(l))
        LP_TRY(read_derive(s));
    for (; lp_line_take(l, "refuse "); lp_line_next(l))
        LP_TRY(read_refusal(s));
    return LP_OK;
}

lp_status lp_undump_rows(lp_undump *u, lp_rows *rows)
{
    scope_reader s = {.u = u, .l = &u->line};
    lp_strings_init(&s.dest_names, u->platform.alloc);
    lp_status status = read_lines(&s);
    if (status == LP_OK) {
        rows->ndest = (uint32_t)s.ndest;
        rows->nrecord = (uint32_t)s.nrecord;
        rows->nderive = (uint32_t)s.nderive;
        rows->nrefusal = (uint32_t)s.nrefusal;
        rows->dest = lp_arena_copy(&u->arena, s.dest, (size_t)s.ndest * sizeof *s.dest);
        rows->record = lp_arena_copy(&u->arena, s.record, (size_t)s.nrecord * sizeof *s.record);
        rows->derive = lp_arena_copy(&u->arena, s.derive, (size_t)s.nderive * sizeof *s.derive);
        rows->refusal = lp_arena_copy(&u->arena, s.refusal, (size_t)s.nrefusal * sizeof *s.refusal);
        if (rows->dest == NULL || rows->record == NULL || rows->derive == NULL || rows->refusal == NULL)
            status = lp_fail_memory(u->err);
    }
    lp_release(u->platform.alloc, s.dest);
    lp_release(u->platform.alloc, s.record);
    lp_release(u->platform.alloc, s.derive);
    lp_release(u->platform.alloc, s.refusal);
    lp_strings_free(&s.dest_names);
    return status;
}
