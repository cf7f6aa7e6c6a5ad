/* SPDX-License-Identifier: Apache-2.0 */
/* Where the configuration of a recording comes from. */
#include "recorder/config.h"

#include <errno.h>
#include <fcntl.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

/* A config.json that is not there is not an error: not every loader needs one. */
static lp_status read_folder_config(lp_config **out, const lp_checkpoint *checkpoint, const lp_platform *platform,
                                    lp_error *err)
{
    const char *folder = lp_checkpoint_folder(checkpoint);
    lp_text path;
    char *text = NULL;
    int64_t bytes = 0;
    lp_status status = LP_OK;
    *out = NULL;
    const char *carried = lp_checkpoint_config(checkpoint);
    if (carried != NULL && carried[0] != '\0')
        return lp_config_from_json(out, carried, (int64_t)strlen(carried), platform, err);
    if (folder[0] == '\0')
        return LP_OK;
    lp_text_init(&path, platform->alloc);
    lp_text_format(&path, "%s/config.json", folder);
    if (path.failed) {
        status = lp_fail_memory(err);
        goto free_path;
    }
    const int fd = platform->io->open(platform->io->context, path.data, O_RDONLY, 0);
    if (fd == -ENOENT)
        goto free_path;
    if (fd >= 0)
        platform->io->close(platform->io->context, fd);
    LP_TRY_GOTO(lp_read_file(platform, path.data, CONFIG_BYTES_MAX, &text, &bytes, err), free_path);
    status = lp_config_from_json(out, text, bytes, platform, err);
    if (status != LP_OK)
        lp_error_of_file(err, path.data);
    lp_release(platform->alloc, text);
free_path:
    lp_text_free(&path);
    return status;
}

lp_status lp_config_find(lp_config **out, const lp_checkpoint *checkpoint, const lp_loader_options *options,
                         const lp_platform *platform, lp_error *err)
{
    if (options->config != NULL)
        return lp_config_from_json(out, options->config, options->config_bytes, platform, err);
    LP_TRY(read_folder_config(out, checkpoint, platform, err));
    if (*out != NULL)
        return LP_OK;
    if (options->base != NULL)
        return lp_config_from_lines(out, lp_trace_header_of(options->base)->configuration, platform, err);
    return lp_config_empty(out, platform, err);
}
