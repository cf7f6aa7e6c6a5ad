/* SPDX-License-Identifier: Apache-2.0 */
/* A destination must change when some byte or value that one of its records moves is another one in the rolled source.
 */
#include "replayer/rolled_verdict.h"
#include "replayer/read_names.h"
#include "replayer/rolled_io.h"

#include <fcntl.h>

enum { CAST_ELEMENTS = 256 };

/* A tensor's payload with its last element once more in front: from there it is the rolled tensor, one element on it is
 * the real one. */
typedef struct source {
    uint8_t *data;
    int64_t capacity, step;
    uint32_t name; /* LP_NONE: nothing is read yet */
    int32_t file;  /* that is open, or -1 */
    int fd;
} source;

static lp_status read_source(const lp_plan *plan, const lp_checkpoint *checkpoint, uint32_t name, source *s,
                             lp_error *err)
{
    const lp_io *io = plan->platform.io;
    if (s->name == name)
        return LP_OK;
    const lp_checkpoint_tensor *t;
    LP_TRY(lp_find_recorded(plan, checkpoint, name, &t, err));
    s->step = lp_rolled_step(t->dtype);
    void *data = s->data;
    if (!lp_grow(plan->platform.alloc, &data, &s->capacity, t->bytes + s->step, 1))
        return lp_fail_memory(err);
    s->data = data;
    if (t->bytes < s->step || t->file < 0) /* nothing to roll */
        return lp_fail_at(err, LP_E_UNSUPPORTED, t->name, -1, "'%s' has no bytes in a file", t->name);
    const char *path = lp_checkpoint_file_at(checkpoint, t->file)->path;
    if (s->file != t->file) {
        if (s->file >= 0)
            io->close(io->context, s->fd);
        s->file = -1;
        s->fd = io->open(io->context, path, O_RDONLY | O_CLOEXEC, 0);
        if (s->fd < 0)
            return lp_fail_errno(err, s->fd, "open", path);
        s->file = t->file;
    }
    LP_TRY(lp_read_exact(io, s->fd, path, s->data + s->step, t->bytes, t->file_off, err));
    memcpy(s->data, s->data + t->bytes, (size_t)s->step);
    s->name = name;
    return LP_OK;
}

typedef struct comparing {
    const lp_step *step;
    const source *source;
} comparing;

/* Non-zero at the first run that differs. */
static int compare_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const comparing *c = context;
    const uint8_t *rolled = c->source->data + c->step->src_off + src_off, *real = rolled + c->source->step;
    (void)dst_off;
    if (c->step->kind != LP_KIND_CAST)
        return memcmp(rolled, real, (size_t)(count * c->step->map->src_elem)) != 0;
    const int64_t elem = c->step->map->src_elem, cast_elem = c->step->map->dst_elem;
    for (int64_t at = 0; at < count; at += CAST_ELEMENTS) {
        const int64_t n = count - at < CAST_ELEMENTS ? count - at : CAST_ELEMENTS;
        uint64_t a[CAST_ELEMENTS], b[CAST_ELEMENTS];
        const lp_dtype from = (lp_dtype)c->step->src_dtype, to = (lp_dtype)c->step->dst_dtype;
        if (lp_cast_elements(from, rolled + at * elem, to, a, n) != LP_OK ||
            lp_cast_elements(from, real + at * elem, to, b, n) != LP_OK)
            return 1;
        if (memcmp(a, b, (size_t)(n * cast_elem)) != 0)
            return 1;
    }
    return 0;
}

static bool is_loaded_by(const lp_plan *plan, const lp_step *step)
{
    return step->stage == LP_NONE && step->kind != LP_KIND_FILL && step->map->nbox > 0 &&
           plan->entry[plan->entry_of[step->name]].use == LP_USE_LOADED;
}

lp_status lp_rolled_judge(const lp_plan *plan, const lp_checkpoint *checkpoint, uint8_t *verdict, lp_error *err)
{
    enum { ASKED = 255 };
    source s = {.name = LP_NONE, .file = -1};
    lp_status status = LP_OK;
    for (uint32_t i = 0; i < plan->rows->ndest; i++)
        verdict[i] = verdict[i] == LP_ROLLED_OTHER ? ASKED : verdict[i];
    for (int64_t i = 0; status == LP_OK && i < plan->step_count; i++) { /* by name: each is read once */
        const lp_step *step = &plan->step[i];
        if (!is_loaded_by(plan, step) || (verdict[step->dest] != ASKED && verdict[step->dest] != LP_ROLLED_SAME))
            continue;
        status = read_source(plan, checkpoint, step->name, &s, err);
        comparing c = {.step = step, .source = &s};
        if (status == LP_OK)
            verdict[step->dest] = lp_map_walk(step->map, compare_run, &c) != 0 ? LP_ROLLED_OTHER : LP_ROLLED_SAME;
    }
    for (uint32_t i = 0; i < plan->rows->ndest; i++)
        verdict[i] = verdict[i] == ASKED ? LP_ROLLED_NOT_LOADED : verdict[i];
    if (s.file >= 0)
        plan->platform.io->close(plan->platform.io->context, s.fd);
    lp_release(plan->platform.alloc, s.data);
    return status;
}
