/* SPDX-License-Identifier: Apache-2.0 */
/* The `dense` loader: decoder-only models of the Llama, Qwen, Mistral, Gemma, Phi-3 and GLM-4 families and their kin.
 */
#include "recorder/rule_sets.h"

void loader_dense(lp_rules *l)
{
    rules_embedding_and_head(l);
    for (int64_t layer = 0; layer < l->layers && !rules_failed(l); layer++) {
        rules_decoder_layer(l, layer, false);
        if (!rules_decoder_mlp(l, layer))
            rules_gated_mlp(l, lp_name(l->r, "layers.%" PRId64 ".mlp", layer)); /* says what is missing */
    }
    rules_last_norm(l);
}
