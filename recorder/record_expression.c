/* SPDX-License-Identifier: Apache-2.0 */
/* An expression as a whole: its nodes in a row, arguments before their users, as a trace keeps them. */
#include "recorder/record_private.h"

static int arity_of(const lp_node *node)
{
    return node->op == LP_OP_INPUT ? 0 : lp_op_arity((lp_op)node->op);
}

static bool push(lp_recorder *r, rec_walk *walk, uint32_t node)
{
    if (!lp_grow(r->platform.alloc, (void **)&walk->stack, &walk->stack_capacity, walk->depth + 1, sizeof *walk->stack))
        return false;
    walk->stack[walk->depth++] = node;
    return true;
}

/* Pushes the arguments of a node that are not numbered yet; *ready: there were none. */
static bool push_arguments(lp_recorder *r, rec_walk *walk, uint32_t at, bool *ready)
{
    const lp_node *node = &r->value[at].node;
    *ready = true;
    for (int a = arity_of(node) - 1; a >= 0; a--) {
        if (r->value_number[node->arg[a]] != 0)
            continue;
        *ready = false;
        if (!push(r, walk, node->arg[a]))
            return false;
    }
    return true;
}

bool rec_walk_from(lp_recorder *r, rec_walk *walk, uint32_t root)
{
    if (!lp_grow(r->platform.alloc, (void **)&r->value_number, &r->value_number_capacity, r->value_count,
                 sizeof *r->value_number))
        return false;
    memset(r->value_number + r->value_number_count, 0,
           (size_t)(r->value_number_capacity - r->value_number_count) * sizeof *r->value_number);
    r->value_number_count = r->value_number_capacity;
    if (!push(r, walk, root))
        return false;
    while (walk->depth > 0) {
        const uint32_t at = walk->stack[walk->depth - 1];
        bool ready = true;
        if (r->value_number[at] == 0 && !push_arguments(r, walk, at, &ready))
            return false;
        if (!ready)
            continue;
        walk->depth--;
        if (r->value_number[at] != 0)
            continue;
        if (!lp_grow(r->platform.alloc, (void **)&walk->order, &walk->order_capacity, walk->count + 1,
                     sizeof *walk->order))
            return false;
        walk->inputs += r->value[at].node.op == LP_OP_INPUT;
        walk->order[walk->count++] = at;
        r->value_number[at] = (uint32_t)walk->count;
    }
    return true;
}

void rec_end_walk(lp_recorder *r, rec_walk *walk)
{
    for (int64_t i = 0; i < walk->count; i++)
        r->value_number[walk->order[i]] = 0;
    lp_release(r->platform.alloc, walk->order);
    lp_release(r->platform.alloc, walk->stack);
}

lp_status rec_flatten_value(lp_recorder *r, uint32_t root, lp_derive *out, lp_error *err)
{
    rec_walk walk = {0};
    lp_status status = LP_OK;
    lp_node *node = NULL;
    lp_derive_input *input = NULL;
    if (rec_walk_from(r, &walk, root)) {
        node = lp_arena_get(&r->arena, (size_t)walk.count * sizeof *node);
        input = lp_arena_get(&r->arena, (size_t)walk.inputs * sizeof *input);
    }
    if (node == NULL || input == NULL) {
        status = lp_fail_memory(err);
        goto done;
    }
    uint32_t inputs = 0;
    for (int64_t i = 0; i < walk.count; i++) {
        const rec_value *v = &r->value[walk.order[i]];
        node[i] = v->node;
        for (int a = 0; a < arity_of(&v->node); a++)
            node[i].arg[a] = r->value_number[v->node.arg[a]] - 1;
        if (v->node.op != LP_OP_INPUT)
            continue;
        node[i].arg[0] = inputs;
        input[inputs++] = (lp_derive_input){
            .staged = v->staged, .index = v->index, .dtype = v->dtype, .count = v->node.count, .map = v->map};
    }
    *out = (lp_derive){.dest = out->dest,
                       .nnode = (uint32_t)walk.count,
                       .ninput = inputs,
                       .node = node,
                       .input = input,
                       .map = out->map,
                       .error_text = out->error_text,
                       .provenance = out->provenance};
done:
    rec_end_walk(r, &walk);
    return status;
}

lp_status rec_expression_has(lp_recorder *r, uint32_t root, uint32_t node, bool *has, lp_error *err)
{
    rec_walk walk = {0};
    const lp_status status = rec_walk_from(r, &walk, root) ? LP_OK : lp_fail_memory(err);
    *has = status == LP_OK && r->value_number[node] != 0;
    rec_end_walk(r, &walk);
    return status;
}
