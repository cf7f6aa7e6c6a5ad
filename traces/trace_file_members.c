/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the records of all scopes. Records of a scope that say the same of names and destinations which differ only
 * in indices form a member of a family; a member is a handful of integer columns. A member that equals an earlier one
 * of its family but for a constant in each column (another rank of the same layout) stores those constants only.
 * Records whose family is too small in this scope share one member without a family, with all their fields as columns.
 */
#include "traces/trace_file.h"

#include "traces/row_codec.h"

/* The first five of every member; the others only of a member without a family. */
enum { C_NAME, C_DEST, C_SRC_OFF, C_DST_OFF, C_SEQ, C_SHARED, C_KIND = C_SHARED, C_DTYPES, C_FILL, C_MAP, C_ALL };

typedef struct family {
    uint32_t name_template, dest_template, map; /* map: pooled number */
    uint8_t kind, src_dtype, dst_dtype;
    uint64_t fill_bits;
    uint32_t part;        /* of a family that a test tears apart, else 0 */
    int64_t id;           /* in the file, -1 before its first member */
    const lp_map *pooled; /* the map itself */
    int64_t here;         /* records in the scope at hand */
    int64_t start;        /* of its records in `order`, in the scope at hand */
    int64_t base, base_records;
    int64_t *base_column; /* C_ALL or C_SHARED columns of base_records values */
} family;

struct lp_member_writer {
    lp_file_writer *file;
    const lp_alloc *alloc;
    lp_strings templates;
    uint32_t *name_template; /* by name, LP_NONE before its first use */
    family *families;
    int64_t family_count, family_capacity;
    uint32_t *table; /* family + 1, open addressing */
    int64_t table_size;
    int64_t stored_families, members;
    family mixed;       /* the member without a family; only its base is used */
    const lp_map **map; /* of the file, by number */
    int64_t map_count, map_capacity;
    uint32_t *map_number; /* by pooled number, LP_NONE before its first use */
    int64_t map_number_capacity;
    /* scratch of one scope */
    uint32_t *dest_template, *of_record, *order;
    uint32_t *touched; /* families with records in the scope, in order of appearance */
    int64_t touched_count, touched_capacity;
};

lp_status lp_member_writer_new(lp_member_writer **out, lp_file_writer *file, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(file->trace->checkpoint);
    lp_member_writer *m = lp_allocate_zero(file->alloc, sizeof *m);
    if (m == NULL)
        return lp_fail_memory(err);
    m->file = file;
    m->alloc = file->alloc;
    m->mixed.id = m->mixed.base = -1;
    lp_strings_init(&m->templates, m->alloc);
    m->name_template = lp_allocate(m->alloc, ((size_t)names + 1) * sizeof *m->name_template);
    if (m->name_template == NULL) {
        lp_member_writer_free(m);
        return lp_fail_memory(err);
    }
    memset(m->name_template, 0xff, ((size_t)names + 1) * sizeof *m->name_template);
    *out = m;
    return LP_OK;
}

static void free_scope_scratch(lp_member_writer *m)
{
    lp_release(m->alloc, m->dest_template);
    lp_release(m->alloc, m->of_record);
    lp_release(m->alloc, m->order);
    m->dest_template = m->of_record = m->order = NULL;
}

void lp_member_writer_free(lp_member_writer *m)
{
    if (m == NULL)
        return;
    free_scope_scratch(m);
    for (int64_t f = 0; f < m->family_count; f++)
        lp_release(m->alloc, m->families[f].base_column);
    lp_release(m->alloc, m->mixed.base_column);
    lp_release(m->alloc, m->families);
    lp_release(m->alloc, m->table);
    lp_release(m->alloc, m->touched);
    lp_release(m->alloc, m->map);
    lp_release(m->alloc, m->map_number);
    lp_release(m->alloc, m->name_template);
    lp_strings_free(&m->templates);
    lp_release(m->alloc, m);
}

/* ---- families ---- */

