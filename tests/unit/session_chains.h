/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of sessions on one plan: loads of everything or of some names, in any mode, each name pushed whole, in pieces,
 * with others in one call, or read from a file; with pushes in between that must be refused, and given up now and then.
 * A load that ends leaves the bytes of the model; one that was given up says at the next begin which names it spoiled,
 * and in layerwise mode leaves every group as it was or as it was to be. Who includes this says what a device is.
 */
#ifndef LOADPLAN_SESSION_CHAINS_H
#define LOADPLAN_SESSION_CHAINS_H

#include "device_loads.h"

#include "replayer/device_cold.h"

#include <unistd.h>

enum { CHAIN_STEPS = 9, SIDES = 3, PIECES = 600 };

/* The sources with other bytes, in memory of the host and of the device and in a file. */
typedef struct side {
    payload host, device;
    char folder[64];
    lp_checkpoint *ck;
} side;

/* What became of chains. */
typedef struct chain_counts {
    int ended, given_up, refused_begin, refused_push, subsets, files, starts;
} chain_counts;

typedef struct chain {
    world w;
    device_kit k;
    chain_counts *counts;
    side side[SIDES];
    image live, want; /* want: after the last load that ended */
    lp_plan *plan;
    payload now;                               /* bytes that each source was last loaded from */
    bool is_spoiled[SOURCES_MAX], all_spoiled; /* by loads that were given up */
    bool has_loaded;                           /* once at least */
    bool is_dummy;                             /* values of nobody */
    char done[1024];                           /* the chain so far, for messages */
} chain;

/* One session. */
typedef struct chain_round {
    lp_session *s;
    lp_load_mode mode;
    const side *from;
    bool is_in[SOURCES_MAX], is_subset, has_digests;
    bool is_pushed[SOURCES_MAX]; /* at least in part */
    int64_t accepted;            /* bytes */
    bool has_read;
} chain_round;

/* ---- the bed ---- */

static inline void note(chain *c, const char *what)
{
    const size_t used = strlen(c->done);
    snprintf(c->done + used, sizeof c->done - used, "%s%s", used > 0 ? ", " : "", what);
}

static inline void file_path(const side *s, char path[96])
{
    snprintf(path, 96, "%s/model.safetensors", s->folder);
}

