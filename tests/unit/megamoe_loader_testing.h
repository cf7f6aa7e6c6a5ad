/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of experts for the tests of the `megamoe` loader, and where their bytes must lie: computed by the closed
 * formulas of the kernels' row maps, not by the layout table that the loader uses. */
#ifndef LOADPLAN_MEGAMOE_LOADER_TESTING_H
#define LOADPLAN_MEGAMOE_LOADER_TESTING_H

#include "layouts/layout_index.h"

#include "failing_memory.h"
#include "test_loader_run.h"

enum { H = 256, I = 256, E = 4, LAYERS = 2 };

static const char *const PROJECTION[] = {"gate_proj", "up_proj", "down_proj"};

typedef struct model {
    bool nvfp4, scalars_as_vectors;
    lp_dtype scale;
    const char *prefix;
} model;

static const model NVFP4 = {.nvfp4 = true, .scale = LP_F8_E4M3, .prefix = "model."};
static const model MXFP4 = {.scale = LP_F8_E8M0, .prefix = ""};

static inline lp_checkpoint *experts(const model *m)
{
    lp_checkpoint *c = new_checkpoint();
    const int64_t per_scale = m->nvfp4 ? 16 : 32;
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int e = 0; e < E; e++) {
            for (int p = 0; p < 3; p++) {
                char stem[128];
                snprintf(stem, sizeof stem, "%slayers.%d.mlp.experts.%d.%s", m->prefix, layer, e, PROJECTION[p]);
                const int64_t rows = p < 2 ? I : H, columns = p < 2 ? H : I;
                add_named(c, LP_U8, SHAPE(rows, columns / 2), "%s.weight", stem);
                add_named(c, m->scale, SHAPE(rows, columns / per_scale), "%s.weight_scale", stem);
                if (m->nvfp4) {
                    const size_t ndim = m->scalars_as_vectors ? 1 : 0;
                    add_named(c, LP_F32, ndim, (int64_t[]){1}, "%s.weight_scale_2", stem);
                    add_named(c, LP_F32, ndim, (int64_t[]){1}, "%s.input_scale", stem);
                }
            }
        }
    }
    return c;
}

static inline const char *expert_name(const model *m, int layer, int64_t e, int p, const char *kind)
{
    return named("%slayers.%d.mlp.experts.%d.%s.%s", m->prefix, layer, (int)e, PROJECTION[p], kind);
}

/* ---- the kernels' row maps ---- */

static inline int64_t weight_row(int p, int64_t r)
{
    return p == 2 ? r : 16 * (r / 8) + 8 * p + r % 8;
}

static inline int64_t scale_row(int p, int64_t r)
{
    const int64_t m = weight_row(p, r);
    return (m & ~(int64_t)127) + (m & 31) * 4 + ((m >> 5) & 3);
}

/* Expert `e` fills slot `slot` of a rank that has rows [first, first + rows) of gate and up, and the same columns of
 * down. */
static inline void assert_expert(run *x, const model *m, int layer, int64_t slot, int64_t e, int64_t local,
                                 int64_t rank)
{
    const int64_t per_scale = m->nvfp4 ? 16 : 32;
    char l1[64], s1[64], l2[64], s2[64];
    snprintf(l1, sizeof l1, "layers.%d.mlp.experts.w13_weight", layer);
    snprintf(s1, sizeof s1, "layers.%d.mlp.experts.w13_weight_scale", layer);
    snprintf(l2, sizeof l2, "layers.%d.mlp.experts.w2_weight", layer);
    snprintf(s2, sizeof s2, "layers.%d.mlp.experts.w2_weight_scale", layer);
    for (int p = 0; p < 2; p++) {
        const int64_t row_bytes = H / 2, words = H / per_scale / 4;
        for (int64_t r = 0; r < local; r++) {
            const int64_t from = rank * local + r;
            assert_source(x, l1, (slot * 2 * local + weight_row(p, r)) * row_bytes,
                          expert_name(m, layer, e, p, "weight"), from * row_bytes, row_bytes);
            for (int64_t w = 0; w < words; w++)
                assert_source(x, s1, 4 * (slot * words * 2 * local + w * 2 * local + scale_row(p, r)),
                              expert_name(m, layer, e, p, "weight_scale"), (from * words + w) * 4, 4);
        }
    }
    const int64_t words = local / per_scale / 4, all_words = I / per_scale / 4;
    for (int64_t r = 0; r < H; r++) {
        assert_source(x, l2, (slot * H + r) * local / 2, expert_name(m, layer, e, 2, "weight"),
                      r * I / 2 + rank * local / 2, local / 2);
        for (int64_t w = 0; w < words; w++)
            assert_source(x, s2, 4 * (slot * words * H + w * H + scale_row(2, r)),
                          expert_name(m, layer, e, 2, "weight_scale"), (r * all_words + rank * words + w) * 4, 4);
    }
}

/* The same packed by tiles: 128 columns of a row are one run. */
static inline void assert_tiles(run *x, const model *m, int layer, int64_t slot, int64_t e)
{
    const int64_t bytes[2] = {64, m->nvfp4 ? 8 : 4}; /* of a row and step: codes, scales */
    static const char *const kind[2] = {"weight", "weight_scale"};
    for (int p = 0; p < 3; p++)
        for (int k = 0; k < 2; k++) {
            char dest[64];
            snprintf(dest, sizeof dest, "layers.%d.mlp.experts.%s_%s", layer, p < 2 ? "w13" : "w2", kind[k]);
            const int64_t rows = p < 2 ? I : H, steps = (p < 2 ? H : I) / 128;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t s = 0; s < steps; s++)
                    assert_source(x, dest,
                                  lp_tile_byte(slot, p < 2 ? lp_row_gran8(p, r) : r, s * bytes[k], p < 2 ? 2 * I : H,
                                               steps, bytes[k]),
                                  expert_name(m, layer, e, p, kind[k]), (r * steps + s) * bytes[k], bytes[k]);
        }
}

static inline const lp_destination *expert_dest(run *x, int layer, const char *name)
{
    return dest_of(x, named("layers.%d.mlp.experts.%s", layer, name));
}

#endif
