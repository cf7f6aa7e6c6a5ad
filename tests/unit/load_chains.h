/* SPDX-License-Identifier: Apache-2.0 */
/* Beds for chains of loads: memory in the host or on a device, with its plan, what it was loaded from, and what it must
 * hold; and sessions of some names in any order, split and company. */
#ifndef LOADPLAN_LOAD_CHAINS_H
#define LOADPLAN_LOAD_CHAINS_H

#include "cold_device.h"
#include "device_testing.h"
#include "random_worlds.h"

enum { SETS = 3, BEDS = 2 };

/* Memory with its plan, and what it must hold. */
typedef struct bed {
    bool on_device;
    fake_device fake;
    failing_once memory; /* of the plan */
    lp_alloc alloc;
    lp_platform platform;
    device_kit k;
    payload near[SETS], block[SETS]; /* the sets in memory of the device, and the blocks that they lie in */
    image live, want;
    lp_plan *plan;
    uint8_t *now[SOURCES_MAX]; /* bytes that each tensor was loaded from last */
    bool is_known;             /* now[] says what memory holds, except for what loads that did not end well wrote */
    bool is_whole;             /* and there are none of these */
} bed;

typedef struct chain {
    world w;
    payload set[SETS];
    char folder[SETS][64];
    lp_checkpoint *file[SETS];
    bed bed[BEDS];
    image dummy; /* what a dummy load leaves */
    bool has_dummy;
    char done[2048]; /* for messages */
} chain;

/* ---- a kit in the host's memory ---- */

static inline void *host_kit_take(void *context, int64_t bytes)
{
    (void)context;
    void *memory = malloc((size_t)bytes + 1);
    assert_non_null(memory);
    return memory;
}

static inline void host_kit_give(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static inline void host_kit_bind(void *context, lp_plan **out, world *w, const lp_destination_memory *memory,
                                 const lp_bind_options *o)
{
    (void)context;
    assert_ok(w, lp_bind(out, w->trace, NULL, memory, w->ndest, o, &w->err));
}

static inline void host_kit_settle(void *context)
{
    (void)context;
}

/* ---- what memory must hold ---- */

static inline image copy_image(const world *w, const image *from)
{
    image m = new_image(w);
    for (int i = 0; i < w->ndest; i++)
        memcpy(m.data[i], from->data[i], (size_t)w->dest[i].storage_bytes);
    return m;
}

/* Destinations of which some logical byte differs. */
static int64_t count_changed(const world *w, const image *a, const image *b)
{
    int64_t changed = 0;
    for (int i = 0; i < w->ndest; i++) {
        const dest *d = &w->dest[i];
        bool differs = false;
        for (int64_t r = 0; r < d->shape[0]; r++)
            for (int64_t k = 0; k < d->shape[1]; k++) {
                const int64_t at = d->offset + r * d->stride[0] + k * d->stride[1];
                differs = differs || memcmp(a->data[i] + at, b->data[i] + at, (size_t)elem(d->dtype)) != 0;
            }
        changed += differs;
    }
    return changed;
}

/* Whatever memory holds is what the next load finds. */
static inline void take_as_it_is(chain *c, bed *b)
{
    b->k.settle(b->k.context);
    for (int i = 0; i < c->w.ndest; i++)
        b->k.get(b->k.context, b->want.data[i], b->live.data[i], c->w.dest[i].storage_bytes);
}

static inline void check_loaded(chain *c, bed *b, bool is_cold)
{
    payload p;
    for (int i = 0; i < c->w.nsource; i++)
        p.data[i] = b->now[i];
    for (int i = 0; is_cold && i < c->w.ndest; i++)
        memset(b->want.data[i], 0, (size_t)c->w.dest[i].storage_bytes);
    model_load(&c->w, &p, &b->want);
    assert_device_image(&b->k, &c->w, &b->live, &b->want, c->done);
}

/* ---- beds ---- */

static inline void bind_bed(chain *c, bed *b)
{
    static const int64_t staging[] = {1 << 20, 1 << 16, 8192}, spill[] = {0, 1 << 20, 1 << 16};
    const int64_t n = pick(&c->w, 3);
    lp_bind_options o = {.platform = &b->platform, .threads = 1};
    if (b->on_device) {
        o.staging = staging[n];
        o.spill = spill[n];
        b->fake.is_bound = false;
    }
    b->plan = bind_device(&b->k, &c->w, &b->live, &o);
}

static inline void open_bed(chain *c, bed *b, bool on_device)
{
    b->on_device = on_device;
    if (on_device)
        b->k = open_kit(&b->fake);
    else
        b->k = (device_kit){NULL,          host_kit_take, host_kit_give,   fake_kit_copy,
                            fake_kit_copy, host_kit_bind, host_kit_settle, NULL};
    b->memory = (failing_once){.countdown = -1};
    b->alloc = (lp_alloc){.size = sizeof b->alloc, .context = &b->memory, .resize = failing_once_resize};
    b->platform = (lp_platform){.alloc = &b->alloc};
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < c->w.nsource; k++) {
            b->block[i].data[k] = b->k.take(b->k.context, c->w.source[k].bytes + 16);
            b->near[i].data[k] = b->block[i].data[k] + pick(&c->w, 5) * 4;
            b->k.put(b->k.context, b->near[i].data[k], c->set[i].data[k], c->w.source[k].bytes);
        }
    b->live = device_image(&b->k, &c->w);
    b->want = new_image(&c->w);
    for (int i = 0; i < c->w.ndest; i++)
        memset(b->live.data[i], 0x5a, (size_t)c->w.dest[i].storage_bytes);
    take_as_it_is(c, b);
    bind_bed(c, b);
}

