/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes found on the device against those that the host finds: the same records, the same shadow. Then applied there,
 * as they are and through slices. Random stretches of every element size, at even and odd addresses, in windows of any
 * size; records that were damaged are refused.
 *
 *   test_device_change [SEED [ROUNDS]]     6 rounds; sanitizers want fewer
 */
#include "gpu_testing.h"
#include "replayer/device_change.h"

#include <string.h>

enum { STRETCHES = 2000, NAMES = 16 }; /* several for each block of a device */

typedef struct problem {
    lp_change_stretch stretch[STRETCHES]; /* pointers of the device */
    int64_t at[STRETCHES], shadow_at[STRETCHES];
    uint8_t flags[NAMES];
    uint8_t *was, *is; /* host: all shadows, all weights */
    uint8_t *want;     /* host: all records */
    lp_change_place want_place[STRETCHES], have_place[STRETCHES];
    int64_t want_bytes;
    uint8_t *weights, *shadow, *out; /* device */
    lp_change_stretch *list;
    uint8_t *flags_there;
    lp_change_place *place;
    uint64_t *used;
    uint32_t *damage;
    uint64_t random;
} problem;

static problem p;

static uint64_t draw(uint64_t most)
{
    return random_next(&p.random) % most;
}

/* ---- weights ---- */

static void change(uint8_t *is, const lp_change_stretch *s)
{
    const int64_t bytes = (int64_t)s->elements * s->elem;
    static const int rate[] = {2, 10, 100, 3000};
    const int every = rate[draw(4)];
    switch (bytes == 0 ? 9 : draw(6)) {
    case 0: /* here and there */
        for (uint32_t i = 0; i < s->elements; i++)
            if (draw((uint64_t)every) == 0)
                is[(int64_t)i * s->elem + (int64_t)draw(s->elem)] ^= (uint8_t)(1 + draw(255));
        break;
    case 1: /* runs */
        for (uint64_t n = 1 + draw(8); n > 0; n--) {
            const int64_t lo = (int64_t)draw((uint64_t)bytes), most = bytes - lo;
            const int64_t length = 1 + (int64_t)draw((uint64_t)most);
            for (int64_t b = lo; b < lo + length; b++)
                is[b] ^= 0x55;
        }
        break;
    case 2: /* everything */
        for (int64_t b = 0; b < bytes; b++)
            is[b] ^= 0xff;
        break;
    case 3: /* the first and the last one */
        is[0] ^= 1;
        is[bytes - 1] ^= 0x80;
        break;
    case 4: /* every other one */
        for (uint32_t i = 0; i < s->elements; i += 2)
            is[(int64_t)i * s->elem] ^= 4;
        break;
    default:
        break;
    }
}

static uint32_t draw_elements(uint32_t elem)
{
    const uint32_t most = LP_CHANGE_STRETCH / elem;
    switch (draw(4)) {
    case 0:
        return (uint32_t)draw(70);
    case 1:
        return (uint32_t)draw(most / 4 + 1);
    case 2:
        return most;
    default:
        return (uint32_t)draw(most + 1);
    }
}

