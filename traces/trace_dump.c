/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace as text: one row a line, in canonical order, so that two texts of two traces differ in the lines whose
 * meaning differs. lp_trace_undump reads it back.
 */
#include "traces/dump_text.h"
#include "traces/trace_dump.h"
#include "traces/trace_private.h"
#include "traces/trace_schema.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct dumper {
    const lp_trace *t;
    bool provenance;
    lp_write_fn write;
    void *context;
    lp_text text;
    int64_t records, derives, refusals;
    lp_error *err;
} dumper;

/* Hands over what was collected once it is worth a call. */
static lp_status flush(dumper *d, int64_t least)
{
    if (d->text.failed)
        return lp_fail_memory(d->err);
    if (d->text.bytes < least || d->text.bytes == 0)
        return LP_OK;
    if (d->write(d->context, d->text.data, (size_t)d->text.bytes) != 0)
        return lp_fail(d->err, LP_E_IO, "the text of the trace was not taken");
    d->text.bytes = 0;
    return LP_OK;
}

static void word(dumper *d, const char *text)
{
    lp_text_add(&d->text, text, strlen(text));
}

static void number(dumper *d, const char *before, int64_t value)
{
    word(d, before);
    lp_text_format(&d->text, "%" PRId64, value);
}

static void string(dumper *d, const char *before, const char *text)
{
    word(d, before);
    lp_dump_string(&d->text, text);
}

static const char *dtype_word(unsigned dtype)
{
    return dtype == LP_DTYPE_NONE ? "-" : lp_dtype_name((lp_dtype)dtype);
}

/* ---- head and catalogue ---- */

static lp_status dump_header(dumper *d)
{
    const lp_trace_header *h = lp_trace_header_of(d->t);
    const char *const text[][2] = {{"header loader ", h->loader},
                                   {"header loader_version ", h->loader_version},
                                   {"header configuration ", h->configuration},
                                   {"header target ", h->target}};
    lp_text_format(&d->text, "loadplan-trace %d\n", LP_TRACE_USER_VERSION);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (text[i][1][0] != '\0') {
            string(d, text[i][0], text[i][1]);
            word(d, "\n");
        }
    lp_text_format(&d->text, "layout pp=%d dp=%d tp=%d ep=%d\n", h->layout.pp, h->layout.dp, h->layout.tp,
                   h->layout.expert_parallel);
    return flush(d, 1 << 16);
}

static lp_status dump_catalogue(dumper *d)
{
    const lp_checkpoint *c = lp_trace_checkpoint(d->t);
    for (int32_t f = 0; f < lp_checkpoint_file_count(c); f++) {
        const lp_checkpoint_file *file = lp_checkpoint_file_at(c, f);
        string(d, "file ", file->path);
        if (file->size_bytes >= 0)
            number(d, " bytes=", file->size_bytes);
        if (file->sha256 != NULL)
            string(d, " sha256=", file->sha256);
        word(d, "\n");
    }
    for (int64_t i = 0; i < lp_checkpoint_count(c); i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i);
        string(d, "name ", t->name);
        word(d, " ");
        word(d, lp_dtype_name(t->dtype));
        word(d, " ");
        lp_dump_numbers(&d->text, t->shape, t->ndim);
        if (t->file >= 0)
            number(d, " file=", t->file);
        if (t->file_off >= 0)
            number(d, " off=", t->file_off);
        word(d, "\n");
        LP_TRY(flush(d, 1 << 16));
    }
    return LP_OK;
}

/* ---- maps of several boxes, which rows refer to by the start of their digest ---- */

typedef struct named_map {
    uint64_t id;
    const lp_map *map;
} named_map;

typedef struct map_list {
    named_map *item;
    int64_t count, capacity;
} map_list;

static int compare_maps(const void *a, const void *b)
{
    const uint64_t x = ((const named_map *)a)->id, y = ((const named_map *)b)->id;
    return (x > y) - (x < y);
}

