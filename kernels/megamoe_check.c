/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that lp_megamoe refuses before a launch: sizes, layouts, strides, alignment, pointers. */
#include "kernels/megamoe_private.h"

#include "traces/base.h"

#include <math.h>

enum { MOST_EXPERTS = 512, MOST_CHOICES = 32, MOST_TOKENS = 65536, ALIGNMENT = 16, WORKSPACE_ALIGNMENT = 256 };

static const char *const slot_names[LP_MOE_SLOTS] = {"weight of the first projection", "scale of the first projection",
                                                     "weight of the second projection",
                                                     "scale of the second projection"};

/* Layouts that a slot may have; the family is the index in the row, the packed one last. */
typedef struct readable {
    lp_moe_format format;
    const char *name;
    const char *contract[LP_MOE_SLOTS], *packed[LP_MOE_SLOTS];
    const char *single[LP_MOE_SLOTS]; /* the contract's of one expert, without a dimension for experts */
} readable;

static const readable formats[] = {
    {LP_MXFP4,
     "mxfp4",
     {"mxfp4_l1_weight", "mxfp4_l1_scale", "mxfp4_l2_weight", "mxfp4_l2_scale"},
     {"mxfp4_sm90_l1_weight", "mxfp4_sm90_l1_scale", "mxfp4_sm90_l2_weight", "mxfp4_sm90_l2_scale"},
     {NULL}},
    {LP_NVFP4,
     "nvfp4",
     {"nvfp4_l1_weight", "nvfp4_l1_scale", "nvfp4_l2_weight", "nvfp4_l2_scale"},
     {"nvfp4_sm90_l1_weight", "nvfp4_sm90_l1_scale", "nvfp4_sm90_l2_weight", "nvfp4_sm90_l2_scale"},
     {NULL}},
    {LP_MXFP8,
     "mxfp8",
     {"mxfp8_l1_weight", "mxfp8_l1_scale", "mxfp8_l2_weight", "mxfp8_l2_scale"},
     {NULL},
     {"mxfp8_shared_l1_weight", "mxfp8_shared_l1_scale", "mxfp8_shared_l2_weight", "mxfp8_shared_l2_scale"}},
    {LP_FP8_BLOCK128,
     "fp8_block128",
     {"fp8_block128_l1_weight", "fp8_block128_l1_scale", "fp8_block128_l2_weight", "fp8_block128_l2_scale"},
     {NULL},
     {NULL}},
    {LP_MOE_BF16, "bf16", {"bf16_l1_weight", NULL, "bf16_l2_weight", NULL}, {NULL}, {NULL}},
};

static const readable *format_of(lp_moe_format format)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].format == format)
            return &formats[i];
    return NULL;
}

const char *lp_megamoe_layout(lp_moe_format format, lp_moe_slot slot, int32_t n)
{
    const readable *const f = format_of(format);
    if (f == NULL || (int)slot < 0 || slot >= LP_MOE_SLOTS)
        return NULL;
    const char *const list[] = {f->packed[slot] != NULL ? f->packed[slot] : f->contract[slot],
                                f->packed[slot] != NULL ? f->contract[slot] : NULL};
    return n == 0 || n == 1 ? list[n] : NULL;
}

static lp_status find_format(lp_moe_format format, const readable **out, lp_error *err)
{
    *out = format_of(format);
    return *out != NULL ? LP_OK : lp_fail(err, LP_E_ARGUMENT, "unknown weight format %d", (int)format);
}

static bool has_scales(lp_moe_format format)
{
    return format != LP_MOE_BF16;
}

/* ---- the shape ---- */

static lp_status check_range(const char *what, int64_t value, int64_t least, int64_t most, lp_error *err)
{
    if (value < least || value > most)
        return lp_fail(err, LP_E_ARGUMENT, "%s is %lld, not %lld to %lld", what, (long long)value, (long long)least,
                       (long long)most);
    return LP_OK;
}