static inline void open_side(chain *c, side *s)
{
    char path[96];
    s->host = make_payload(&c->w);
    s->device = device_payload(&c->k, &c->w, &s->host, 0);
    snprintf(s->folder, sizeof s->folder, "/tmp/loadplan-chain-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    file_path(s, path);
    (void)write_world(&c->w, &s->host, path);
    assert_ok(&c->w, lp_checkpoint_open(&s->ck, s->folder, &c->w.err));
}

static inline void close_side(chain *c, side *s)
{
    char path[96];
    lp_checkpoint_close(s->ck);
    file_path(s, path);
    unlink(path);
    rmdir(s->folder);
    free_device_payload(&c->k, &c->w, &s->device, 0);
    free_payload(&c->w, &s->host);
}

static inline void open_chain(chain *c, const device_kit *k, uint64_t seed, const lp_bind_options *options,
                              chain_counts *counts)
{
    memset(c, 0, sizeof *c);
    random_world(&c->w, seed);
    failing_seed = seed;
    c->k = *k;
    c->counts = counts;
    for (int i = 0; i < SIDES; i++)
        open_side(c, &c->side[i]);
    c->live = device_image(&c->k, &c->w);
    c->want = new_image(&c->w);
    image old = new_image(&c->w);
    for (int i = 0; i < c->w.ndest; i++)
        memset(old.data[i], 0x5a, (size_t)c->w.dest[i].storage_bytes);
    put_image(&c->k, &c->w, &c->live, &old);
    free_image(&c->w, &old);
    c->plan = bind_device(&c->k, &c->w, &c->live, options);
    c->all_spoiled = true;
}

static inline void close_chain(chain *c)
{
    lp_plan_close(c->plan);
    free_device_image(&c->k, &c->w, &c->live);
    for (int i = 0; i < SIDES; i++)
        close_side(c, &c->side[i]);
    free_image(&c->w, &c->want);
    free_world(&c->w);
}

/* ---- the model ---- */

static inline bool is_loaded(const chain *c, int i)
{
    return lp_plan_use(c->plan, lp_plan_handle(c->plan, c->w.source[i].name)) == LP_USE_LOADED;
}

/* Memory after this session, were it to end. */
static inline image image_to_be(const chain *c, const chain_round *r)
{
    image m = new_image(&c->w);
    payload p = c->now;
    for (int i = 0; i < c->w.nsource; i++)
        if (r->is_in[i] || p.data[i] == NULL) /* NULL: nobody needs it */
            p.data[i] = r->from->host.data[i];
    for (int i = 0; i < c->w.ndest && r->mode != LP_COLD; i++)
        memcpy(m.data[i], c->want.data[i], (size_t)c->w.dest[i].storage_bytes);
    model_load(&c->w, &p, &m);
    return m;
}

static inline bool is_same_tensor(const dest *d, const uint8_t *a, const uint8_t *b)
{
    for (int64_t i = 0; i < d->shape[0]; i++)
        for (int64_t j = 0; j < d->shape[1]; j++) {
            const int64_t at = d->offset + i * d->stride[0] + j * d->stride[1];
            if (memcmp(a + at, b + at, (size_t)elem(d->dtype)) != 0)
                return false;
        }
    return true;
}

static int64_t changed_tensors(const chain *c, const image *a, const image *b)
{
    int64_t count = 0;
    for (int i = 0; i < c->w.ndest; i++)
        count += !is_same_tensor(&c->w.dest[i], a->data[i], b->data[i]);
    return count;
}

static inline bool is_clean(const chain *c)
{
    bool clean = !c->all_spoiled && !c->is_dummy;
    for (int i = 0; i < c->w.nsource; i++)
        clean = clean && !c->is_spoiled[i];
    return clean;
}

/* ---- pushes ---- */

/* One that must be refused, and change nothing. */
static inline void push_wrongly(chain *c, chain_round *r)
{
    lp_error err;
    const uint8_t none[8] = {0};
    const source *x = &c->w.source[pick(&c->w, c->w.nsource)];
    if (pick(&c->w, 2) == 0)
        assert_int_equal(lp_push_range(r->s, x->name, x->bytes - 3, none, 8, &err), LP_E_MISMATCH);
    else
        assert_int_equal(lp_push_range(r->s, "nobody", 0, none, 8, &err), LP_E_UNKNOWN_NAME);
    c->counts->refused_push++;
}

static inline void note_pushed(chain *c, chain_round *r, int i, int64_t bytes)
{
    if (!is_loaded(c, i))
        return;
    r->is_pushed[i] = true;
    r->accepted += bytes;
}

/* Whole tensors in one call; false when there was no room for all. */
static inline bool push_together(chain *c, chain_round *r, const bool chosen[SOURCES_MAX])
{
    lp_handle handle[SOURCES_MAX];
    const void *data[SOURCES_MAX];
    const bool from_host = pick(&c->w, 2) == 0;
    int64_t count = 0;
    for (int i = 0; i < c->w.nsource; i++)
        if (chosen[i]) {
            handle[count] = lp_plan_handle(c->plan, c->w.source[i].name);
            data[count++] = (from_host ? r->from->host : r->from->device).data[i];
            note_pushed(c, r, i, c->w.source[i].bytes); /* some may be refused for want of room */
        }
    const lp_status status = lp_push_many(r->s, handle, data, count, &c->w.err);
    if (status != LP_E_LIMIT)
        assert_ok(&c->w, status);
    return status == LP_OK;
}

/* Pieces in turn, refused ones again behind the others; false when no order has room. */
static inline bool push_in_pieces(chain *c, chain_round *r, piece *list, int count)
{
    while (count > 0) {
        int kept = 0;
        for (int i = 0; i < count; i++) {
            const lp_status status = push_piece(&c->k, &c->w, r->s, &r->from->host, &r->from->device, &list[i]);
            if (status == LP_E_LIMIT) {
                list[kept++] = list[i];
                continue;
            }
            assert_ok(&c->w, status);
            note_pushed(c, r, list[i].source, list[i].hi - list[i].lo);
            if (pick(&c->w, 8) == 0)
                push_wrongly(c, r);
            if (pick(&c->w, 8) == 0 && is_loaded(c, list[i].source))
                assert_int_equal(lp_push_range(r->s, c->w.source[list[i].source].name, list[i].lo,
                                               r->from->host.data[list[i].source] + list[i].lo, 1, &c->w.err),
                                 LP_E_DUPLICATE);
        }
        if (kept == count)
            return false;
        count = kept;
    }
    return true;
}

/* Some names in one call, others in pieces, the rest from the file; false when there was no room. `stop`: after about
 * so many pieces it is left at that. */
static inline bool push_all_ways(chain *c, chain_round *r, int stop)
{
    piece list[PIECES];
    bool together[SOURCES_MAX] = {false};
    const bool has_together = pick(&c->w, 2) == 0, has_files = pick(&c->w, 3) == 0;
    int kept = 0;
    const int count = cut_pieces(&c->w, list, PIECES, pick(&c->w, 3) == 0);
    for (int i = 0; i < c->w.nsource; i++)
        together[i] = r->is_in[i] && has_together && pick(&c->w, 2) == 0;
    for (int i = 0; i < count; i++)
        if (r->is_in[list[i].source] && !together[list[i].source] && (!has_files || pick(&c->w, 2) == 0))
            list[kept++] = list[i];
    if (has_together && !push_together(c, r, together))
        return false;
    if (!push_in_pieces(c, r, list, stop < kept ? stop : kept))
        return false;
    if (stop < PIECES || !has_files)
        return true;
    r->has_read = true;
    c->counts->files++;
    const lp_status status = lp_push_checkpoint(r->s, r->from->ck, &c->w.err);
    if (status != LP_E_LIMIT)
        assert_ok(&c->w, status);
    return status == LP_OK;
}

/* ---- one session ---- */

static inline void give_up(chain *c, chain_round *r)
{
    if (pick(&c->w, 2) == 0)
        lp_abort(r->s, "enough");
    lp_session_close(r->s);
    c->k.settle(c->k.context);
    for (int i = 0; i < c->w.nsource; i++)
        c->is_spoiled[i] = c->is_spoiled[i] || r->is_pushed[i];
    c->counts->given_up++;
    note(c, "given up");
}

/* Every group holds what it held or what it was to hold. */
static inline void assert_whole_groups(chain *c, const image *to_be)
{
    image have = new_image(&c->w);
    for (int i = 0; i < c->w.ndest; i++)
        c->k.get(c->k.context, have.data[i], c->live.data[i], c->w.dest[i].storage_bytes);
    for (int i = 0; i < c->w.ndest; i++) {
        bool is_old = true, is_new = true;
        for (int j = 0; j < c->w.ndest; j++) {
            const size_t bytes = (size_t)c->w.dest[j].storage_bytes;
            if (strcmp(c->w.dest[i].group, c->w.dest[j].group) != 0)
                continue;
            is_old = is_old && memcmp(have.data[j], c->want.data[j], bytes) == 0;
            is_new = is_new && memcmp(have.data[j], to_be->data[j], bytes) == 0;
        }
        if (!is_old && !is_new) {
            print_error("seed %llu: %s: group '%s' is half loaded\n", (unsigned long long)failing_seed, c->done,
                        c->w.dest[i].group);
            fail();
        }
    }
    free_image(&c->w, &have);
}

static inline void end(chain *c, chain_round *r, image *to_be)
{
    lp_report report;
    const bool was_clean = is_clean(c);
    assert_ok(&c->w, lp_finish(r->s, &report, &c->w.err));
    lp_session_close(r->s);
    if (r->has_digests && was_clean && r->mode != LP_COLD) {
        assert_int_equal(report.tensors_changed, changed_tensors(c, &c->want, to_be));
        assert_int_equal(report.tensors_changed + report.tensors_unchanged, c->w.ndest);
    }
    if (!r->has_read)
        assert_int_equal(report.bytes_pushed, r->accepted);
    for (int i = 0; i < c->w.nsource; i++)
        if (r->is_in[i]) {
            c->now.data[i] = r->from->host.data[i];
            c->is_spoiled[i] = false;
        }
    c->all_spoiled = c->all_spoiled && r->is_subset;
    c->has_loaded = true;
    c->counts->ended++;
    c->counts->subsets += r->is_subset;
    assert_device_image(&c->k, &c->w, &c->live, to_be, c->done);
    free_image(&c->w, &c->want);
    c->want = *to_be;
    *to_be = (image){{NULL}};
}

/* Chooses the names; LP_E_POISONED when others are spoiled. */
static inline lp_status choose_names(chain *c, chain_round *r, const char *subset[SOURCES_MAX], int64_t *count)
{
    bool leaves_spoiled = false;
    *count = 0;
    r->is_subset = false;
    const bool is_part = r->mode != LP_COLD && pick(&c->w, 2) == 0;
    for (int i = 0; i < c->w.nsource; i++) {
        r->is_in[i] = is_loaded(c, i) && (!is_part || pick(&c->w, 3) > 0);
        if (r->is_in[i])
            subset[(*count)++] = c->w.source[i].name;
        r->is_subset = r->is_subset || r->is_in[i] != is_loaded(c, i);
        leaves_spoiled = leaves_spoiled || (is_loaded(c, i) && !r->is_in[i] && (c->is_spoiled[i] || c->all_spoiled));
    }
    if (!r->is_subset)
        *count = -1;
    return leaves_spoiled ? LP_E_POISONED : LP_OK;
}

static inline void session(chain *c)
{
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    static const char *const name[] = {"cold", "direct", "layerwise"};
    const int m = !c->has_loaded || c->is_dummy ? 0 : (int)pick(&c->w, 3), side_number = (int)pick(&c->w, SIDES);
    chain_round r = {.mode = modes[m], .from = &c->side[side_number], .has_digests = pick(&c->w, 2) == 0};
    const char *subset[SOURCES_MAX];
    char what[64];
    int64_t count;
    const lp_status want = choose_names(c, &r, subset, &count);
    snprintf(what, sizeof what, "%s %c%s", name[m], 'A' + side_number, r.is_subset ? " in part" : "");
    note(c, what);
    const lp_session_options o = {.mode = r.mode,
                                  .subset = count >= 0 ? subset : NULL,
                                  .subset_count = count >= 0 ? count : 0,
                                  .digests = r.has_digests,
                                  .stream = c->k.stream};
    const lp_status status = lp_begin(&r.s, c->plan, &o, &c->w.err);
    if (want == LP_OK && status == LP_E_ARGUMENT && r.is_subset) { /* a staged input is left out */
        assert_non_null(strstr(c->w.err.text, "the subset leaves out"));
        c->counts->refused_begin++;
        note(c, "refused");
        return;
    }
    if (status != want)
        print_error("seed %llu: %s: %s\n", (unsigned long long)failing_seed, c->done, c->w.err.text);
    assert_int_equal(status, want);
    if (status != LP_OK) {
        c->counts->refused_begin++;
        note(c, "refused");
        return;
    }
    image to_be = image_to_be(c, &r);
    const bool was_clean = is_clean(c), stops = pick(&c->w, 4) == 0;
    if (r.mode == LP_COLD) {
        memset(c->is_spoiled, 0, sizeof c->is_spoiled);
        c->all_spoiled = true;
        c->is_dummy = false;
    }
    if (!push_all_ways(c, &r, stops ? (int)pick(&c->w, 30) : PIECES) || stops) {
        give_up(c, &r);
        if (r.mode == LP_LAYERWISE && was_clean)
            assert_whole_groups(c, &to_be);
    } else {
        end(c, &r, &to_be);
    }
    free_image(&c->w, &to_be);
}

/* ---- other ways to write the memory ---- */

static inline void dummy(chain *c)
{
    lp_session *s;
    note(c, "dummy");
    assert_ok(&c->w, lp_begin(&s, c->plan, &(lp_session_options){.mode = LP_DUMMY, .stream = c->k.stream}, &c->w.err));
    assert_ok(&c->w, lp_finish(s, NULL, &c->w.err));
    lp_session_close(s);
    c->is_dummy = true;
}

/* By the pipeline of cold starts, as ranks load that exchange nothing. */
static inline void cold_start_on(chain *c, const lp_cold_device *device)
{
    const int side_number = (int)pick(&c->w, SIDES);
    chain_round r = {.mode = LP_COLD, .from = &c->side[side_number]};
    const lp_cold_options o = {.readers = 2, .pinned = 1 << 18, .staging = (int64_t)4096 << pick(&c->w, 8)};
    note(c, "cold start");
    for (int i = 0; i < c->w.nsource; i++)
        r.is_in[i] = is_loaded(c, i);
    image to_be = image_to_be(c, &r);
    c->k.settle(c->k.context);
    assert_ok(&c->w, lp_cold_load(device, c->plan, r.from->ck, &o, NULL, &c->w.err));
    assert_device_image(&c->k, &c->w, &c->live, &to_be, c->done);
    free_image(&c->w, &c->want);
    c->want = to_be;
    for (int i = 0; i < c->w.nsource; i++) {
        c->now.data[i] = r.from->host.data[i];
        c->is_spoiled[i] = false;
    }
    c->all_spoiled = c->is_dummy = false;
    c->has_loaded = true;
    c->counts->ended++;
    c->counts->starts++;
}

/* A chain of random steps. start: a cold start that is no session, or NULL. */
static inline void run_chain(const device_kit *k, uint64_t seed, const lp_bind_options *options,
                             void (*start)(chain *c), chain_counts *counts)
{
    chain c;
    open_chain(&c, k, seed, options, counts);
    for (int step = 0; step < CHAIN_STEPS; step++) {
        const int64_t way = pick(&c.w, 16);
        if (way == 0)
            dummy(&c);
        else if (way < 3 && start != NULL)
            start(&c);
        else
            session(&c);
    }
    close_chain(&c);
}

#endif