static lp_status list_map(dumper *d, map_list *list, const lp_map *map)
{
    if (map == NULL || map->nbox == 1)
        return LP_OK;
    if (!lp_grow(d->t->platform.alloc, (void **)&list->item, &list->capacity, list->count + 1, sizeof *list->item))
        return lp_fail_memory(d->err);
    list->item[list->count++] = (named_map){.map = map};
    return LP_OK;
}

static int compare_pointers(const void *a, const void *b)
{
    const uintptr_t x = (uintptr_t)((const named_map *)a)->map, y = (uintptr_t)((const named_map *)b)->map;
    return (x > y) - (x < y);
}

/* Interned maps come many times: one each is left, with its id. */
static void unique_maps(map_list *list)
{
    int64_t kept = 0;
    qsort(list->item, (size_t)list->count, sizeof *list->item, compare_pointers);
    for (int64_t i = 0; i < list->count; i++)
        if (kept == 0 || list->item[kept - 1].map != list->item[i].map)
            list->item[kept++] = list->item[i];
    list->count = kept;
    for (int64_t i = 0; i < kept; i++)
        list->item[i].id = lp_dump_map_id(list->item[i].map);
    qsort(list->item, (size_t)kept, sizeof *list->item, compare_maps);
}

static lp_status collect_maps(dumper *d, map_list *list)
{
    for (int32_t s = 0; s < lp_trace_scope_count(d->t); s++) {
        const lp_rows *rows;
        LP_TRY(lp_trace_rows(d->t, s, &rows, d->err));
        for (uint32_t i = 0; i < rows->nrecord; i++)
            LP_TRY(list_map(d, list, rows->record[i].map));
        for (uint32_t i = 0; i < rows->nderive; i++) {
            LP_TRY(list_map(d, list, rows->derive[i].map));
            for (uint32_t n = 0; n < rows->derive[i].ninput; n++)
                LP_TRY(list_map(d, list, rows->derive[i].input[n].map));
        }
        for (uint32_t i = 0; i < rows->nrefusal; i++)
            LP_TRY(list_map(d, list, rows->refusal[i].map));
    }
    return LP_OK;
}

static lp_status dump_maps(dumper *d)
{
    lp_status status;
    map_list list = {0};
    LP_TRY_GOTO(collect_maps(d, &list), release);
    if (list.count > 0)
        unique_maps(&list);
    for (int64_t i = 0; i < list.count; i++) {
        if (i > 0 && list.item[i].id == list.item[i - 1].id) {
            if (lp_map_equal(list.item[i].map, list.item[i - 1].map))
                continue;
            status = lp_fail(d->err, LP_E_LIMIT, "two maps of the trace share the name @%016" PRIx64, list.item[i].id);
            goto release;
        }
        lp_text_format(&d->text, "map @%016" PRIx64 " ", list.item[i].id);
        lp_dump_map_boxes(&d->text, list.item[i].map);
        word(d, "\n");
        LP_TRY_GOTO(flush(d, 1 << 16), release);
    }
release:
    lp_release(d->t->platform.alloc, list.item);
    return status;
}

/* ---- rows ---- */

static void dump_provenance(dumper *d, uint32_t index)
{
    const lp_provenance *p = d->provenance ? lp_trace_provenance(d->t, index) : NULL;
    if (p != NULL) {
        string(d, " at ", p->file);
        number(d, ":", p->line);
        if (p->chain[0] != '\0')
            string(d, " via ", p->chain);
        if (p->flags != 0) {
            word(d, " flags=");
            lp_dump_flags(&d->text, lp_prov_flag_names, LP_PROV_FLAG_NAMES, p->flags);
        }
    }
    word(d, "\n");
}

static void dump_map_of(dumper *d, const char *before, const lp_map *map)
{
    word(d, before);
    lp_dump_map_ref(&d->text, map);
}