static lp_status check_activation(const lp_megamoe_shape *s, lp_error *err)
{
    if (s->activation != LP_MOE_SWIGLU && s->activation != LP_MOE_SITU && s->activation != LP_MOE_SWIGLU_STEP)
        return lp_fail(err, LP_E_ARGUMENT, "unknown activation %d", (int)s->activation);
    if (!isfinite(s->activation_alpha) || !isfinite(s->activation_beta) || !isfinite(s->activation_limit))
        return lp_fail(err, LP_E_ARGUMENT, "a parameter of the activation is not finite");
    if (s->activation_limit < 0.0f)
        return lp_fail(err, LP_E_ARGUMENT, "the limit of the activation is negative");
    if (s->activation == LP_MOE_SITU && s->activation_alpha < 0.0f)
        return lp_fail(err, LP_E_ARGUMENT, "the alpha of SiTU is negative");
    if (s->activation == LP_MOE_SWIGLU_STEP && s->activation_limit <= 0.0f)
        return lp_fail(err, LP_E_ARGUMENT, "SwiGLU with a step needs a limit");
    return LP_OK;
}

static lp_status check_dtypes(const lp_megamoe_shape *s, const readable *f, lp_error *err)
{
    const bool takes_fp8 = s->format != LP_NVFP4 && s->format != LP_MOE_BF16;
    if (s->x_dtype != LP_BF16 && !(takes_fp8 && s->x_dtype == LP_F8_E4M3))
        return lp_fail(err, LP_E_ARGUMENT, "x is %s, but %s takes BF16%s", lp_dtype_name(s->x_dtype), f->name,
                       takes_fp8 ? " or F8_E4M3" : "");
    if (s->id_dtype != LP_I32 && s->id_dtype != LP_I64)
        return lp_fail(err, LP_E_ARGUMENT, "ids are %s, not I32 or I64", lp_dtype_name(s->id_dtype));
    return LP_OK;
}

static lp_status of_shared_experts(const lp_error *why, lp_error *err)
{
    return lp_fail(err, why->code, "of the shared experts: %s", why->text);
}

static lp_status check_experts(const lp_megamoe_shape *s, lp_error *err)
{
    const readable *f;
    LP_TRY(find_format(s->format, &f, err));
    LP_TRY(check_range("experts", s->experts, 1, MOST_EXPERTS, err));
    LP_TRY(check_range("top_k", s->top_k, 1, MOST_CHOICES, err));
    LP_TRY(check_range("max_tokens", s->max_tokens, 1, MOST_TOKENS, err));
    LP_TRY(check_range("tokens_bound", s->tokens_bound, 0, s->max_tokens, err));
    LP_TRY(check_range("first_expert", s->first_expert, 0, INT32_MAX - MOST_EXPERTS, err));
    LP_TRY(check_range("hidden", s->hidden, 1, 1 << 20, err));
    LP_TRY(check_range("intermediate", s->intermediate, 1, 1 << 20, err));
    const lp_layout_sizes sizes = {s->experts, s->hidden, s->intermediate};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++) {
        const char *const id = lp_megamoe_layout(s->format, (lp_moe_slot)slot, 0);
        if (id != NULL)
            LP_TRY(lp_layout_check(lp_layout_find(id), &sizes, err));
    }
    LP_TRY(check_dtypes(s, f, err));
    return check_activation(s, err);
}

static lp_status check_shared_experts(const lp_megamoe_shape *s, lp_error *err)
{
    if (s->shared_intermediate < 0)
        return lp_fail(err, LP_E_ARGUMENT, "shared_intermediate is negative");
    if (s->shared_intermediate == 0)
        return s->shared_format == 0 ? LP_OK
                                     : lp_fail(err, LP_E_ARGUMENT, "shared_format is given, shared_intermediate is 0");
    const lp_megamoe_shape shared = lp_megamoe_shared_shape(s);
    lp_error why = {0};
    if (check_experts(&shared, &why) != LP_OK)
        return of_shared_experts(&why, err);
    if (s->x_dtype == LP_F8_E4M3 && (shared.format == LP_MXFP8) != (s->format == LP_MXFP8))
        return lp_fail(err, LP_E_ARGUMENT,
                       "x is F8_E4M3, whose scales are of 32 columns for mxfp8 and of 128 for other formats: it cannot "
                       "be both for the routed and the shared experts");
    return LP_OK;
}