static void make_problem(void)
{
    int64_t weights = 0, shadow = 0;
    for (int i = 0; i < NAMES; i++)
        p.flags[i] = (uint8_t)(draw(5) == 0 ? 0 : draw(6) == 0 ? LP_CHANGE_READ | LP_CHANGE_WHOLE : LP_CHANGE_READ);
    for (int i = 0; i < STRETCHES; i++) {
        lp_change_stretch *s = &p.stretch[i];
        s->elem = 1u << draw(4);
        s->elements = draw_elements(s->elem);
        s->name = (uint32_t)draw(NAMES);
        s->off = (int64_t)(draw(1ull << 40) * s->elem);
        weights += draw(3) == 0 ? (int64_t)draw(16) : (16 - weights % 16) % 16;
        p.at[i] = weights;
        p.shadow_at[i] = shadow;
        weights += (int64_t)s->elements * s->elem;
        shadow += ((int64_t)s->elements * s->elem + 15) / 16 * 16;
    }
    p.is = malloc((size_t)weights + 16);
    p.was = malloc((size_t)shadow + 16);
    p.want = malloc((size_t)weights + STRETCHES * 64);
    CHECK(p.is != NULL && p.was != NULL && p.want != NULL, "no memory");
    for (int64_t b = 0; b < weights + 16; b++)
        p.is[b] = (uint8_t)draw(256);
    CUDA(cudaMalloc((void **)&p.weights, (size_t)weights + 16));
    CUDA(cudaMalloc((void **)&p.shadow, (size_t)shadow + 16));
    CUDA(cudaMalloc((void **)&p.out, (size_t)weights + STRETCHES * 64));
    for (int i = 0; i < STRETCHES; i++) {
        lp_change_stretch *s = &p.stretch[i];
        memcpy(p.was + p.shadow_at[i], p.is + p.at[i], (size_t)s->elements * s->elem);
        change(p.is + p.at[i], s);
        s->from = p.weights + p.at[i];
        s->shadow = p.shadow + p.shadow_at[i];
    }
    put_device(p.weights, p.is, (size_t)weights);
    put_device(p.shadow, p.was, (size_t)shadow);
    fill_device(p.out, 0xcc, (size_t)weights + STRETCHES * 64);
    CUDA(cudaMalloc((void **)&p.list, sizeof p.stretch));
    put_device(p.list, p.stretch, sizeof p.stretch);
    CUDA(cudaMalloc((void **)&p.flags_there, NAMES));
    put_device(p.flags_there, p.flags, NAMES);
    CUDA(cudaMalloc((void **)&p.place, sizeof p.want_place));
    CUDA(cudaMalloc((void **)&p.used, sizeof *p.used));
    fill_device(p.used, 0, sizeof *p.used);
    CUDA(cudaMalloc((void **)&p.damage, sizeof *p.damage));
}

static void free_problem(void)
{
    CUDA(cudaFree(p.weights));
    CUDA(cudaFree(p.shadow));
    CUDA(cudaFree(p.out));
    CUDA(cudaFree(p.list));
    CUDA(cudaFree(p.flags_there));
    CUDA(cudaFree(p.place));
    CUDA(cudaFree(p.used));
    CUDA(cudaFree(p.damage));
    free(p.is);
    free(p.was);
    free(p.want);
}

/* ---- compare ---- */

static void find_on_host(bool writes_whole)
{
    p.want_bytes = 0;
    for (int i = 0; i < STRETCHES; i++) {
        const lp_change_stretch *s = &p.stretch[i];
        const bool whole = writes_whole || (p.flags[s->name] & LP_CHANGE_WHOLE) != 0 || s->elements == 0;
        const int64_t begin = p.want_bytes;
        if ((p.flags[s->name] & LP_CHANGE_READ) != 0)
            p.want_bytes += lp_change_put(s->name, s->off, (int)s->elem, s->elements, p.was + p.shadow_at[i],
                                          p.is + p.at[i], whole, p.want + p.want_bytes);
        p.want_place[i] = (lp_change_place){(uint32_t)begin, (uint32_t)(p.want_bytes - begin)};
    }
}

static void find_on_device(bool writes_whole)
{
    for (uint32_t first = 0; first < STRETCHES;) {
        const uint32_t left = STRETCHES - first, most = draw(3) == 0 ? left : 150;
        const uint32_t count = 1 + (uint32_t)draw(left < most ? left : most);
        const lp_change_compare c = {.stretch = p.list,
                                     .flags = p.flags_there,
                                     .place = p.place,
                                     .first = first,
                                     .used = p.used,
                                     .count = count,
                                     .out = p.out,
                                     .writes_whole = writes_whole};
        CUDA(lp_device_change_compare(&c, NULL));
        first += count;
    }
    const lp_change_table t = {.place = p.place, .count = STRETCHES, .out = p.out + p.want_bytes};
    CUDA(lp_device_change_table(&t, NULL));
    CUDA(cudaDeviceSynchronize());
}