static inline void close_bed(chain *c, bed *b)
{
    lp_plan_close(b->plan);
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < c->w.nsource; k++)
            b->k.give(b->k.context, b->block[i].data[k]);
    free_device_image(&b->k, &c->w, &b->live);
    free_image(&c->w, &b->want);
    if (!b->on_device)
        return;
    assert_int_equal(b->fake.blocks, 0);
    fake_end(&b->fake);
}

static inline void open_chain(chain *c, uint64_t seed, void (*make)(world *w, uint64_t seed))
{
    memset(c, 0, sizeof *c);
    make(&c->w, seed);
    failing_seed = seed;
    for (int i = 0; i < SETS; i++) {
        char path[96];
        c->set[i] = make_payload(&c->w);
        snprintf(c->folder[i], sizeof c->folder[i], "/tmp/loadplan-chain-XXXXXX");
        assert_non_null(mkdtemp(c->folder[i]));
        snprintf(path, sizeof path, "%s/model.safetensors", c->folder[i]);
        (void)write_world(&c->w, &c->set[i], path);
        assert_ok(&c->w, lp_checkpoint_open(&c->file[i], c->folder[i], &c->w.err));
    }
    for (int i = 0; i < BEDS; i++)
        open_bed(c, &c->bed[i], (seed + (uint64_t)i) % 2 == 1 || seed % 4 == 3);
    c->dummy = new_image(&c->w);
}

static inline void close_chain(chain *c)
{
    for (int i = 0; i < BEDS; i++)
        close_bed(c, &c->bed[i]);
    for (int i = 0; i < SETS; i++) {
        char path[96];
        lp_checkpoint_close(c->file[i]);
        snprintf(path, sizeof path, "%s/model.safetensors", c->folder[i]);
        unlink(path);
        rmdir(c->folder[i]);
        free_payload(&c->w, &c->set[i]);
    }
    free_image(&c->w, &c->dummy);
    free_world(&c->w);
}

static inline void note(chain *c, const bed *b, const char *what)
{
    const size_t used = strlen(c->done);
    snprintf(c->done + used, sizeof c->done - used, "%s%s%d", what, b->on_device ? "@" : "", (int)(b - c->bed));
}