lp_status lp_moe_check_shape(const lp_megamoe_shape *s, lp_error *err)
{
    if (s == NULL || s->size != sizeof *s)
        return lp_fail(err, LP_E_ARGUMENT, "the shape's size field is not sizeof(lp_megamoe_shape)");
    LP_TRY(check_experts(s, err));
    return check_shared_experts(s, err);
}

/* ---- weights ---- */

lp_status lp_megamoe_tensor_in(lp_megamoe_tensor *tensor, const lp_megamoe_shape *shape, const char *layout,
                               const void *data, lp_error *err)
{
    LP_TRY(lp_moe_check_shape(shape, err));
    const lp_layout *const l = layout != NULL ? lp_layout_find(layout) : NULL;
    if (l == NULL)
        return lp_fail(err, LP_E_ARGUMENT, "unknown layout '%s'", layout != NULL ? layout : "(null)");
    const lp_layout_sizes sizes = {shape->experts, shape->hidden, shape->intermediate};
    lp_layout_shape form;
    LP_TRY(lp_layout_describe(l, &sizes, &form, err));
    *tensor = (lp_megamoe_tensor){.data = data,
                                  .layout = l->id,
                                  .version = l->version,
                                  .transforms = 1,
                                  .order = l->up_first ? LP_MOE_UP_FIRST : LP_MOE_GATE_FIRST,
                                  .dtype = form.dtype,
                                  .ndim = form.ndim};
    memcpy(tensor->shape, form.shape, sizeof tensor->shape);
    memcpy(tensor->stride, form.stride, sizeof tensor->stride);
    return LP_OK;
}

static lp_status check_pointer(const char *what, const void *pointer, uintptr_t alignment, lp_error *err)
{
    if (pointer == NULL)
        return lp_fail(err, LP_E_ARGUMENT, "%s is missing", what);
    if ((uintptr_t)pointer % alignment != 0)
        return lp_fail(err, LP_E_ARGUMENT, "%s is not aligned to %d bytes", what, (int)alignment);
    return LP_OK;
}

static lp_status check_form(const lp_megamoe_shape *shape, const lp_megamoe_tensor *t, const char *what, lp_error *err)
{
    lp_megamoe_tensor want;
    LP_TRY(lp_megamoe_tensor_in(&want, shape, t->layout, t->data, err));
    if (t->version != want.version)
        return lp_fail(err, LP_E_MISMATCH, "the %s has version %d of layout '%s', the kernel reads version %d", what,
                       (int)t->version, t->layout, (int)want.version);
    if (t->order != want.order)
        return lp_fail(err, LP_E_MISMATCH, "the %s has %s first, layout '%s' has %s first", what,
                       t->order == LP_MOE_UP_FIRST ? "up" : "gate", t->layout,
                       want.order == LP_MOE_UP_FIRST ? "up" : "gate");
    if (t->transforms != 1)
        return lp_fail(err, LP_E_MISMATCH, "layout '%s' was applied %d times to the %s, not once", t->layout,
                       (int)t->transforms, what);
    if (t->dtype != want.dtype)
        return lp_fail(err, LP_E_ARGUMENT, "the %s is %s, layout '%s' is %s", what, lp_dtype_name(t->dtype), t->layout,
                       lp_dtype_name(want.dtype));
    if (t->ndim != want.ndim)
        return lp_fail(err, LP_E_ARGUMENT, "the %s has %d dimensions, not %d", what, (int)t->ndim, (int)want.ndim);
    for (int32_t d = 0; d < want.ndim; d++) {
        if (t->shape[d] != want.shape[d])
            return lp_fail(err, LP_E_ARGUMENT, "dimension %d of the %s is %lld, not %lld", (int)d, what,
                           (long long)t->shape[d], (long long)want.shape[d]);
        if (t->stride[d] != want.stride[d] && t->shape[d] != 1)
            return lp_fail(err, LP_E_ARGUMENT, "dimension %d of the %s has a stride of %lld bytes, not %lld", (int)d,
                           what, (long long)t->stride[d], (long long)want.stride[d]);
    }
    return check_pointer(what, t->data, ALIGNMENT, err);
}