/* Records come in any order, one behind the other. */
static void check_records(void)
{
    static uint32_t table[2 * STRETCHES + 2];
    uint64_t used;
    int64_t all = 0;
    CUDA(cudaMemcpy(p.have_place, p.place, sizeof p.have_place, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(&used, p.used, sizeof used, cudaMemcpyDeviceToHost));
    CHECK((int64_t)used == p.want_bytes, "%llu bytes of records, not %lld", (unsigned long long)used,
          (long long)p.want_bytes);
    uint8_t *have = malloc((size_t)p.want_bytes + 1);
    CHECK(have != NULL, "no memory");
    CUDA(cudaMemcpy(have, p.out, (size_t)p.want_bytes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < STRETCHES; i++) {
        const lp_change_place is = p.have_place[i], want = p.want_place[i];
        CHECK(is.bytes == want.bytes && (int64_t)is.begin + is.bytes <= p.want_bytes,
              "stretch %d of %u elements of %u: %u bytes at %u, not %u", i, p.stretch[i].elements, p.stretch[i].elem,
              is.bytes, is.begin, want.bytes);
        for (uint32_t b = 0; b < want.bytes; b++)
            CHECK(have[is.begin + b] == p.want[want.begin + b],
                  "stretch %d of %u elements of %u, form %u: byte %u is %02x, not %02x", i, p.stretch[i].elements,
                  p.stretch[i].elem, p.want[want.begin + 4], b, have[is.begin + b], p.want[want.begin + b]);
        all += is.bytes;
    }
    free(have);
    CHECK(all == p.want_bytes, "records have %lld bytes", (long long)all);
    CUDA(cudaMemcpy(table, p.out + p.want_bytes, sizeof table, cudaMemcpyDeviceToHost));
    CHECK(memcmp(table, p.have_place, sizeof p.have_place) == 0 && table[2 * STRETCHES] == 0 &&
              table[2 * STRETCHES + 1] == STRETCHES,
          "the table differs");
}

static void check_shadow(void)
{
    static uint8_t have[LP_CHANGE_STRETCH];
    for (int i = 0; i < STRETCHES; i++) {
        const size_t bytes = (size_t)p.stretch[i].elements * p.stretch[i].elem;
        CUDA(cudaMemcpy(have, p.shadow + p.shadow_at[i], bytes, cudaMemcpyDeviceToHost));
        CHECK(memcmp(have, p.is + p.at[i], bytes) == 0, "the shadow of stretch %d differs", i);
    }
}

/* ---- apply ---- */

/* Destinations: each stretch whole, or in rows that lie apart, with a gap that nobody takes before the last third. */
typedef struct destination {
    int64_t at, row, pitch;
    uint32_t first, targets;
} destination;

static int64_t place(const destination *d, int64_t b)
{
    return d->at + (d->row == 0 ? b : b / d->row * d->pitch + b % d->row);
}

static void check_apply(bool is_damaged)
{
    static destination d[STRETCHES];
    static lp_change_target target[2 * STRETCHES];
    static lp_change_stretch list[STRETCHES];
    uint32_t targets = 0, damage = 0;
    int64_t bytes = 0;
    for (int i = 0; i < STRETCHES; i++) {
        const lp_change_stretch *s = &p.stretch[i];
        const int64_t span = (int64_t)s->elements * s->elem;
        d[i] = (destination){.at = (bytes + 15) / 16 * 16, .first = (uint32_t)i, .targets = 1};
        if (draw(3) == 0 && s->elements > 64) {
            d[i].row = (int64_t)(1 + draw(50)) * s->elem;
            d[i].pitch = d[i].row + (int64_t)draw(4) * s->elem;
        }
        bytes = d[i].at + (d[i].row == 0 ? span : (span / d[i].row + 1) * d[i].pitch);
    }
    uint8_t *base, *have = malloc((size_t)bytes + 1), *want = malloc((size_t)bytes + 1);
    CHECK(have != NULL && want != NULL, "no memory");
    CUDA(cudaMalloc((void **)&base, (size_t)bytes + 16));
    memset(want, 0, (size_t)bytes);
    for (int i = 0; i < STRETCHES; i++) {
        const lp_change_stretch *s = &p.stretch[i];
        const int64_t span = (int64_t)s->elements * s->elem;
        lp_change_target *t = &target[targets++];
        *t = (lp_change_target){.to = base + d[i].at, .lo = s->off, .run = span};
        if (d[i].row != 0) {
            t->run = d[i].row;
            t->modes = 1;
            t->extent[0] = (uint32_t)(span / d[i].row + 1);
            t->src_stride[0] = d[i].row;
            t->dst_stride[0] = d[i].pitch;
        }
        list[i] = *s;
        list[i].first_target = d[i].first;
        list[i].targets = 1;
        for (int64_t b = 0; b < span; b++)
            want[place(&d[i], b)] = p.was[p.shadow_at[i] + b];
    }
    put_device(base, want, (size_t)bytes);
    for (int i = 0; i < STRETCHES && !is_damaged; i++)
        for (int64_t b = 0; b < (int64_t)list[i].elements * list[i].elem && p.flags[list[i].name] == 1; b++)
            want[place(&d[i], b)] = p.is[p.at[i] + b];
    lp_change_target *targets_there;
    CUDA(cudaMalloc((void **)&targets_there, sizeof target));
    put_device(targets_there, target, sizeof target);
    put_device(p.list, list, sizeof list);
    fill_device(p.damage, 0, sizeof *p.damage);
    if (is_damaged) { /* every head says another form */
        for (int i = 0; i < STRETCHES; i++)
            if (p.have_place[i].bytes > 0) {
                const uint8_t form = 77;
                put_device(p.out + p.have_place[i].begin + 4, &form, 1);
            }
    }
    const lp_change_apply a = {.frame = p.out,
                               .bytes = p.want_bytes + 8 * STRETCHES + 8,
                               .count = STRETCHES,
                               .stretch = p.list,
                               .target = targets_there,
                               .flags = p.flags_there,
                               .damage = p.damage};
    CUDA(lp_device_change_apply(&a, NULL));
    CUDA(cudaMemcpy(&damage, p.damage, sizeof damage, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(have, base, (size_t)bytes, cudaMemcpyDeviceToHost));
    CHECK(damage == (is_damaged ? 1u : 0u), "damage is %u", damage);
    for (int i = 0; i < STRETCHES; i++)
        for (int64_t b = 0; b < (int64_t)list[i].elements * list[i].elem; b++)
            CHECK(have[place(&d[i], b)] == want[place(&d[i], b)],
                  "stretch %d of %u elements of %u, rows of %lld: byte %lld differs", i, list[i].elements, list[i].elem,
                  (long long)d[i].row, (long long)b);
    CUDA(cudaFree(base));
    CUDA(cudaFree(targets_there));
    free(have);
    free(want);
}

int main(int argc, char **argv)
{
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const int rounds = argc > 2 ? atoi(argv[2]) : 6;
    need_gpu();
    for (int round = 0; round < rounds; round++) {
        p.random = seed * 7919 + (uint64_t)round + 1;
        printf("seed %llu, round %d\n", (unsigned long long)seed, round);
        fflush(stdout);
        make_problem();
        find_on_host(round == 1);
        find_on_device(round == 1);
        check_records();
        check_shadow();
        check_apply(false);
        check_apply(true);
        free_problem();
    }
    printf("records and what they do are those of the host\n");
    return 0;
}