static lp_status template_of(lp_member_writer *m, const char *name, uint32_t *out, lp_error *err)
{
    char small[512], *text = small;
    size_t bytes = lp_family_template(name, small, sizeof small);
    if (bytes >= sizeof small) {
        text = lp_allocate(m->alloc, bytes + 1);
        if (text == NULL)
            return lp_fail_memory(err);
        bytes = lp_family_template(name, text, bytes + 1);
    }
    const int64_t number = lp_strings_add(&m->templates, text, bytes);
    if (text != small)
        lp_release(m->alloc, text);
    if (number < 0)
        return lp_fail_memory(err);
    *out = (uint32_t)number;
    return LP_OK;
}

static uint64_t hash_family(const family *f)
{
    const uint64_t said[4] = {(uint64_t)f->name_template << 32 | f->dest_template, (uint64_t)f->map << 32 | f->part,
                              f->fill_bits,
                              (uint64_t)f->kind << 16 | (uint64_t)f->src_dtype << 8 | (uint64_t)f->dst_dtype};
    return lp_table_hash(said, sizeof said);
}

static bool same_family(const family *a, const family *b)
{
    return a->name_template == b->name_template && a->dest_template == b->dest_template && a->map == b->map &&
           a->kind == b->kind && a->src_dtype == b->src_dtype && a->dst_dtype == b->dst_dtype &&
           a->fill_bits == b->fill_bits && a->part == b->part;
}

static bool enlarge_table(lp_member_writer *m)
{
    const int64_t size = m->table_size == 0 ? 256 : m->table_size * 4;
    uint32_t *table = lp_allocate_zero(m->alloc, (size_t)size * sizeof *table);
    if (table == NULL)
        return false;
    for (int64_t f = 0; f < m->family_count; f++) {
        uint64_t i = hash_family(&m->families[f]) & (uint64_t)(size - 1);
        while (table[i] != 0)
            i = (i + 1) & (uint64_t)(size - 1);
        table[i] = (uint32_t)f + 1;
    }
    lp_release(m->alloc, m->table);
    m->table = table;
    m->table_size = size;
    return true;
}

/* Which part of its family a record goes to, when a test regroups: three parts, by chance. */
static uint32_t part_of_family(const lp_member_writer *m, uint32_t record)
{
    const uint64_t draw[] = {m->file->regroup, record};
    return m->file->regroup == 0 ? 0 : (uint32_t)(lp_hash(draw, sizeof draw) % 3);
}

static lp_status find_family(lp_member_writer *m, const family *key, uint32_t *out, lp_error *err)
{
    if (m->family_count * 2 >= m->table_size && !enlarge_table(m))
        return lp_fail_memory(err);
    const uint64_t mask = (uint64_t)m->table_size - 1;
    uint64_t i = hash_family(key) & mask;
    for (; m->table[i] != 0; i = (i + 1) & mask)
        if (same_family(&m->families[m->table[i] - 1], key)) {
            *out = m->table[i] - 1;
            return LP_OK;
        }
    if (!lp_grow(m->alloc, (void **)&m->families, &m->family_capacity, m->family_count + 1, sizeof *m->families))
        return lp_fail_memory(err);
    *out = (uint32_t)m->family_count;
    m->table[i] = *out + 1;
    m->families[m->family_count] = *key;
    m->families[m->family_count].id = m->families[m->family_count].base = -1;
    m->family_count++;
    return LP_OK;
}

/* ---- maps ---- */

/* The file's number of a pooled map: maps are numbered in the order in which the file first needs them. */
static lp_status number_map(lp_member_writer *m, const lp_map *pooled, int64_t *out, lp_error *err)
{
    const uint32_t number = lp_pooled_number(pooled);
    const int64_t before = m->map_number_capacity;
    if (!lp_grow(m->alloc, (void **)&m->map_number, &m->map_number_capacity, (int64_t)number + 1,
                 sizeof *m->map_number))
        return lp_fail_memory(err);
    if (m->map_number_capacity > before)
        memset(m->map_number + before, 0xff, (size_t)(m->map_number_capacity - before) * sizeof *m->map_number);
    if (m->map_number[number] == LP_NONE) {
        if (!lp_grow(m->alloc, (void **)&m->map, &m->map_capacity, m->map_count + 1, sizeof *m->map))
            return lp_fail_memory(err);
        m->map_number[number] = (uint32_t)m->map_count;
        m->map[m->map_count++] = pooled;
    }
    *out = m->map_number[number];
    return LP_OK;
}

