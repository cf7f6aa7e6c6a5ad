/* SPDX-License-Identifier: Apache-2.0 */
/* From one expert map to another: which slot gets its expert from where. A function of the two maps alone. */
#include "replayer/expert_slots.h"

/* Places of each expert in the old map: first[e] .. first[e + 1] - 1 of `place`, in rising order. */
typedef struct holders {
    int64_t *first, *place;
} holders;

static lp_status find_holders(holders *h, const lp_expert_map *map, const lp_alloc *alloc, lp_error *err)
{
    h->first = lp_allocate_zero(alloc, ((size_t)map->count + 2) * sizeof *h->first);
    h->place = lp_allocate(alloc, ((size_t)map->count + 1) * sizeof *h->place);
    if (h->first == NULL || h->place == NULL)
        return lp_fail_memory(err);
    int64_t *next = h->first + 1; /* counts, then beginnings, then ends: each is the next one's beginning */
    for (int64_t i = 0; i < map->count; i++)
        next[map->logical[i] + 1]++;
    for (int64_t e = 0; e < map->count; e++)
        next[e + 1] += next[e];
    for (int64_t i = 0; i < map->count; i++)
        h->place[next[map->logical[i]]++] = i;
    return LP_OK;
}

/* A place on the same rank if there is one; else replicas take turns, so that readers spread over them. */
static int64_t nearest(const holders *h, int64_t expert, int64_t slots, int32_t rank)
{
    const int64_t first = h->first[expert], count = h->first[expert + 1] - first;
    for (int64_t k = 0; k < count; k++)
        if (h->place[first + k] / slots == rank)
            return h->place[first + k];
    return h->place[first + rank % count];
}

static lp_status check_map(const lp_expert_map *map, int64_t slots, lp_error *err)
{
    if (slots < 1 || map->count < 1 || map->count % slots != 0 || map->count / slots > INT32_MAX ||
        map->logical == NULL)
        return lp_fail(err, LP_E_ARGUMENT, "an expert map of %lld places is none for ranks of %lld slots",
                       (long long)map->count, (long long)slots);
    for (int64_t i = 0; i < map->count; i++)
        if (map->logical[i] < 0 || map->logical[i] >= map->count)
            return lp_fail(err, LP_E_ARGUMENT, "slot %lld of the expert map holds expert %d, which has no default slot",
                           (long long)i, map->logical[i]);
    return LP_OK;
}

lp_status lp_expert_moves(lp_expert_move *moves, int64_t *count, const lp_expert_map *from, const lp_expert_map *to,
                          int64_t slots, int32_t rank, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    holders h = {NULL, NULL};
    LP_TRY(check_map(from, slots, err));
    LP_TRY(check_map(to, slots, err));
    if (from->count != to->count || rank < 0 || rank >= to->count / slots)
        return lp_fail(err, LP_E_ARGUMENT, "the expert maps are of %lld and %lld places, or have no rank %d",
                       (long long)from->count, (long long)to->count, rank);
    lp_status status = find_holders(&h, from, p.alloc, err);
    *count = 0;
    for (int64_t s = 0; status == LP_OK && s < slots; s++) {
        const int32_t expert = to->logical[rank * slots + s];
        if (from->logical[rank * slots + s] == expert)
            continue;
        if (h.first[expert] == h.first[expert + 1]) {
            status = lp_fail(err, LP_E_INCOMPLETE, "expert %d is in no slot: it has to be loaded", expert);
            break;
        }
        const int64_t place = nearest(&h, expert, slots, rank);
        moves[(*count)++] = (lp_expert_move){
            .from_rank = (int32_t)(place / slots), .from_slot = (int32_t)(place % slots), .to_slot = (int32_t)s};
    }
    lp_release(p.alloc, h.first);
    lp_release(p.alloc, h.place);
    return status;
}
