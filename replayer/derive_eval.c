/* SPDX-License-Identifier: Apache-2.0 */
/* The reference evaluator: one array for each node, one loop for each operation. Every single-precision operation
 * rounds once; the build contracts none (-ffp-contract=off). */
#include "replayer/derive_eval.h"
#include "replayer/derive_ops.h"

#include <stdio.h>

/* Values of the nodes; inputs are the caller's arrays. */
typedef struct values {
    const lp_derive *derive;
    const void *const *input;
    const lp_alloc *alloc;
    void **value;
} values;

static int64_t element_bytes(unsigned dtype)
{
    return lp_dtype_bits((lp_dtype)dtype) / 8;
}

/* Neighbours pair up level by level; a last one without a neighbour moves up as it is. Works in place. */
static float reduce_tree(unsigned op, float *x, int64_t count)
{
    while (count > 1) {
        for (int64_t i = 0; i < count / 2; i++)
            x[i] = lp_op_combine(op, x[2 * i], x[2 * i + 1]);
        if (count % 2 != 0)
            x[count / 2] = x[count - 1];
        count = count / 2 + count % 2;
    }
    return lp_f32_one_nan(x[0]);
}

static lp_status reduce(const values *v, const lp_node *node, float *out, lp_error *err)
{
    const int64_t count = v->derive->node[node->arg[0]].count;
    const int64_t group = node->bits == 0 ? count : (int64_t)node->bits;
    const float *x = v->value[node->arg[0]];
    float *work = lp_allocate(v->alloc, (size_t)group * sizeof *work);
    if (work == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < node->count; i++) {
        memcpy(work, x + i * group, (size_t)group * sizeof *work);
        out[i] = reduce_tree(node->op, work, group);
    }
    lp_release(v->alloc, work);
    return LP_OK;
}

/* Operand number n of a node at element i; one element is broadcast. */
static float operand(const values *v, const lp_node *node, int n, int64_t i)
{
    const float *x = v->value[node->arg[n]];
    return x[v->derive->node[node->arg[n]].count == 1 ? 0 : i];
}

static void elementwise(const values *v, const lp_node *node, float *out)
{
    const int arity = lp_op_arity((lp_op)node->op);
    for (int64_t i = 0; i < node->count; i++)
        out[i] = lp_op_compute(node->op, operand(v, node, 0, i), arity > 1 ? operand(v, node, 1, i) : 0.0f,
                               arity > 2 ? operand(v, node, 2, i) : 0.0f);
}

static void all_close(const values *v, const lp_node *node, lp_derive_check *check)
{
    const int64_t a_count = v->derive->node[node->arg[0]].count, b_count = v->derive->node[node->arg[1]].count;
    const int64_t count = a_count > b_count ? a_count : b_count;
    const float tolerance = lp_f32_of_bits((uint32_t)node->bits);
    for (int64_t i = 0; i < count; i++) {
        const float a = operand(v, node, 0, i), b = operand(v, node, 1, i);
        if (lp_op_is_close(a, b, tolerance))
            continue;
        *check = (lp_derive_check){.failed = true, .index = i, .a = a, .b = b};
        return;
    }
}

static lp_status convert(const values *v, const lp_node *node, void *out)
{
    const lp_node *from = &v->derive->node[node->arg[0]];
    const void *x = v->value[node->arg[0]];
    if (lp_cast_kind_of((lp_dtype)from->dtype, (lp_dtype)node->dtype) == LP_CAST_VALUES)
        return lp_cast_elements((lp_dtype)from->dtype, x, (lp_dtype)node->dtype, out, node->count);
    memcpy(out, x, (size_t)(node->count * element_bytes(node->dtype)));
    return LP_OK;
}

static lp_status evaluate_node(const values *v, uint32_t n, lp_derive_check *check, lp_error *err)
{
    const lp_node *node = &v->derive->node[n];
    if (node->op == LP_OP_ALL_CLOSE) {
        all_close(v, node, check);
        return LP_OK;
    }
    int64_t bytes;
    if (node->count < 1 || !lp_mul(node->count, element_bytes(node->dtype), &bytes))
        return lp_fail(err, LP_E_CORRUPT, "a derive has a node of %lld elements", (long long)node->count);
    v->value[n] = lp_allocate(v->alloc, (size_t)bytes);
    if (v->value[n] == NULL)
        return lp_fail_memory(err);
    switch ((lp_op)node->op) {
    case LP_OP_INPUT:
        memcpy(v->value[n], v->input[node->arg[0]], (size_t)bytes);
        return LP_OK;
    case LP_OP_CONST:
        memcpy(v->value[n], &node->bits, (size_t)bytes); /* little endian hosts only, as everywhere */
        return LP_OK;
    case LP_OP_CAST:
        if (convert(v, node, v->value[n]) != LP_OK)
            return lp_fail(err, LP_E_UNSUPPORTED, "a derive casts %s to %s",
                           lp_dtype_name((lp_dtype)v->derive->node[node->arg[0]].dtype),
                           lp_dtype_name((lp_dtype)node->dtype));
        return LP_OK;
    case LP_OP_MAX:
    case LP_OP_MIN:
    case LP_OP_SUM:
        return reduce(v, node, v->value[n], err);
    default:
        elementwise(v, node, v->value[n]);
        return LP_OK;
    }
}

lp_status lp_derive_evaluate(const lp_derive *derive, const void *const *input, const lp_alloc *alloc, void **result,
                             lp_derive_check *check, lp_error *err)
{
    lp_status status = LP_OK;
    values v = {derive, input, alloc, lp_allocate_zero(alloc, derive->nnode * sizeof(void *))};
    if (v.value == NULL)
        return lp_fail_memory(err);
    *check = (lp_derive_check){.failed = false};
    *result = NULL;
    for (uint32_t n = 0; status == LP_OK && n < derive->nnode; n++)
        status = evaluate_node(&v, n, check, err);
    if (status == LP_OK) {
        *result = v.value[derive->nnode - 1];
        v.value[derive->nnode - 1] = NULL;
    }
    for (uint32_t n = 0; n < derive->nnode; n++)
        lp_release(alloc, v.value[n]);
    lp_release(alloc, v.value);
    return status;
}

void lp_derive_check_text(const lp_derive *derive, const lp_derive_check *check, char *out, size_t out_bytes)
{
    static const char mark[] = "{index}";
    const char *text = derive->error_text[0] != '\0' ? derive->error_text : "values differ at element {index}";
    size_t used = 0;
    out[0] = '\0';
    for (const char *at = text; *at != '\0' && used + 1 < out_bytes;) {
        if (strncmp(at, mark, sizeof mark - 1) == 0) {
            const int n = snprintf(out + used, out_bytes - used, "%lld", (long long)check->index);
            used = n > 0 && (size_t)n < out_bytes - used ? used + (size_t)n : out_bytes - 1;
            at += sizeof mark - 1;
        } else {
            out[used++] = *at++;
            out[used] = '\0';
        }
    }
    if (used + 1 < out_bytes)
        snprintf(out + used, out_bytes - used, ": %.9g and %.9g", (double)check->a, (double)check->b);
}
