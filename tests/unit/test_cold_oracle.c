/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle over all ways to load at once: chains of loads of A and B into one memory, each by the pipeline of cold
 * starts, by a session that reads the files, or by a session into which pieces are pushed, in any mode, order, split
 * over files and number of readers. Whatever came before, memory is that of the model afterwards; so cold(B) is a
 * reload from A to B, and that reload again. Worlds have fills, casts, replication, overlaps and derives.
 */
#include "cold_device.h"
#include "random_worlds.h"

enum { WORLDS = 40, LOADS = 7, FILES_MOST = 3 };

/* A checkpoint: the same sources with other bytes, spread over files in another way. */
typedef struct side {
    payload p;
    image want;
    char folder[64];
    int files;
    lp_checkpoint *ck;
} side;

typedef struct bed {
    world w;
    side side[2];
    image live;
    cold_faults faults;
    lp_io io;
    lp_platform platform;
    host_device device;
    lp_cold_device table;
    lp_cold_ring *ring;
    lp_plan *plan;
    uint64_t seed;
    char done[512]; /* the chain so far, for messages */
} bed;

/* Of a shard, or with number -1 of the index. */
static void file_path(const side *s, int number, char *path, size_t room)
{
    if (number < 0)
        snprintf(path, room, "%s/model.safetensors.index.json", s->folder);
    else
        snprintf(path, room, "%s/model-%05d.safetensors", s->folder, number);
}

