/* SPDX-License-Identifier: Apache-2.0 */
/* The table of layouts: all lists in a row. Indices are not stable, ids are. */
#include "layouts/layout_private.h"

static const lp_layout_list *const lists[] = {&lp_layouts_gran8, &lp_layouts_packed, &lp_layouts_trt,
                                              &lp_layouts_localised, &lp_layouts_sm90};
enum { LISTS = sizeof lists / sizeof lists[0] };

int32_t lp_layout_count(void)
{
    int32_t count = 0;
    for (int i = 0; i < LISTS; i++)
        count += lists[i]->count;
    return count;
}

const lp_layout *lp_layout_at(int32_t index)
{
    if (index < 0)
        return NULL;
    for (int i = 0; i < LISTS; i++) {
        if (index < lists[i]->count)
            return &lists[i]->layout[index];
        index -= lists[i]->count;
    }
    return NULL;
}

const lp_layout *lp_layout_find(const char *id)
{
    for (int i = 0; i < LISTS; i++)
        for (int32_t k = 0; k < lists[i]->count; k++)
            if (strcmp(lists[i]->layout[k].id, id) == 0)
                return &lists[i]->layout[k];
    return NULL;
}
