/* SPDX-License-Identifier: Apache-2.0 */
/* The stretches of a share. */
#include "replayer/sync_delta.h"

lp_status lp_delta_share(const lp_sync *s, int32_t sender, lp_pieces *out, lp_error *err)
{
    return s->share != NULL ? lp_sync_share_of(s, out, sender, NULL, NULL, err)
                            : lp_sync_share(s, out, sender, s->round.senders, NULL, NULL, err);
}

bool lp_delta_same_share(const lp_pieces *a, const lp_pieces *b)
{
    if (a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++)
        if (a->piece[i].name != b->piece[i].name || a->piece[i].lo != b->piece[i].lo ||
            a->piece[i].run != b->piece[i].run || a->piece[i].stride != b->piece[i].stride ||
            a->piece[i].count != b->piece[i].count)
            return false;
    return true;
}

static lp_status add_window(lp_delta_list *l, lp_error *err)
{
    void *items = l->window;
    if (!lp_grow(l->alloc, &items, &l->window_capacity, l->windows + 2, sizeof *l->window))
        return lp_fail_memory(err);
    l->window = items;
    l->window[l->windows++] = (uint32_t)l->count;
    return LP_OK;
}

static lp_status add_stretch(lp_delta_list *l, const lp_delta_rule *rule, const lp_change_stretch *stretch,
                             int64_t *left, lp_error *err)
{
    const int64_t room = lp_delta_room((int64_t)stretch->elements * stretch->elem);
    void *items = l->stretch;
    if (l->count == UINT32_MAX / 2)
        return lp_fail(err, LP_E_LIMIT, "the weights of a sender lie in too many parts to be compared");
    if (!lp_grow(l->alloc, &items, &l->capacity, l->count + 1, sizeof *l->stretch))
        return lp_fail_memory(err);
    l->stretch = items;
    if (room > *left) {
        LP_TRY(add_window(l, err));
        *left = rule->window;
    }
    *left -= room;
    l->stretch[l->count++] = *stretch;
    return LP_OK;
}

static lp_status add_piece(lp_delta_list *l, const lp_delta_rule *rule, const lp_sync *s, const lp_piece *p,
                           int64_t *left, lp_error *err)
{
    const lp_checkpoint_tensor *t = lp_checkpoint_at(s->catalogue, p->name);
    const int elem = lp_change_elem(t->dtype);
    const int64_t most = lp_delta_most(rule, elem);
    if (p->lo % elem != 0 || p->run % elem != 0 || p->stride % elem != 0)
        return lp_fail(err, LP_E_UNSUPPORTED, "senders hold parts of elements of '%s'", t->name);
    for (int64_t k = 0; k < p->count; k++)
        for (int64_t at = 0; at < p->run || at == 0; at += most) {
            const int64_t bytes = p->run - at < most ? p->run - at : most;
            const lp_change_stretch stretch = {.name = p->name,
                                               .off = p->lo + k * p->stride + at,
                                               .elements = (uint32_t)(bytes / elem),
                                               .elem = (uint32_t)elem};
            LP_TRY(add_stretch(l, rule, &stretch, left, err));
        }
    return LP_OK;
}

lp_status lp_delta_list_make(lp_delta_list *l, const lp_sync *s, const lp_pieces *share, lp_error *err)
{
    const lp_delta_rule rule = lp_delta_rule_of(s->bucket, share->bytes);
    int64_t left = 0;
    *l = (lp_delta_list){.alloc = s->alloc};
    lp_status status = LP_OK;
    for (int64_t i = 0; i < share->count && status == LP_OK; i++)
        status = add_piece(l, &rule, s, &share->piece[i], &left, err);
    if (status == LP_OK && l->windows == 0)
        status = add_window(l, err); /* an empty one: there is always an end */
    if (status != LP_OK) {
        lp_delta_list_free(l);
        return status;
    }
    l->window[l->windows] = (uint32_t)l->count;
    return LP_OK;
}

void lp_delta_list_free(lp_delta_list *l)
{
    lp_release(l->alloc, l->stretch);
    lp_release(l->alloc, l->window);
    *l = (lp_delta_list){.alloc = l->alloc};
}