static void write_index(const bed *b, const side *s, const int *file)
{
    char path[96];
    file_path(s, -1, path, sizeof path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("{\"weight_map\":{", f);
    for (int i = 0; i < b->w.nsource; i++)
        fprintf(f, "%s\"%s\":\"model-%05d.safetensors\"", i > 0 ? "," : "", b->w.source[i].name, file[i]);
    fputs("}}", f);
    assert_int_equal(fclose(f), 0);
}

/* Every file has at least one source; the order inside is random. */
static void write_side(bed *b, side *s)
{
    int which[FILES_MOST][SOURCES_MAX], count[FILES_MOST] = {0}, file_of[SOURCES_MAX];
    s->files = 1 + (int)pick(&b->w, FILES_MOST);
    for (int i = 0; i < b->w.nsource; i++) {
        const int file = i < s->files ? i : (int)pick(&b->w, s->files);
        const int at = (int)pick(&b->w, count[file] + 1);
        file_of[i] = file;
        which[file][count[file]] = which[file][at];
        which[file][at] = i;
        count[file]++;
    }
    snprintf(s->folder, sizeof s->folder, "/tmp/loadplan-oracle-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    for (int i = 0; i < s->files; i++) {
        char path[96];
        file_path(s, i, path, sizeof path);
        (void)write_sources(&b->w, &s->p, path, which[i], count[i]);
    }
    write_index(b, s, file_of);
    assert_ok(&b->w, lp_checkpoint_open_with(&s->ck, s->folder, &b->platform, &b->w.err));
}

static void open_side(bed *b, side *s)
{
    s->p = make_payload(&b->w);
    s->want = new_image(&b->w);
    model_load(&b->w, &s->p, &s->want);
    write_side(b, s);
}

static void close_side(bed *b, side *s)
{
    char path[96];
    lp_checkpoint_close(s->ck);
    for (int i = -1; i < s->files; i++) {
        file_path(s, i, path, sizeof path);
        unlink(path);
    }
    rmdir(s->folder);
    free_payload(&b->w, &s->p);
    free_image(&b->w, &s->want);
}

static void open_bed(bed *b, uint64_t seed)
{
    memset(b, 0, sizeof *b);
    random_world(&b->w, seed);
    b->seed = failing_seed = seed;
    cold_open_files(&b->faults, &b->io, &b->platform);
    for (int i = 0; i < 2; i++)
        open_side(b, &b->side[i]);
    b->live = new_image(&b->w);
    b->table = host_table(&b->device);
    assert_ok(&b->w, lp_cold_ring_new(&b->ring, &b->table, &b->platform, &b->w.err));
    b->plan =
        bind_image(&b->w, &b->live, &(lp_bind_options){.platform = &b->platform, .threads = seed % 3 == 0 ? 2 : 1});
}

static void close_bed(bed *b)
{
    lp_plan_close(b->plan);
    lp_cold_ring_free(b->ring);
    assert_int_equal(atomic_load(&b->device.blocks), 0);
    for (int i = 0; i < 2; i++)
        close_side(b, &b->side[i]);
    free_image(&b->w, &b->live);
    pthread_mutex_destroy(&b->faults.lock);
    free_world(&b->w);
}

/* ---- loads ---- */

static void by_pipeline(bed *b, const side *s)
{
    world *w = &b->w;
    const lp_cold_options o = {.ring = pick(w, 2) == 0 ? b->ring : NULL,
                               .readers = (int32_t)(1 + pick(w, 8)),
                               .pinned = pick(w, 3) == 0 ? 1 : (int64_t)1 << (18 + pick(w, 4)),
                               .staging = pick(w, 2) == 0 ? 1 : (int64_t)16 << (6 + pick(w, 8)),
                               .reading = pick(w, 2) == 0 ? LP_COLD_READ_DIRECT : LP_COLD_READ_AUTO};
    lp_cold_report r;
    assert_ok(w, lp_cold_load(&b->table, b->plan, s->ck, &o, &r, &w->err));
    if (r.files_direct == 0)
        assert_int_equal(r.bytes_read, r.bytes_needed);
}

static void push_pieces(world *w, lp_session *session, const side *s)
{
    piece list[600];
    const int count = cut_pieces(w, list, 600, pick(w, 2) == 0);
    for (int i = 0; i < count; i++)
        assert_ok(w, lp_push_range(session, w->source[list[i].source].name, list[i].lo,
                                   s->p.data[list[i].source] + list[i].lo, list[i].hi - list[i].lo, &w->err));
}

static void by_session(bed *b, const side *s, lp_load_mode mode, bool from_files)
{
    world *w = &b->w;
    lp_session *session;
    assert_ok(w, lp_begin(&session, b->plan, &(lp_session_options){.mode = mode}, &w->err));
    if (from_files)
        assert_ok(w, lp_push_checkpoint_with(session, s->ck, NULL, NULL, NULL, &w->err));
    else
        push_pieces(w, session, s);
    assert_ok(w, lp_finish(session, NULL, &w->err));
    lp_session_close(session);
}

/* The pipeline, or a mode of sessions from files or by pieces. */
static void load_once(bed *b, int way, int which)
{
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    static const char *const name[] = {"pipeline",   "cold",         "direct",         "layerwise",
                                       "cold files", "direct files", "layerwise files"};
    const side *s = &b->side[which];
    b->faults.short_reads = pick(&b->w, 3) == 0;
    b->faults.interrupted = pick(&b->w, 3) == 0;
    const size_t used = strlen(b->done);
    snprintf(b->done + used, sizeof b->done - used, "%s%s %c", used > 0 ? ", " : "", name[way], 'A' + which);
    if (way == 0)
        by_pipeline(b, s);
    else
        by_session(b, s, modes[(way - 1) % 3], way > 3);
    assert_same_image(&b->w, &b->live, &s->want, b->done);
}

static void test_every_way_gives_the_model(void **state)
{
    const uint64_t first = random_first_seed((uint64_t)time(NULL) * 1000);
    (void)state;
    print_message("seed %llu\n", (unsigned long long)first);
    for (uint64_t n = 0; n < random_cases(WORLDS); n++) {
        bed b;
        open_bed(&b, first + n);
        for (int i = 0; i < b.w.ndest; i++) /* the first start finds old bytes */
            memset(b.live.data[i], 0x5a, (size_t)b.w.dest[i].storage_bytes);
        load_once(&b, n % 2 == 0 ? 0 : 1 + 3 * (int)pick(&b.w, 2), 0);
        for (int i = 1; i < LOADS; i++)
            load_once(&b, (int)pick(&b.w, 7), (int)pick(&b.w, 2));
        load_once(&b, 0, 1);
        close_bed(&b);
    }
}

/* A session that updates one name of several; false where there are not several. */
static bool refuses_a_subset(bed *b)
{
    lp_session *session = NULL;
    lp_error err;
    const char *one = NULL;
    int loaded = 0;
    for (int i = 0; i < b->w.nsource; i++)
        if (lp_plan_use(b->plan, lp_plan_handle(b->plan, b->w.source[i].name)) == LP_USE_LOADED) {
            one = b->w.source[i].name;
            loaded++;
        }
    const lp_session_options o = {.mode = LP_DIRECT, .subset = &one, .subset_count = 1};
    if (loaded < 2)
        return false;
    assert_int_equal(lp_begin(&session, b->plan, &o, &err), LP_E_POISONED);
    return true;
}

/* After a start that failed the next one is whole again, whichever way it goes; reloads are refused until then. */
static void test_after_a_failed_start(void **state)
{
    int refused = 0;
    (void)state;
    for (uint64_t seed = 500; seed < 520; seed++) {
        bed b;
        lp_error err;
        open_bed(&b, seed);
        const lp_cold_options o = {.ring = b.ring, .readers = 2};
        load_once(&b, 0, 0);
        b.faults.short_reads = b.faults.interrupted = false;
        b.faults.reads = 0;
        b.faults.fail_at = 0;
        b.faults.failure = -EIO;
        const lp_status status = lp_cold_load(&b.table, b.plan, b.side[1].ck, &o, NULL, &err);
        b.faults.fail_at = -1;
        assert_int_equal(status, b.faults.reads > 0 ? LP_E_IO : LP_OK); /* a world of fills reads nothing */
        if (status != LP_OK)
            refused += refuses_a_subset(&b);
        load_once(&b, (int)(seed % 2) * 4, 1);
        load_once(&b, 2, 0);
        close_bed(&b);
    }
    assert_true(refused > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way_gives_the_model),
        cmocka_unit_test(test_after_a_failed_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