static void dump_destination(dumper *d, const lp_destination *dest)
{
    int64_t compact[LP_DEST_DIMS_MAX];
    string(d, "dest ", dest->name);
    word(d, " ");
    word(d, lp_dtype_name(dest->dtype));
    word(d, " ");
    lp_dump_numbers(&d->text, dest->shape, dest->ndim);
    if (!lp_destination_strides(dest->dtype, dest->ndim, dest->shape, compact) ||
        (dest->ndim > 0 && memcmp(compact, dest->stride, (size_t)dest->ndim * sizeof *compact) != 0)) {
        word(d, " stride=");
        lp_dump_numbers(&d->text, dest->stride, dest->ndim);
    }
    if (strcmp(dest->storage, dest->name) != 0)
        string(d, " storage=", dest->storage);
    number(d, " bytes=", dest->storage_bytes);
    if (dest->offset != 0)
        number(d, " off=", dest->offset);
    if (dest->layout[0] != '\0')
        string(d, " layout=", dest->layout);
    if (dest->layout_version != 0)
        number(d, " version=", dest->layout_version);
    string(d, " group=", dest->group);
    if (dest->flags != 0) {
        word(d, " flags=");
        lp_dump_flags(&d->text, lp_dest_flag_names, LP_DEST_FLAG_NAMES, dest->flags);
    }
    if (dest->dummy_bits != 0)
        lp_text_format(&d->text, " dummy=0x%" PRIx64, dest->dummy_bits);
    if (dest->slot_dim != -1 || dest->slot_count != 0)
        lp_text_format(&d->text, " slots=%" PRId32 ":%" PRId32, dest->slot_dim, dest->slot_count);
    word(d, "\n");
}

static void dump_record(dumper *d, const lp_rows *rows, const lp_record *r)
{
    word(d, lp_kind_name((lp_kind)r->kind));
    if (r->name == LP_NAME_BEGIN)
        word(d, " begin");
    else
        string(d, " ", lp_checkpoint_at(d->t->checkpoint, r->name)->name);
    string(d, " -> ", rows->dest[r->dest].name);
    if (r->src_dtype != LP_DTYPE_NONE || r->dst_dtype != LP_DTYPE_NONE) {
        word(d, " ");
        word(d, dtype_word(r->src_dtype));
        word(d, ">");
        word(d, dtype_word(r->dst_dtype));
    }
    if (r->kind == LP_KIND_FILL)
        lp_text_format(&d->text, " value=0x%" PRIx64, r->fill_bits);
    else
        number(d, " src=", r->src_off);
    number(d, " dst=", r->dst_off);
    dump_map_of(d, " map=", r->map);
    if (r->seq != 0)
        number(d, " seq=", r->seq);
    dump_provenance(d, r->provenance);
}

static void dump_node(lp_text *out, const lp_node *node)
{
    lp_text_format(out, "%s %s %" PRId64 " %" PRIu32 ",%" PRIu32 ",%" PRIu32 " 0x%" PRIx64, lp_op_name((lp_op)node->op),
                   dtype_word(node->dtype), node->count, node->arg[0], node->arg[1], node->arg[2], node->bits);
}

void lp_dump_inputs(lp_text *out, const lp_trace *t, const lp_rows *rows, const lp_derive *derive)
{
    for (uint32_t n = 0; n < derive->ninput; n++) {
        const lp_derive_input *input = &derive->input[n];
        lp_text_format(out, "%s%s ", n > 0 ? "; " : "", input->staged ? "name" : "dest");
        lp_dump_string(out, input->staged ? lp_checkpoint_at(t->checkpoint, input->index)->name
                                          : rows->dest[input->index].name);
        lp_text_format(out, " %s %" PRId64 " ", dtype_word(input->dtype), input->count);
        lp_dump_map_ref(out, input->map);
    }
}

void lp_dump_nodes(lp_text *out, const lp_derive *derive)
{
    for (uint32_t n = 0; n < derive->nnode; n++) {
        lp_text_format(out, "%s", n > 0 ? "; " : "");
        dump_node(out, &derive->node[n]);
    }
}

