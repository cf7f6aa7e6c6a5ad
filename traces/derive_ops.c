/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of derives, as one table, and the rules that a derive's nodes obey. A node refers to earlier nodes
 * only, so a derive cannot contain a cycle. docs/derives.md gives the arithmetic.
 */
#include "traces/trace_private.h"

#include <inttypes.h>

typedef enum op_class {
    CLASS_LEAF,    /* input and constant */
    CLASS_CAST,    /* one operand, another dtype */
    CLASS_REDUCE,  /* one F32 operand, groups of consecutive elements */
    CLASS_ELEMENT, /* F32 operands of one count, or of one element */
    CLASS_CHECK    /* like CLASS_ELEMENT, but without a value */
} op_class;

typedef struct op_row {
    lp_op op;
    op_class class;
    int arity;
    bool own;
    const char *name;
} op_row;

static const op_row OPS[] = {
    {LP_OP_INPUT, CLASS_LEAF, 0, false, "input"},
    {LP_OP_CONST, CLASS_LEAF, 0, false, "const"},
    {LP_OP_CAST, CLASS_CAST, 1, false, "cast"},
    {LP_OP_MAX, CLASS_REDUCE, 1, false, "max"},
    {LP_OP_MIN, CLASS_REDUCE, 1, false, "min"},
    {LP_OP_SUM, CLASS_REDUCE, 1, false, "sum"},
    {LP_OP_ADD, CLASS_ELEMENT, 2, false, "add"},
    {LP_OP_SUB, CLASS_ELEMENT, 2, false, "sub"},
    {LP_OP_MUL, CLASS_ELEMENT, 2, false, "mul"},
    {LP_OP_DIV, CLASS_ELEMENT, 2, false, "div"},
    {LP_OP_NEG, CLASS_ELEMENT, 1, false, "neg"},
    {LP_OP_RECIPROCAL, CLASS_ELEMENT, 1, false, "reciprocal"},
    {LP_OP_SQRT, CLASS_ELEMENT, 1, false, "sqrt"},
    {LP_OP_MAXIMUM, CLASS_ELEMENT, 2, false, "maximum"},
    {LP_OP_MINIMUM, CLASS_ELEMENT, 2, false, "minimum"},
    {LP_OP_ABS, CLASS_ELEMENT, 1, false, "abs"},
    {LP_OP_WHERE, CLASS_ELEMENT, 3, false, "where"},
    {LP_OP_OR_IF_ZERO, CLASS_ELEMENT, 2, false, "or_if_zero"},
    {LP_OP_GREATER, CLASS_ELEMENT, 2, false, "greater"},
    {LP_OP_EQUAL, CLASS_ELEMENT, 2, false, "equal"},
    {LP_OP_EXP, CLASS_ELEMENT, 1, true, "exp"},
    {LP_OP_LOG, CLASS_ELEMENT, 1, true, "log"},
    {LP_OP_ALL_CLOSE, CLASS_CHECK, 2, false, "all_close"},
};

static const op_row *find_op(unsigned op)
{
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (OPS[i].op == (lp_op)op)
            return &OPS[i];
    return NULL;
}

const char *lp_op_name(lp_op op)
{
    const op_row *row = find_op(op);
    return row != NULL ? row->name : "?";
}

int lp_op_arity(lp_op op)
{
    const op_row *row = find_op(op);
    return row != NULL ? row->arity : -1;
}

bool lp_op_is_own(lp_op op)
{
    const op_row *row = find_op(op);
    return row != NULL && row->own;
}

static bool is_whole_bytes(unsigned dtype)
{
    return dtype < LP_DTYPE_COUNT && lp_dtype_bits((lp_dtype)dtype) >= 8;
}

/* Everything about one node except its operands. NULL when fine, else what is wrong. */
static const char *leaf_fault(const lp_derive *derive, const lp_node *node)
{
    if (node->op == LP_OP_INPUT) {
        if (node->arg[0] >= derive->ninput)
            return "reads an input that does not exist";
        const lp_derive_input *input = &derive->input[node->arg[0]];
        if (node->dtype != input->dtype || node->count != input->count)
            return "has another dtype or count than its input";
        return node->bits == 0 ? NULL : "has bits that mean nothing";
    }
    if (!is_whole_bytes(node->dtype))
        return "has a dtype that is not whole bytes";
    const int bits = lp_dtype_bits((lp_dtype)node->dtype);
    if (node->count != 1)
        return "is a constant of more than one element";
    return bits == 64 || node->bits >> bits == 0 ? NULL : "has more bits than its dtype";
}

