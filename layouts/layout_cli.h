/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two files of `loadplan layout`. */
#ifndef LOADPLAN_LAYOUT_CLI_H
#define LOADPLAN_LAYOUT_CLI_H

#include "layouts/layout_private.h"
#include "traces/cli.h"

/* Transforms the checkpoint tensors of file `in` into the layout, or back. `sizes` is NULL when they are to be taken
 * from the shapes. Returns an exit code, having complained. */
int lp_layout_transform_file(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes, const char *in,
                             const char *out, bool overwrite, bool inverse);

/* "[2, 768, 256]" */
const char *lp_layout_list_text(char *buffer, size_t buffer_bytes, int64_t count, const int64_t *value);

#endif