static void dump_derive(dumper *d, const lp_rows *rows, const lp_derive *derive)
{
    if (derive->dest == LP_NONE)
        word(d, "derive check");
    else
        string(d, "derive ", rows->dest[derive->dest].name);
    if (derive->map != NULL)
        dump_map_of(d, " map=", derive->map);
    if (derive->error_text[0] != '\0')
        string(d, " error=", derive->error_text);
    word(d, " inputs=(");
    lp_dump_inputs(&d->text, d->t, rows, derive);
    word(d, ") nodes=(");
    lp_dump_nodes(&d->text, derive);
    word(d, ")");
    dump_provenance(d, derive->provenance);
}

static void dump_refusal(dumper *d, const lp_rows *rows, const lp_refusal *r)
{
    string(d, "refuse ", lp_checkpoint_at(d->t->checkpoint, r->name)->name);
    if (r->dest != LP_NONE)
        string(d, " -> ", rows->dest[r->dest].name);
    if (r->map != NULL)
        dump_map_of(d, " map=", r->map);
    string(d, " op=", r->operation);
    string(d, " reason=", r->reason);
    dump_provenance(d, r->provenance);
}

static lp_status dump_scope(dumper *d, int32_t s)
{
    const lp_rows *rows;
    char hex[65];
    LP_TRY(lp_trace_rows(d->t, s, &rows, d->err));
    lp_format_hex(hex, rows->digest, sizeof rows->digest);
    lp_text_format(&d->text, "scope pp=%d dp=%d tp=%d\n# rank %d, plan digest %s\n", rows->scope.pp_rank,
                   rows->scope.dp_rank, rows->scope.tp_rank, lp_scope_rank(&rows->scope), hex);
    for (uint32_t i = 0; i < rows->ndest; i++) {
        dump_destination(d, &rows->dest[i]);
        LP_TRY(flush(d, 1 << 16));
    }
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        dump_record(d, rows, &rows->record[i]);
        LP_TRY(flush(d, 1 << 16));
    }
    for (uint32_t i = 0; i < rows->nderive; i++) {
        dump_derive(d, rows, &rows->derive[i]);
        LP_TRY(flush(d, 1 << 16));
    }
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        dump_refusal(d, rows, &rows->refusal[i]);
        LP_TRY(flush(d, 1 << 16));
    }
    d->records += rows->nrecord;
    d->derives += rows->nderive;
    d->refusals += rows->nrefusal;
    return LP_OK;
}

static lp_status dump_all(dumper *d)
{
    LP_TRY(dump_header(d));
    LP_TRY(dump_catalogue(d));
    LP_TRY(dump_maps(d));
    for (int32_t s = 0; s < lp_trace_scope_count(d->t); s++)
        LP_TRY(dump_scope(d, s));
    lp_text_format(
        &d->text,
        "END names=%" PRId64 " scopes=%" PRId32 " records=%" PRId64 " derives=%" PRId64 " refusals=%" PRId64 "\n",
        lp_checkpoint_count(d->t->checkpoint), lp_trace_scope_count(d->t), d->records, d->derives, d->refusals);
    return flush(d, 0);
}

lp_status lp_trace_dump_with(const lp_trace *t, bool provenance, lp_write_fn write, void *context, lp_error *err)
{
    if (!t->sealed)
        return lp_fail(err, LP_E_MISUSE, "a trace is dumped after lp_trace_seal only");
    dumper d = {.t = t, .provenance = provenance, .write = write, .context = context, .err = err};
    lp_text_init(&d.text, t->platform.alloc);
    const lp_status status = dump_all(&d);
    lp_text_free(&d.text);
    return status;
}

lp_status lp_trace_dump(const lp_trace *t, lp_write_fn write, void *context, lp_error *err)
{
    return lp_trace_dump_with(t, true, write, context, err);
}