static bool is_named(const char *id, const char *name)
{
    return id != NULL && strcmp(id, name) == 0;
}

static lp_status check_tensor(const lp_megamoe_shape *shape, const readable *f, const lp_megamoe_weights *weights,
                              lp_moe_slot slot, lp_moe_family *family, lp_error *err)
{
    const lp_megamoe_tensor *const t = &weights->tensor[slot];
    if (f->contract[slot] == NULL) {
        if (t->data != NULL)
            return lp_fail(err, LP_E_ARGUMENT, "%s has no %s", f->name, slot_names[slot]);
        return LP_OK;
    }
    if (t->layout == NULL)
        return lp_fail(err, LP_E_ARGUMENT, "the %s names no layout", slot_names[slot]);
    if (is_named(f->packed[slot], t->layout))
        *family = LP_MOE_PACKED;
    else if (is_named(f->contract[slot], t->layout) || (shape->experts == 1 && is_named(f->single[slot], t->layout)))
        *family = LP_MOE_CONTRACT;
    else if (lp_layout_find(t->layout) == NULL)
        return lp_fail(err, LP_E_MISMATCH, "the %s has the unknown layout '%s'", slot_names[slot], t->layout);
    else if (f->packed[slot] != NULL)
        return lp_fail(err, LP_E_MISMATCH, "the %s has layout '%s', the kernel reads '%s' or '%s'", slot_names[slot],
                       t->layout, f->packed[slot], f->contract[slot]);
    else
        return lp_fail(err, LP_E_MISMATCH, "the %s has layout '%s', the kernel reads '%s'", slot_names[slot], t->layout,
                       f->contract[slot]);
    return check_form(shape, t, slot_names[slot], err);
}

static lp_status check_alphas(const readable *f, const lp_megamoe_weights *w, lp_error *err)
{
    if (f->format != LP_NVFP4) {
        if (w->l1_alpha != NULL || w->l2_alpha != NULL || w->l2_activation_scale != NULL)
            return lp_fail(err, LP_E_ARGUMENT, "%s takes no alphas", f->name);
        return LP_OK;
    }
    LP_TRY(check_pointer("l1_alpha", w->l1_alpha, sizeof(float), err));
    LP_TRY(check_pointer("l2_alpha", w->l2_alpha, sizeof(float), err));
    if (w->l1_alpha_columns != 1 && w->l1_alpha_columns != 2)
        return lp_fail(err, LP_E_ARGUMENT, "l1_alpha_columns is %d, not 1 or 2", (int)w->l1_alpha_columns);
    if (w->l2_activation_scale != NULL)
        LP_TRY(check_pointer("l2_activation_scale", w->l2_activation_scale, sizeof(float), err));
    return LP_OK;
}

