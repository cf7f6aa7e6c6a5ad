/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of weights under the names that command lines of the MegaMoE benches have for them. */
#ifndef MOE_FORMS_H
#define MOE_FORMS_H

#include "kernels/megamoe.h"

#include <string.h>

typedef struct weight_form {
    const char *name;
    lp_moe_format format;
} weight_form;

static const weight_form forms[] = {
    {"mxfp4", LP_MXFP4}, {"nvfp4", LP_NVFP4}, {"mxfp8", LP_MXFP8}, {"fp8", LP_FP8_BLOCK128}, {"bf16", LP_MOE_BF16}};

/* Whether a list that commas divide holds the name. */
static inline bool is_listed(const char *list, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

#endif
