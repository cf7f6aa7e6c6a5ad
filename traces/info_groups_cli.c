/* SPDX-License-Identifier: Apache-2.0 */
/* Grouping and naming for `info`: see info_groups.h. */
#include "traces/info_groups.h"

#include <inttypes.h>
#include <stdlib.h>

static int compare_sizes(int64_t bytes_a, int64_t bytes_b)
{
    return bytes_a > bytes_b ? -1 : bytes_a < bytes_b;
}

static int compare_groups(const void *a, const void *b)
{
    const lp_info_group *x = a, *y = b;
    int order = compare_sizes(x->bytes, y->bytes);
    if (order == 0)
        order = strcmp(x->family, y->family);
    return order != 0 ? order : strcmp(x->first->name, y->first->name);
}

/* Family, dtype and shape as bytes; the family stands first and ends with a NUL. */
static bool make_key(lp_text *key, const lp_checkpoint_tensor *t)
{
    char small[512];
    key->bytes = 0;
    const size_t length = lp_family_template(t->name, small, sizeof small);
    if (length < sizeof small) {
        lp_text_add(key, small, length + 1);
    } else {
        char *large = malloc(length + 1);
        if (large == NULL)
            return false;
        lp_family_template(t->name, large, length + 1);
        lp_text_add(key, large, length + 1);
        free(large);
    }
    const unsigned char dtype = (unsigned char)t->dtype;
    lp_text_add(key, (const char *)&dtype, 1);
    lp_text_add(key, (const char *)t->shape, (size_t)t->ndim * sizeof *t->shape);
    return !key->failed;
}

bool lp_info_groups_make(lp_info_groups *g, const lp_checkpoint *c)
{
    lp_text key;
    lp_text_init(&key, NULL);
    *g = (lp_info_groups){0};
    lp_strings_init(&g->keys, NULL);
    const int64_t count = lp_checkpoint_count(c);
    bool is_good = true;
    for (int64_t i = 0; i < count && is_good; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i);
        is_good = make_key(&key, t);
        const int64_t n = is_good ? lp_strings_add(&g->keys, key.data, (size_t)key.bytes) : -1;
        is_good = n >= 0 && lp_grow(NULL, (void **)&g->item, &g->capacity, n + 1, sizeof *g->item);
        if (!is_good)
            break;
        if (n == g->count) {
            g->item[n] = (lp_info_group){.family = g->keys.text[n], .first = t};
            g->count++;
        }
        g->item[n].tensors++;
        g->item[n].bytes += t->bytes;
    }
    lp_text_free(&key);
    if (!is_good)
        lp_info_groups_free(g);
    else if (g->count > 1)
        qsort(g->item, (size_t)g->count, sizeof *g->item, compare_groups);
    return is_good;
}

void lp_info_groups_free(lp_info_groups *g)
{
    lp_strings_free(&g->keys);
    lp_release(NULL, g->item);
    g->item = NULL;
}

static int compare_dtypes(const void *a, const void *b)
{
    const lp_info_dtype *x = a, *y = b;
    const int order = compare_sizes(x->bytes, y->bytes);
    return order != 0 ? order : (int)x->dtype - (int)y->dtype;
}

int lp_info_dtypes(lp_info_dtype out[LP_DTYPE_COUNT], const lp_checkpoint *c)
{
    lp_info_dtype all[LP_DTYPE_COUNT] = {0};
    const int64_t count = lp_checkpoint_count(c);
    for (int64_t i = 0; i < count; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i);
        all[t->dtype].tensors++;
        all[t->dtype].bytes += t->bytes;
    }
    int found = 0;
    for (int d = 0; d < LP_DTYPE_COUNT; d++)
        if (all[d].tensors > 0) {
            all[d].dtype = (lp_dtype)d;
            out[found++] = all[d];
        }
    if (found > 1)
        qsort(out, (size_t)found, sizeof out[0], compare_dtypes);
    return found;
}

const char *lp_info_shape(char buffer[192], const lp_checkpoint_tensor *t)
{
    enum { SHOWN = 8 };
    size_t n = 0;
    buffer[n++] = '[';
    for (int32_t d = 0; d < t->ndim && d < SHOWN; d++)
        n += (size_t)snprintf(buffer + n, 192 - n, "%s%" PRId64, d > 0 ? ", " : "", t->shape[d]);
    if (t->ndim > SHOWN)
        snprintf(buffer + n, 192 - n, ", ...] of rank %d", (int)t->ndim);
    else
        snprintf(buffer + n, 192 - n, "]");
    return buffer;
}

json_t *lp_info_shape_json(const lp_checkpoint_tensor *t)
{
    json_t *shape = json_array();
    for (int32_t d = 0; d < t->ndim; d++)
        json_array_append_new(shape, json_integer(t->shape[d]));
    return shape;
}

/* Allocated with malloc; NULL when out of memory. */
static char *true_name(const char *name, size_t *bytes)
{
    const size_t length = strlen(name);
    char *text = malloc(length + 1);
    size_t n = 0;
    for (size_t i = 0; text != NULL && i < length; i++) {
        if ((unsigned char)name[i] == 0xc0) {
            text[n++] = '\0';
            i++;
        } else {
            text[n++] = name[i];
        }
    }
    *bytes = n;
    return text;
}

const char *lp_info_name(char *buffer, size_t buffer_bytes, const char *name)
{
    size_t bytes;
    char *text = true_name(name, &bytes);
    lp_sanitise(buffer, buffer_bytes, text != NULL ? text : "?", text != NULL ? bytes : 1);
    free(text);
    return buffer;
}

json_t *lp_info_name_json(const char *name)
{
    size_t bytes;
    char *text = true_name(name, &bytes);
    json_t *value = text != NULL ? json_stringn(text, bytes) : NULL;
    free(text);
    return value;
}

const char *lp_info_count(int64_t count, const char *singular)
{
    static char ring[8][64];
    static int next;
    char *buffer = ring[next++ % 8], number[32];
    snprintf(buffer, sizeof ring[0], "%s %s%s", lp_format_count(number, count), singular, count == 1 ? "" : "s");
    return buffer;
}

void lp_info_print_tensors(lp_cli *cli, const lp_checkpoint *c)
{
    char name[1024], shape[192];
    const int64_t count = lp_checkpoint_count(c);
    for (int64_t i = 0; i < count; i++) {
        const lp_checkpoint_tensor *t = lp_checkpoint_at(c, i);
        fprintf(cli->out, "%s %s %s %" PRId64, lp_info_name(name, sizeof name, t->name), lp_dtype_name(t->dtype),
                lp_info_shape(shape, t), t->bytes);
        if (t->file >= 0)
            fprintf(cli->out, " %s@%" PRId64, lp_cli_clean(lp_checkpoint_file_at(c, t->file)->path), t->file_off);
        fputc('\n', cli->out);
    }
}

json_t *lp_info_tensor_json(const void *checkpoint, int64_t i)
{
    const lp_checkpoint_tensor *t = lp_checkpoint_at(checkpoint, i);
    json_t *row = json_pack("{s:o, s:s, s:o, s:I}", "name", lp_info_name_json(t->name), "dtype",
                            lp_dtype_name(t->dtype), "shape", lp_info_shape_json(t), "bytes", (json_int_t)t->bytes);
    if (row != NULL && t->file >= 0) {
        json_object_set_new(row, "file", json_integer(t->file));
        json_object_set_new(row, "file_off", json_integer(t->file_off));
    }
    return row;
}