static lp_status write_maps(lp_member_writer *m, lp_error *err)
{
    for (int64_t first = 0; first < m->map_count; first += LP_MAP_FRAME_MAPS) {
        const int64_t n = m->map_count - first < LP_MAP_FRAME_MAPS ? m->map_count - first : LP_MAP_FRAME_MAPS;
        for (int64_t i = 0; i < n; i++)
            lp_pack_map(&m->file->raw, m->map[first + i]);
        LP_TRY(lp_file_insert_frame(m->file, "maps", err, first, n));
    }
    return LP_OK;
}

/* ---- members ---- */

static int64_t field(const lp_record *r, int column)
{
    switch (column) {
    case C_NAME:
        return r->name == LP_NAME_BEGIN ? -1 : (int64_t)r->name;
    case C_DEST:
        return r->dest;
    case C_SRC_OFF:
        return r->src_off;
    case C_DST_OFF:
        return r->dst_off;
    case C_SEQ:
        return r->seq;
    case C_KIND:
        return r->kind;
    case C_DTYPES:
        return r->src_dtype * 256 + r->dst_dtype;
    default:
        return (int64_t)r->fill_bits;
    }
}

/* True, with the differences, when every column is that of the base plus a constant. */
static bool is_shifted(const family *f, const int64_t *column, int columns, int64_t n, int64_t *shift)
{
    if (f->base < 0 || f->base_records != n)
        return false;
    for (int c = 0; c < columns; c++) {
        const int64_t *a = column + c * n, *b = f->base_column + c * n;
        shift[c] = (int64_t)((uint64_t)a[0] - (uint64_t)b[0]);
        for (int64_t i = 1; i < n; i++)
            if ((uint64_t)a[i] - (uint64_t)b[i] != (uint64_t)shift[c])
                return false;
    }
    return true;
}

static lp_status store_member(lp_member_writer *m, family *f, int64_t scope, int64_t *column, int columns, int64_t n,
                              bool *kept, lp_error *err)
{
    lp_file_writer *w = m->file;
    int64_t shift[C_ALL];
    const int64_t id = m->members++;
    *kept = false;
    if (is_shifted(f, column, columns, n, shift)) {
        for (int c = 0; c < columns; c++)
            lp_pack_i64(&w->raw, shift[c]);
        if (w->raw.failed)
            return lp_fail_memory(err);
        LP_TRY(lp_file_insert(w, "members", err, "iiNiib", id, scope, f->id, n, f->base, (const void *)w->raw.data,
                              w->raw.bytes));
        w->raw.bytes = 0;
        return LP_OK;
    }
    for (int c = 0; c < columns; c++)
        lp_pack_column(&w->raw, column + c * n, n);
    LP_TRY(lp_file_compress(w, err));
    LP_TRY(lp_file_insert(w, "members", err, "iiNiNb", id, scope, f->id, n, INT64_C(-1), (const void *)w->frame.data,
                          w->frame.bytes));
    lp_release(m->alloc, f->base_column);
    f->base = id;
    f->base_records = n;
    f->base_column = column;
    *kept = true;
    return LP_OK;
}

/* Writes the records order[0 .. n-1] of a scope; families == NULL: those without one. */
static lp_status write_member(lp_member_writer *m, family *f, int64_t scope, const lp_rows *rows, const uint32_t *order,
                              int64_t n, lp_error *err)
{
    lp_status status = LP_OK;
    const bool is_mixed = f == &m->mixed;
    const int columns = is_mixed ? C_ALL : C_SHARED;
    bool kept = false;
    int64_t *column = lp_allocate(m->alloc, (size_t)columns * (size_t)n * sizeof *column);
    if (column == NULL)
        return lp_fail_memory(err);
    for (int c = 0; c < (is_mixed ? C_MAP : C_SHARED); c++)
        for (int64_t i = 0; i < n; i++)
            column[c * n + i] = field(&rows->record[order[i]], c);
    for (int64_t i = 0; is_mixed && i < n; i++)
        LP_TRY_GOTO(number_map(m, rows->record[order[i]].map, &column[C_MAP * n + i], err), release);
    status = store_member(m, f, scope, column, columns, n, &kept, err);
release:
    if (!kept)
        lp_release(m->alloc, column);
    return status;
}

