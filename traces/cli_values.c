/* SPDX-License-Identifier: Apache-2.0 */
/* What a command asks of its options: texts, flags, numbers, sizes and ranks; and what was given though nobody asked.
 */
#include "traces/base.h"
#include "traces/cli_private.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static const char *value_of(const lp_cli *cli, const char *name)
{
    lp_cli_state *s = cli->state;
    for (int i = 0; i < cli->command->option_count; i++)
        if (strcmp(cli->command->options[i].name, name) == 0) {
            s->asked[i] = true;
            return s->value[i];
        }
    abort(); /* a command asks for an option that is not in its table */
}

void lp_cli_warn_unasked(lp_cli *cli)
{
    const lp_cli_state *s = cli->state;
    for (int i = 0; i < cli->command->option_count; i++) {
        const lp_option *o = &cli->command->options[i];
        /* -f lets a file be replaced where there is one: it asks for nothing. */
        if (s->value[i] != NULL && !s->asked[i] && o->letter != 'f')
            lp_cli_warn(cli, "--%s%s means nothing here", o->value == NULL && s->value[i][0] == '0' ? "no-" : "",
                        o->name);
    }
}

const char *lp_cli_text(const lp_cli *cli, const char *name, const char *fallback)
{
    const char *value = value_of(cli, name);
    return value != NULL ? value : fallback;
}

bool lp_cli_flag(const lp_cli *cli, const char *name, bool fallback)
{
    const char *value = value_of(cli, name);
    return value != NULL ? value[0] == '1' : fallback;
}

static bool parse_integer(const char *text, int64_t *value, const char **rest)
{
    char *end;
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    if (digits[0] < '0' || digits[0] > '9') /* strtoll takes spaces too */
        return false;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (errno != 0)
        return false;
    *value = v;
    *rest = end;
    return true;
}

bool lp_cli_integer(lp_cli *cli, const char *name, int64_t fallback, int64_t least, int64_t most, int64_t *value)
{
    const char *text = value_of(cli, name), *rest = "";
    *value = fallback;
    if (text == NULL)
        return true;
    if (!parse_integer(text, value, &rest) || *rest != '\0' || *value < least || *value > most) {
        lp_cli_usage(cli, "--%s takes a whole number from %" PRId64 " to %" PRId64 ", not '%s'", name, least, most,
                     lp_cli_clean(text));
        return false;
    }
    return true;
}

bool lp_cli_bytes(lp_cli *cli, const char *name, int64_t fallback, int64_t *value)
{
    const char *text = value_of(cli, name), *rest = "";
    *value = fallback;
    if (text == NULL)
        return true;
    int64_t number;
    bool ok = parse_integer(text, &number, &rest) && number >= 0;
    int shift = 0;
    if (ok && *rest != '\0') {
        static const char letters[] = "KMGT";
        const char *letter = strchr(letters, *rest);
        ok = letter != NULL && (rest[1] == '\0' || strcmp(rest + 1, "iB") == 0);
        if (ok)
            shift = 10 * (int)(letter - letters + 1);
    }
    if (!ok || !lp_mul(number, (int64_t)1 << shift, value)) {
        lp_cli_usage(cli, "--%s takes a size such as 512, 64K or 2GiB, not '%s'", name, lp_cli_clean(text));
        return false;
    }
    return true;
}

static int order_ranks(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* "0,4-7" as a sorted list without doubles, of at most `room` ranks below `world`. */
static bool parse_ranks(const char *text, int32_t world, int32_t room, int32_t *list, int32_t *count)
{
    int32_t n = 0;
    for (const char *p = text;; p++) {
        int64_t lo, hi;
        if (!isdigit((unsigned char)*p) || !parse_integer(p, &lo, &p))
            return false;
        hi = lo;
        if (*p == '-' && (!isdigit((unsigned char)p[1]) || !parse_integer(p + 1, &hi, &p)))
            return false;
        if (lo > hi || hi >= world || hi - lo >= room - n)
            return false;
        for (int64_t r = lo; r <= hi; r++)
            list[n++] = (int32_t)r;
        if (*p == '\0')
            break;
        if (*p != ',')
            return false;
    }
    qsort(list, (size_t)n, sizeof *list, order_ranks);
    for (int32_t i = 1; i < n; i++)
        if (list[i] == list[i - 1])
            return false;
    *count = n;
    return true;
}

enum { RANKS_LISTED = 65536 };

bool lp_cli_ranks(lp_cli *cli, const char *name, const char *fallback, int32_t world, int32_t **ranks, int32_t *count)
{
    const char *text = lp_cli_text(cli, name, fallback);
    /* No trace holds more; the layout of a hostile one may have 2^31. */
    const int32_t room = world < RANKS_LISTED ? world : RANKS_LISTED;
    int32_t *list = room > 0 ? malloc((size_t)room * sizeof *list) : NULL;
    bool ok = list != NULL;
    if (ok && strcmp(text, "all") == 0) {
        for (int32_t n = 0; n < room; n++)
            list[n] = n;
        *count = room;
    } else {
        ok = ok && parse_ranks(text, world, room, list, count);
    }
    if (!ok) {
        free(list);
        lp_cli_usage(cli, "--%s takes ranks such as 3, 0-7, 0,2 or all, below %d, not '%s'", name, (int)world,
                     lp_cli_clean(text));
        return false;
    }
    *ranks = list;
    return true;
}
