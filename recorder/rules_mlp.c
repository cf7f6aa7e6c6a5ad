/* SPDX-License-Identifier: Apache-2.0 */
/* Rule set for gated MLPs: gate and up in one column-parallel parameter, down by its input dimension. */
#include "recorder/rule_sets.h"

void rules_gated_mlp(lp_rules *l, const char *stem)
{
    const char *const half[] = {lp_name(l->r, "%s.gate_proj", stem), lp_name(l->r, "%s.up_proj", stem)};
    const char *down = lp_name(l->r, "%s.down_proj", stem);
    rules_column_parallel(l, lp_name(l->r, "%s.gate_up_proj", stem), 2, half);
    rules_row_parallel(l, down, down);
}
