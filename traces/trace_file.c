/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files by their paths: the whole image is read, or written, in one go through the platform's table of files. */
#include "traces/trace_file.h"

#include <fcntl.h>

bool lp_sql_is_nomem(sqlite3 *db, int code)
{
    /* Some calls return the code without leaving it in the connection. */
    if (db == NULL || (code & 0xff) == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM)
        return true;
    const int state = sqlite3_extended_errcode(db);
    return (state & 0xff) == SQLITE_NOMEM || state == SQLITE_IOERR_NOMEM;
}

lp_status lp_trace_save(const lp_trace *t, const char *path, bool overwrite, lp_error *err)
{
    uint8_t *image = NULL;
    int64_t bytes = 0;
    lp_outfile file = {0};
    LP_TRY(lp_trace_image(t, &image, &bytes, err));
    lp_status status;
    LP_TRY_GOTO(lp_outfile_open(&file, &t->platform, path, overwrite, err), release);
    LP_TRY_GOTO(lp_outfile_write(&file, image, bytes, err), abandon);
    status = lp_outfile_commit(&file, err);
    goto release;
abandon:
    lp_outfile_abandon(&file);
release:
    sqlite3_free(image);
    return status;
}

lp_status lp_trace_open(lp_trace **out, const char *path, lp_error *err)
{
    return lp_trace_open_with(out, path, NULL, err);
}

/* A checkpoint that is given for a trace may be far larger than one: it is told by its head, before it is read. */
static lp_status judge(const char *path, const char *start, int64_t start_bytes, int64_t file_bytes, lp_error *err)
{
    return lp_trace_check_head(path, (const uint8_t *)start, start_bytes, file_bytes, err);
}

lp_status lp_trace_open_with(lp_trace **out, const char *path, const lp_platform *platform, lp_error *err)
{
    const lp_platform resolved = lp_platform_resolve(platform);
    char *image = NULL;
    int64_t bytes = 0;
    lp_status status = lp_read_judged(&resolved, path, LP_TRACE_FILE_BYTES_MAX, judge, &image, &bytes, err);
    if (status == LP_E_FORMAT && err != NULL && err->byte_off < 0) /* no file: what is wrong in one has a place */
        lp_hint(err, "a trace is one file: 'loadplan record' makes one of a checkpoint");
    if (status != LP_OK)
        return status;
    status = lp_trace_open_image(out, (uint8_t *)image, bytes, path, &resolved, err);
    lp_release(resolved.alloc, image);
    return status;
}