static lp_status store_family(lp_member_writer *m, family *f, lp_error *err)
{
    int64_t map;
    LP_TRY(number_map(m, f->pooled, &map, err));
    f->id = m->stored_families++;
    return lp_file_insert(m->file, "families", err, "ittiiiii", f->id, m->templates.text[f->name_template],
                          m->templates.text[f->dest_template], (int64_t)f->kind, (int64_t)f->src_dtype,
                          (int64_t)f->dst_dtype, (int64_t)f->fill_bits, map);
}

/* Finds the family of every record and counts. */
static lp_status classify(lp_member_writer *m, const lp_rows *rows, lp_error *err)
{
    const lp_checkpoint *c = m->file->trace->checkpoint;
    for (uint32_t d = 0; d < rows->ndest; d++)
        LP_TRY(template_of(m, rows->dest[d].name, &m->dest_template[d], err));
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        /* The slot behind the last name is that of fills at begin. */
        const int64_t slot = r->name == LP_NAME_BEGIN ? lp_checkpoint_count(c) : r->name;
        if (m->name_template[slot] == LP_NONE)
            LP_TRY(template_of(m, r->name == LP_NAME_BEGIN ? "" : lp_checkpoint_at(c, slot)->name,
                               &m->name_template[slot], err));
        const family key = {.name_template = m->name_template[slot],
                            .dest_template = m->dest_template[r->dest],
                            .map = lp_pooled_number(r->map),
                            .kind = r->kind,
                            .src_dtype = r->src_dtype,
                            .dst_dtype = r->dst_dtype,
                            .fill_bits = r->fill_bits,
                            .part = part_of_family(m, i),
                            .pooled = r->map};
        LP_TRY(find_family(m, &key, &m->of_record[i], err));
        if (m->families[m->of_record[i]].here++ == 0) {
            if (!lp_grow(m->alloc, (void **)&m->touched, &m->touched_capacity, m->touched_count + 1,
                         sizeof *m->touched))
                return lp_fail_memory(err);
            m->touched[m->touched_count++] = m->of_record[i];
        }
    }
    return LP_OK;
}

lp_status lp_member_writer_add(lp_member_writer *m, int64_t scope, const lp_rows *rows, lp_error *err)
{
    lp_status status = LP_OK;
    const int64_t n = rows->nrecord;
    if (n == 0)
        return LP_OK;
    m->touched_count = 0;
    m->dest_template = lp_allocate(m->alloc, rows->ndest * sizeof *m->dest_template);
    m->of_record = lp_allocate(m->alloc, (size_t)n * sizeof *m->of_record);
    m->order = lp_allocate(m->alloc, (size_t)n * sizeof *m->order);
    if (m->dest_template == NULL || m->of_record == NULL || m->order == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    LP_TRY_GOTO(classify(m, rows, err), release);

    /* Large families one behind the other in order of appearance, everything else behind them. */
    int64_t at = 0;
    for (int64_t k = 0; k < m->touched_count; k++) {
        family *f = &m->families[m->touched[k]];
        f->start = f->here >= LP_FAMILY_RECORDS_MIN ? at : -1;
        at += f->start >= 0 ? f->here : 0;
    }
    const int64_t mixed_start = at;
    for (int64_t i = 0; i < n; i++) {
        family *f = &m->families[m->of_record[i]];
        m->order[f->start >= 0 ? f->start++ : at++] = (uint32_t)i;
    }
    for (int64_t k = 0; k < m->touched_count; k++) {
        family *f = &m->families[m->touched[k]];
        if (f->start < 0)
            continue;
        if (f->id < 0)
            LP_TRY_GOTO(store_family(m, f, err), release);
        LP_TRY_GOTO(write_member(m, f, scope, rows, m->order + f->start - f->here, f->here, err), release);
    }
    if (at > mixed_start)
        LP_TRY_GOTO(write_member(m, &m->mixed, scope, rows, m->order + mixed_start, at - mixed_start, err), release);
release:
    for (int64_t k = 0; k < m->touched_count; k++)
        m->families[m->touched[k]].here = 0;
    free_scope_scratch(m);
    return status;
}

lp_status lp_member_writer_end(lp_member_writer *m, int64_t *maps, lp_error *err)
{
    *maps = m->map_count;
    return write_maps(m, err);
}
