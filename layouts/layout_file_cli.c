/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of `loadplan layout --apply`.
 *
 * The tensor in the layout has the layout's name and its dimensions in the order of memory, since safetensors knows no
 * strides; what is lost by that stands in the metadata: layout and version, logical shape, strides in bytes, and which
 * checkpoint tensors it was made of.
 */
#include "layouts/layout_cli.h"

#include <fcntl.h>
#include <stdlib.h>

lp_status lp_layout_open_files(lp_layout_files *f, lp_cli *cli, const char *in, const char *out, bool overwrite,
                               lp_error *err)
{
    *f = (lp_layout_files){.platform = lp_platform_resolve(lp_cli_platform(cli))};
    LP_TRY(lp_checkpoint_open_with(&f->ck, in, &f->platform, err));
    return lp_outfile_open(&f->file, &f->platform, out, overwrite, err);
}

int lp_layout_close_files(lp_layout_files *f, lp_cli *cli, const char *name, bool inverse, lp_status status,
                          lp_error *err)
{
    if (status == LP_OK)
        status = lp_outfile_commit(&f->file, err);
    else
        lp_outfile_abandon(&f->file);
    lp_checkpoint_close(f->ck);
    if (status != LP_OK)
        return lp_cli_fail(cli, err);
    lp_cli_summary(cli, "%s: %s '%s'", name, inverse ? "undone into" : "applied into",
                   lp_cli_clean(lp_cli_text(cli, "output", "")));
    return LP_EXIT_DONE;
}

lp_status lp_layout_read_tensor(const lp_checkpoint *ck, const lp_platform *platform, const lp_checkpoint_tensor *t,
                                unsigned char **data, lp_error *err)
{
    if (t->file < 0)
        return lp_fail_at(err, LP_E_FORMAT, t->name, -1, "tensor '%s' has no bytes: the file is only a catalogue",
                          t->name);
    const char *const path = lp_checkpoint_file_at(ck, t->file)->path;
    unsigned char *const buffer = lp_allocate(platform->alloc, (size_t)t->bytes);
    if (buffer == NULL)
        return lp_fail_memory(err);
    lp_status status = LP_OK;
    const int fd = platform->io->open(platform->io->context, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        status = lp_fail_errno(err, fd, "open", path);
    else
        status = lp_read_exact(platform->io, fd, path, buffer, t->bytes, t->file_off, err);
    if (fd >= 0)
        platform->io->close(platform->io->context, fd);
    if (status == LP_OK)
        *data = buffer;
    else
        lp_release(platform->alloc, buffer);
    return status;
}

const char *lp_layout_metadata(const lp_checkpoint *ck, const char *wanted)
{
    for (int64_t i = 0; i < lp_checkpoint_metadata_count(ck); i++) {
        const char *value;
        if (strcmp(lp_checkpoint_metadata_at(ck, i, &value), wanted) == 0)
            return value;
    }
    return NULL;
}

json_t *lp_layout_tensor_entry(lp_dtype dtype, int64_t ndim, const int64_t *shape, int64_t begin, int64_t end)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < ndim && list != NULL; i++)
        if (json_array_append_new(list, json_integer(shape[i])) != 0) {
            json_decref(list);
            list = NULL;
        }
    return list == NULL ? NULL
                        : json_pack("{s:s, s:o, s:[I, I]}", "dtype", lp_dtype_name(dtype), "shape", list,
                                    "data_offsets", (json_int_t)begin, (json_int_t)end);
}

lp_status lp_layout_write_header(lp_outfile *file, json_t *header, lp_error *err)
{
    /* Measured first: json_dumps may leave out a key where it finds no memory to grow (jansson 2.14). */
    const size_t bytes = json_dumpb(header, NULL, 0, JSON_COMPACT);
    char *const text = bytes == 0 ? NULL : malloc(bytes);
    if (text == NULL || json_dumpb(header, text, bytes, JSON_COMPACT) != bytes) {
        free(text);
        return lp_fail_memory(err);
    }
    const uint64_t padded = (bytes + 7) / 8 * 8;
    lp_status status = lp_outfile_write(file, &padded, sizeof padded, err);
    if (status == LP_OK)
        status = lp_outfile_write(file, text, (int64_t)bytes, err);
    if (status == LP_OK)
        status = lp_outfile_write(file, "       ", (int64_t)(padded - bytes), err);
    free(text);
    return status;
}

lp_status lp_layout_write(const lp_layout *layout, const lp_layout_shape *shape, const lp_layout_piece *pieces,
                          int count, const unsigned char *data, lp_outfile *file, lp_error *err)
{
    char logical[128], stride[128], version[16], made_of[64];
    int64_t physical[LP_LAYOUT_DIMS];
    for (int32_t i = 0; i < shape->ndim; i++)
        physical[i] = shape->shape[layout->dim_order[i]];
    snprintf(version, sizeof version, "%d", (int)layout->version);
    snprintf(made_of, sizeof made_of, "%s %s", count == 2 ? "w1,w3" : pieces[0].name, lp_dtype_name(pieces[0].dtype));
    json_t *const header =
        json_pack("{s:{s:s, s:s, s:s, s:s, s:s}, s:o}", "__metadata__", "loadplan.layout", layout->id,
                  "loadplan.layout_version", version, "loadplan.shape",
                  lp_layout_list_text(logical, sizeof logical, shape->ndim, shape->shape), "loadplan.stride_bytes",
                  lp_layout_list_text(stride, sizeof stride, shape->ndim, shape->stride), "loadplan.made_of", made_of,
                  layout->id, lp_layout_tensor_entry(shape->dtype, shape->ndim, physical, 0, shape->bytes));
    if (header == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_layout_write_header(file, header, err);
    json_decref(header);
    if (status == LP_OK)
        status = lp_outfile_write(file, data, shape->bytes, err);
    return status;
}

lp_status lp_layout_write_pieces(const lp_layout_piece *pieces, int count, lp_outfile *file, lp_error *err)
{
    json_t *const header = json_object();
    int64_t off = 0;
    for (int i = 0; i < count; i++) {
        json_object_set_new(
            header, pieces[i].name,
            lp_layout_tensor_entry(pieces[i].dtype, pieces[i].ndim, pieces[i].shape, off, off + pieces[i].bytes));
        off += pieces[i].bytes;
    }
    lp_status status = json_object_size(header) == (size_t)count ? LP_OK : lp_fail_memory(err);
    if (status == LP_OK)
        status = lp_layout_write_header(file, header, err);
    json_decref(header);
    for (int i = 0; i < count && status == LP_OK; i++)
        status = lp_outfile_write(file, pieces[i].data, pieces[i].bytes, err);
    return status;
}