static lp_status check_expert_weights(const lp_megamoe_shape *shape, const lp_megamoe_weights *w, lp_error *err)
{
    if (w == NULL || w->size != sizeof *w)
        return lp_fail(err, LP_E_ARGUMENT, "the weights' size field is not sizeof(lp_megamoe_weights)");
    const readable *f;
    LP_TRY(find_format(shape->format, &f, err));
    lp_moe_family family[LP_MOE_SLOTS] = {LP_MOE_CONTRACT};
    for (int slot = 0; slot < LP_MOE_SLOTS; slot++)
        LP_TRY(check_tensor(shape, f, w, (lp_moe_slot)slot, &family[slot], err));
    for (int slot = 1; slot < LP_MOE_SLOTS; slot++)
        if ((has_scales(shape->format) || slot == LP_MOE_L2_WEIGHT) && family[slot] != family[0])
            return lp_fail(err, LP_E_MISMATCH, "'%s' and '%s' are layouts of two families", w->tensor[0].layout,
                           w->tensor[slot].layout);
    return check_alphas(f, w, err);
}

static lp_status check_weights(const lp_megamoe_shape *shape, const lp_megamoe_weights *w, lp_error *err)
{
    LP_TRY(check_expert_weights(shape, w, err));
    if (shape->shared_intermediate == 0)
        return w->shared == NULL
                   ? LP_OK
                   : lp_fail(err, LP_E_ARGUMENT, "weights of shared experts are given, shared_intermediate is 0");
    if (w->shared == NULL)
        return lp_fail(err, LP_E_ARGUMENT, "the weights of the shared experts are missing");
    const lp_megamoe_shape shared = lp_megamoe_shared_shape(shape);
    lp_error why = {0};
    if (w->shared->shared != NULL)
        return lp_fail(err, LP_E_ARGUMENT, "shared experts have no shared experts of their own");
    if (check_expert_weights(&shared, w->shared, &why) != LP_OK)
        return of_shared_experts(&why, err);
    return LP_OK;
}

lp_moe_family lp_moe_family_of(const lp_megamoe_weights *weights)
{
    const char *const id = weights->tensor[LP_MOE_L1_WEIGHT].layout;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (is_named(formats[i].packed[LP_MOE_L1_WEIGHT], id))
            return LP_MOE_PACKED;
    return LP_MOE_CONTRACT;
}

/* ---- the call ---- */

static lp_status check_io(const lp_megamoe_shape *shape, const lp_megamoe_io *io, lp_error *err)
{
    if (io == NULL || io->size != sizeof *io)
        return lp_fail(err, LP_E_ARGUMENT, "the size field of inputs and outputs is not sizeof(lp_megamoe_io)");
    LP_TRY(check_pointer("x", io->x, ALIGNMENT, err));
    if (shape->x_dtype == LP_F8_E4M3)
        LP_TRY(check_pointer("x_scale", io->x_scale, ALIGNMENT, err));
    else if (io->x_scale != NULL)
        return lp_fail(err, LP_E_ARGUMENT, "x_scale is given, but x is BF16");
    LP_TRY(check_pointer("topk_ids", io->topk_ids, shape->id_dtype == LP_I64 ? 8 : 4, err));
    LP_TRY(check_pointer("topk_weight", io->topk_weight, sizeof(float), err));
    LP_TRY(check_pointer("tokens", io->tokens, sizeof(int32_t), err));
    if (io->received != NULL)
        LP_TRY(check_pointer("received", io->received, sizeof(int32_t), err));
    return check_pointer("y", io->y, ALIGNMENT, err);
}

lp_status lp_megamoe_check(const lp_megamoe_shape *shape, const lp_megamoe_weights *weights, const lp_megamoe_io *io,
                           const void *workspace, int64_t workspace_bytes, lp_error *err)
{
    LP_TRY(lp_moe_check_shape(shape, err));
    LP_TRY(check_weights(shape, weights, err));
    LP_TRY(check_io(shape, io, err));
    const int64_t need = lp_megamoe_workspace(shape, err);
    if (need == 0)
        return LP_E_UNSUPPORTED;
    LP_TRY(check_pointer("the workspace", workspace, WORKSPACE_ALIGNMENT, err));
    if (workspace_bytes < need)
        return lp_fail(err, LP_E_ARGUMENT, "the workspace has %lld bytes, %lld are needed", (long long)workspace_bytes,
                       (long long)need);
    return LP_OK;
}