static const char *reduce_fault(const lp_node *node, const lp_node *operand)
{
    if (operand->dtype != LP_F32 || node->dtype != LP_F32)
        return "is not over F32: cast first";
    const uint64_t group = node->bits == 0 ? (uint64_t)operand->count : node->bits;
    if (group > (uint64_t)operand->count || (uint64_t)operand->count % group != 0)
        return "has groups that do not divide its operand";
    return node->count == (int64_t)((uint64_t)operand->count / group) ? NULL : "has a wrong count";
}

static const char *element_fault(const lp_derive *derive, const lp_node *node, const op_row *row)
{
    int64_t count = 1;
    for (int a = 0; a < row->arity; a++) {
        const lp_node *operand = &derive->node[node->arg[a]];
        if (operand->dtype != LP_F32)
            return "is not over F32: cast first";
        if (operand->count != 1 && count != 1 && operand->count != count)
            return "has operands of different counts";
        if (operand->count != 1)
            count = operand->count;
    }
    if (row->class == CLASS_CHECK) {
        if (node->dtype != LP_DTYPE_NONE || node->count != 0)
            return "is a check and has no value";
        return node->bits >> 32 == 0 ? NULL : "has a tolerance that is not an F32";
    }
    if (node->dtype != LP_F32)
        return "is not F32";
    if (node->bits != 0)
        return "has bits that mean nothing";
    return node->count == count ? NULL : "has a wrong count";
}

static const char *node_fault(const lp_derive *derive, uint32_t index)
{
    const lp_node *node = &derive->node[index];
    const op_row *row = find_op(node->op);
    if (row == NULL)
        return "is of no known operation";
    const int used = node->op == LP_OP_INPUT ? 1 : row->arity;
    for (int a = 0; a < 3; a++) {
        if (a >= used && node->arg[a] != 0)
            return "has more operands than its operation";
        if (a < row->arity && node->arg[a] >= index)
            return "uses a node that does not come before it";
        if (a < row->arity && derive->node[node->arg[a]].count < 1)
            return "uses a node without a value";
    }
    switch (row->class) {
    case CLASS_LEAF:
        return leaf_fault(derive, node);
    case CLASS_CAST: {
        const lp_node *operand = &derive->node[node->arg[0]];
        if (!is_whole_bytes(node->dtype) ||
            lp_cast_kind_of((lp_dtype)operand->dtype, (lp_dtype)node->dtype) == LP_CAST_UNSUPPORTED)
            return "is a cast that the cast table does not have";
        if (node->bits != 0)
            return "has bits that mean nothing";
        return node->count == operand->count ? NULL : "has a wrong count";
    }
    case CLASS_REDUCE:
        return reduce_fault(node, &derive->node[node->arg[0]]);
    case CLASS_ELEMENT:
    case CLASS_CHECK:
        break;
    }
    return element_fault(derive, node, row);
}

lp_status lp_derive_nodes_check(const lp_derive *derive, lp_status code, lp_error *err)
{
    if (derive->nnode < 1 || derive->nnode > LP_DERIVE_NODES_MAX || derive->ninput > LP_DERIVE_INPUTS_MAX)
        return lp_fail(err, code,
                       "a derive has %" PRIu32 " nodes and %" PRIu32 " inputs; 1 to %d and 0 to %d are legal",
                       derive->nnode, derive->ninput, LP_DERIVE_NODES_MAX, LP_DERIVE_INPUTS_MAX);
    for (uint32_t i = 0; i < derive->ninput; i++) {
        const lp_derive_input *input = &derive->input[i];
        int64_t bytes;
        if (!is_whole_bytes(input->dtype) || input->count < 1 ||
            !lp_mul(input->count, lp_dtype_bits(input->dtype) / 8, &bytes))
            return lp_fail(err, code, "input %" PRIu32 " of a derive has an illegal dtype or count", i);
    }
    for (uint32_t n = 0; n < derive->nnode; n++) {
        const char *fault = node_fault(derive, n);
        if (fault != NULL)
            return lp_fail(err, code, "node %" PRIu32 " ('%s') of a derive %s", n,
                           lp_op_name((lp_op)derive->node[n].op), fault);
        const bool is_check = derive->node[n].op == LP_OP_ALL_CLOSE;
        if (is_check && (n + 1 != derive->nnode || derive->dest != LP_NONE))
            return lp_fail(err, code, "node %" PRIu32 " ('all_close') of a derive is not the last one of a check", n);
        if (!is_check && n + 1 == derive->nnode && derive->dest == LP_NONE)
            return lp_fail(err, code, "a derive has neither a destination nor a check");
    }
    return LP_OK;
}