/* ---- loads ---- */

/* One session: which names of which set, and how. */
typedef struct turn {
    bed *b;
    lp_session_options o;
    int set;
    bool is_in[SOURCES_MAX];
    const char *subset[SOURCES_MAX];
    lp_session *s;
} turn;

static inline void all_names(chain *c, turn *r, bed *b, lp_load_mode mode)
{
    *r = (turn){.b = b, .set = (int)pick(&c->w, SETS)};
    r->o = (lp_session_options){.mode = mode, .digests = pick(&c->w, 2) == 0, .stream = b->k.stream};
    for (int i = 0; i < c->w.nsource; i++)
        r->is_in[i] = true;
}

static inline void some_names(chain *c, turn *r, bed *b, lp_load_mode mode)
{
    all_names(c, r, b, mode);
    r->o.subset = r->subset;
    for (int i = 0; i < c->w.nsource; i++) {
        r->is_in[i] =
            pick(&c->w, 3) > 0 && lp_plan_use(b->plan, lp_plan_handle(b->plan, c->w.source[i].name)) == LP_USE_LOADED;
        if (r->is_in[i])
            r->subset[r->o.subset_count++] = c->w.source[i].name;
    }
}

/* Pieces of the turns' names, side by side, up to `most` of them; what has no room comes again later. */
static inline lp_status push_turns(chain *c, turn *r, int turns, int most)
{
    typedef struct slice {
        piece piece;
        turn *r;
    } slice;
    slice *list = malloc((size_t)turns * 600 * sizeof *list);
    piece cut[600];
    int count = 0;
    lp_status status = LP_OK;
    for (int n = 0; n < turns; n++) {
        const int pieces = cut_pieces(&c->w, cut, 600, pick(&c->w, 2) == 0);
        for (int i = 0; i < pieces; i++) {
            if (!r[n].is_in[cut[i].source])
                continue;
            const int at = (int)pick(&c->w, count + 1);
            list[count] = list[at];
            list[at] = (slice){cut[i], &r[n]};
            count++;
        }
    }
    while (count > 0 && status == LP_OK && most > 0) {
        int kept = 0, i = 0;
        for (; i < count && status == LP_OK && most > 0; i++, most--) {
            turn *x = list[i].r;
            status = push_piece(&x->b->k, &c->w, x->s, &c->set[x->set], &x->b->near[x->set], &list[i].piece);
            if (status != LP_E_LIMIT)
                continue;
            list[kept++] = list[i];
            status = LP_OK;
        }
        assert_true(kept < count); /* else no order would fit the budget */
        for (; i < count && most > 0; i++)
            list[kept++] = list[i];
        count = kept;
    }
    free(list);
    return status;
}

static inline lp_status push_turn(chain *c, turn *r)
{
    const int64_t way = r->o.subset == NULL ? pick(&c->w, 4) : 3;
    if (way == 0)
        return lp_push_checkpoint(r->s, c->file[r->set], &c->w.err);
    if (way > 1)
        return push_turns(c, r, 1, INT32_MAX);
    push_device_many(&c->w, r->s, r->b->plan, &c->set[r->set], &r->b->near[r->set], true);
    return LP_OK;
}

/* After finish. */
static inline void note_loaded(chain *c, turn *r, const lp_report *report)
{
    bed *b = r->b;
    image before = copy_image(&c->w, &b->want);
    for (int i = 0; i < c->w.nsource; i++)
        if (r->is_in[i])
            b->now[i] = c->set[r->set].data[i];
    check_loaded(c, b, r->o.mode == LP_COLD);
    if (r->o.digests)
        assert_int_equal(report->tensors_changed, count_changed(&c->w, &before, &b->want));
    b->is_known = true;
    b->is_whole = b->is_whole || r->o.subset == NULL;
    free_image(&c->w, &before);
}

static inline void note_broken(chain *c, bed *b)
{
    take_as_it_is(c, b);
    b->is_whole = false;
}

#endif
