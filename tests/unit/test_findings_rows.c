/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What check and diff say about single rows, word for word: small traces as text, and the findings as text. Each is
 * judged again with every allocation failing, so that no finding relies on memory.
 */
#include "findings_testing.h"

#include "traces/trace_dump.h"

static bool begins(const char *line, const char *word)
{
    return strncmp(line, word, strlen(word)) == 0;
}

/* A trace of one rank over the names a to f: the text of its rows, without head and END line. */
static lp_trace *trace_of(const char *rows)
{
    static const char head[] = "loadplan-trace 1000\nlayout pp=1 dp=1 tp=1 ep=0\n"
                               "name \"a\" U8 [64]\nname \"b\" U8 [64]\nname \"c\" F32 [16]\nname \"d\" F32 [16]\n"
                               "name \"e\" BF16 [16]\nname \"f\" F32 []\nscope pp=0 dp=0 tp=0\n";
    int records = 0, derives = 0, refusals = 0;
    for (const char *line = rows; *line != '\0'; line = strchr(line, '\n') + 1) {
        derives += begins(line, "derive ");
        refusals += begins(line, "refuse ");
        records +=
            begins(line, "copy ") || begins(line, "cast ") || begins(line, "replicate ") || begins(line, "fill ");
    }
    lp_text text;
    lp_text_init(&text, NULL);
    lp_text_format(&text, "%s%sEND names=6 scopes=1 records=%d derives=%d refusals=%d\n", head, rows, records, derives,
                   refusals);
    lp_trace *t = NULL;
    lp_error err = {0};
    if (lp_trace_undump(&t, text.data, (size_t)text.bytes, NULL, &err) != LP_OK)
        fail_msg("%s\n%s", err.text, text.data);
    lp_text_free(&text);
    return t;
}

static void expect_findings(const lp_findings *f, const char *expected)
{
    lp_text text;
    lp_text_init(&text, NULL);
    lp_text_add(&text, "", 0);
    for (int64_t i = 0; i < lp_findings_count(f); i++) {
        const lp_finding *x = lp_findings_at(f, i);
        if (strcmp(x->rule->id, "checkpoint_name_unused") != 0) /* no case uses all of the names */
            lp_text_format(&text, "%s: %s\n", x->rule->id, x->text);
    }
    if (strcmp(text.data != NULL ? text.data : "", expected) != 0)
        fail_msg("found:\n%s\nexpected:\n%s", text.data, expected);
    lp_text_free(&text);
}

typedef struct lp_judged {
    lp_trace *t[2];
} lp_judged;

static lp_status judge(const lp_judged *j, lp_findings **f, lp_error *err)
{
    return j->t[1] == NULL ? lp_check(f, j->t[0], err) : lp_diff(f, j->t[0], j->t[1], err);
}

static lp_status judge_once(void *context, lp_error *err)
{
    lp_findings *f = NULL;
    const lp_status status = judge(context, &f, err);
    lp_findings_free(f);
    return status;
}

static void findings_of(const char *base, const char *changed, const char *expected)
{
    lp_judged j = {{trace_of(base), changed == NULL ? NULL : trace_of(changed)}};
    lp_findings *f;
    failing_alloc faults = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &faults, .resize = failing_resize, .exact = true};
    lp_trace *judged = j.t[changed != NULL];
    const lp_alloc *usual = judged->platform.alloc;
    judged->platform.alloc = &alloc;
    assert_true(fail_every_allocation(&faults, judge_once, &j) > 0);
    judged->platform.alloc = usual;
    assert_ok(judge(&j, &f, ERR));
    expect_findings(f, expected);
    lp_findings_free(f);
    lp_trace_close(j.t[0]);
    lp_trace_close(j.t[1]);
}

/* ---- diff ---- */

#define WHOLE      "copy \"a\" -> \"w\" src=0 dst=0 map=64\n"
#define DEST(rest) "dest \"w\" U8 [4,16] bytes=64 " rest "\n"
#define PLAIN      DEST("group=\"root\"") WHOLE

static void every_declaration_is_compared(void **state)
{
    (void)state;
    findings_of(PLAIN, PLAIN, "");
    findings_of(PLAIN, DEST("group=\"late\" flags=tied+buffer slots=0:4") WHOLE,
                "dest_type_changed: 'w' declares flags tied buffer, were none\n"
                "dest_type_changed: 'w' declares commit group 'late', was 'root'\n"
                "dest_type_changed: 'w' declares 4 expert slots in dimension 0, were 0 in -1\n");
    findings_of(DEST("group=\"root\" flags=dummy dummy=0x7") WHOLE, DEST("group=\"root\" flags=dummy dummy=0x9") WHOLE,
                "dest_type_changed: 'w' declares dummy value 0x9, was 0x7\n");
    findings_of(DEST("group=\"root\" flags=no_loader"), PLAIN,
                "map_changed: 'a' now writes bytes [0, 64) of 'w', which it did not before\n"
                "dest_type_changed: 'w' declares flags none, were no_loader\n"
                "more_bytes_read: 64 more bytes of 'a' are read\n");
    findings_of(DEST("group=\"root\" slots=0:4") WHOLE, DEST("group=\"root\" slots=1:16") WHOLE,
                "dest_type_changed: 'w' declares 16 expert slots in dimension 1, were 4 in 0\n");
    findings_of(PLAIN, DEST("layout=\"l\" version=2 group=\"root\"") WHOLE,
                "layout_changed: 'w' has layout 'l' version 2, had '' version 0\n");
    findings_of(PLAIN, "dest \"w\" U8 [16,4] bytes=64 group=\"root\"\n" WHOLE,
                "dest_type_changed: 'w' is U8 [16, 4], was U8 [4, 16]\n");
    findings_of(PLAIN, "dest \"w\" I8 [4,16] bytes=64 group=\"root\"\n" WHOLE,
                "dest_type_changed: 'w' is I8 [4, 16], was U8 [4, 16]\n");
    findings_of(PLAIN, "dest \"w\" U8 [4,16] bytes=72 group=\"root\"\n" WHOLE,
                "dest_moved: 'w' lies at byte 0 of storage 'w' (72 bytes), was at byte 0 of 'w' (64 bytes)\n");
    findings_of(PLAIN, "dest \"w\" U8 [4,16] storage=\"pool\" bytes=64 group=\"root\"\n" WHOLE,
                "dest_moved: 'w' lies at byte 0 of storage 'pool' (64 bytes), was at byte 0 of 'w' (64 bytes)\n");
    findings_of(PLAIN, "dest \"w\" U8 [4,16] bytes=72 off=8 group=\"root\"\n" WHOLE,
                "dest_moved: 'w' lies at byte 8 of storage 'w' (72 bytes), was at byte 0 of 'w' (64 bytes)\n");
    findings_of(PLAIN, "dest \"w\" U8 [4,16] stride=[32,1] bytes=112 group=\"root\"\n" WHOLE,
                "dest_type_changed: 'w' is U8 [32, 1] (strides), was U8 [16, 1]\n");
}

static void every_change_of_a_record_is_told(void **state)
{
    (void)state;
#define ROOT "dest \"w\" U8 [64] bytes=64 group=\"root\"\n"
    const char *two = ROOT "copy \"a\" -> \"w\" src=0 dst=0 map=16\ncopy \"b\" -> \"w\" src=0 dst=16 map=48\n";
    findings_of(two, ROOT "copy \"a\" -> \"w\" src=4 dst=0 map=16\ncopy \"b\" -> \"w\" src=0 dst=16 map=48\n",
                "map_changed: byte 0 of 'w' and on come from byte 4 of 'a', came from byte 0\n");
    findings_of(two, ROOT "copy \"a\" -> \"w\" src=0 dst=48 map=16\ncopy \"b\" -> \"w\" src=0 dst=0 map=48\n",
                "map_changed: 'a' goes to byte 48 of 'w' and on, went to byte 0\n"
                "map_changed: 'b' goes to byte 0 of 'w' and on, went to byte 16\n");
    findings_of(two,
                ROOT "copy \"a\" -> \"w\" src=0 dst=0 map=8\ncopy \"a\" -> \"w\" src=16 dst=8 map=8\ncopy \"b\" -> "
                     "\"w\" src=0 dst=16 map=48\n",
                "map_changed: 'a' from byte 0 to byte 0 of 'w' by [s0,d0 run 8], was from 0 to 0 by [s0,d0 run 16]\n"
                "map_changed: 'a' now writes bytes [8, 16) of 'w', which it did not before\n");
    findings_of(ROOT "copy \"a\" -> \"w\" src=0 dst=0 map=8\ncopy \"a\" -> \"w\" src=16 dst=8 map=8\ncopy \"b\" -> "
                     "\"w\" src=0 dst=16 map=48\n",
                two,
                "map_changed: 'a' from byte 0 to byte 0 of 'w' by [s0,d0 run 16], was from 0 to 0 by [s0,d0 run 8]\n"
                "map_changed: the checkpoint's 'a' no longer writes bytes [8, 16) of 'w'\n");
    findings_of(two, ROOT "copy \"a\" -> \"w\" src=0 dst=0 map=4x1:4,1\ncopy \"b\" -> \"w\" src=0 dst=16 map=48\n",
                "map_changed: 'a' from byte 0 to byte 0 of 'w' by [s0,d0 (4:s1,d4) run 1], was from 0 to 0 by [s0,d0 "
                "run 16]\n");
    findings_of(two, ROOT "fill \"a\" -> \"w\" value=0x7 dst=0 map=0>1|16\ncopy \"b\" -> \"w\" src=0 dst=16 map=48\n",
                "kind_changed: 'a' into 'w' is a fill, was a copy\n");
    findings_of(ROOT "fill \"a\" -> \"w\" value=0x8 dst=0 map=0>1|16\ncopy \"b\" -> \"w\" src=0 dst=16 map=48\n",
                ROOT "fill \"a\" -> \"w\" value=0x7 dst=0 map=0>1|16\ncopy \"b\" -> \"w\" src=0 dst=16 map=48\n",
                "map_changed: 'w' is filled with 0x7, was 0x8\n");
    findings_of("dest \"w\" F32 [16] bytes=64 group=\"root\"\ncopy \"c\" -> \"w\" src=0 dst=0 map=64\n",
                "dest \"w\" F32 [16] bytes=64 group=\"root\"\ncast \"e\" -> \"w\" BF16>F32 src=0 dst=0 map=2>4|16\n",
                "map_changed: the checkpoint's 'c' no longer writes bytes [0, 64) of 'w'\n"
                "map_changed: 'e' now writes bytes [0, 64) of 'w', which it did not before\n"
                "more_bytes_read: 32 more bytes of 'e' are read\n");
    findings_of("dest \"w\" BF16 [16] bytes=32 group=\"root\"\ncast \"c\" -> \"w\" F32>BF16 src=0 dst=0 map=4>2|16\n",
                "dest \"w\" BF16 [16] bytes=32 group=\"root\"\ncopy \"c\" -> \"w\" src=0 dst=0 map=32\n",
                "kind_changed: 'c' into 'w' is a copy, was a cast (no longer cast from F32 to BF16)\n");
    findings_of(ROOT "copy \"a\" -> \"w\" src=0 dst=0 map=48 seq=1\ncopy \"b\" -> \"w\" src=0 dst=16 map=48 seq=2\n",
                ROOT "copy \"a\" -> \"w\" src=0 dst=0 map=48 seq=2\ncopy \"b\" -> \"w\" src=0 dst=16 map=48 seq=1\n",
                "map_changed: 'a' is number 2 of the names that write the same bytes of 'w', was 1\n"
                "map_changed: 'b' is number 1 of the names that write the same bytes of 'w', was 2\n");
    findings_of(two,
                ROOT "copy \"a\" -> \"w\" src=0 dst=0 map=48 seq=2\ncopy \"b\" -> \"w\" src=0 dst=16 map=48 seq=1\n",
                "map_changed: 'a' from byte 0 to byte 0 of 'w' by [s0,d0 run 48], was from 0 to 0 by [s0,d0 run 16]\n"
                "new_order_dependence: 'a' now shares bytes of 'w' with other names, so their order matters\n"
                "new_order_dependence: 'b' now shares bytes of 'w' with other names, so their order matters\n"
                "more_bytes_read: 32 more bytes of 'a' are read\n");
}

/* One derive over the four scales of c, into `out`: a maximum, or 1 where it is zero. */
#define SCALES                                                                                                         \
    "dest \"m\" F32 [1] bytes=4 group=\"root\"\ndest \"s\" F32 [16] bytes=64 group=\"root\"\n"                         \
    "copy \"c\" -> \"s\" src=0 dst=0 map=64\n"
#define MAX_OF(rest) SCALES "derive \"m\" map=4 inputs=(dest \"s\" F32 16 64) nodes=(input F32 16 0,0,0 0x0; " rest "\n"
#define USUAL        "max F32 1 0,0,0 0x0; const F32 1 0,0,0 0x3f800000; or_if_zero F32 1 1,2,0 0x0)"

static void every_change_of_a_derive_is_told(void **state)
{
    (void)state;
    const char *usual = MAX_OF(USUAL);
    findings_of(usual, usual, "");
    findings_of(usual, MAX_OF("max F32 1 0,0,0 0x0; const F32 1 0,0,0 0x40000000; or_if_zero F32 1 1,2,0 0x0)"),
                "derive_changed: the derive of 'm' has the constant 2, was 1\n");
    findings_of(usual, MAX_OF("min F32 1 0,0,0 0x0; const F32 1 0,0,0 0x3f800000; or_if_zero F32 1 1,2,0 0x0)"),
                "derive_changed: the derive of 'm' has min, was max\n");
    findings_of(usual, MAX_OF("max F32 1 0,0,0 0x0)"), "derive_changed: the derive of 'm' has 2 operations, were 4\n");
    findings_of(usual, MAX_OF("max F32 1 0,0,0 0x0; const F32 1 0,0,0 0x3f800000; or_if_zero F32 1 2,1,0 0x0)"),
                "derive_changed: the derive of 'm' has other inputs or another place\n");
    findings_of(usual, MAX_OF("max F32 1 0,0,0 0x10; const F32 1 0,0,0 0x3f800000; or_if_zero F32 1 1,2,0 0x0)"), "");
    findings_of(usual,
                SCALES "derive \"m\" map=4 inputs=(name \"d\" F32 16 64) nodes=(input F32 16 0,0,0 0x0; " USUAL "\n",
                "derive_changed: the derive of 'm' has other inputs or another place\n"
                "more_bytes_read: 64 more bytes of 'd' are read\n"
                "more_bytes_staged: 64 more bytes of 'd' are staged for derives\n");
    findings_of(usual,
                SCALES
                "derive \"m\" map=4 error=\"no\" inputs=(dest \"s\" F32 16 64) nodes=(input F32 16 0,0,0 0x0; " USUAL
                "\n",
                "derive_changed: the derive of 'm' has another error text\n");
    findings_of(usual, SCALES, "derive_changed: the derive of 'm' is gone\n");
    findings_of(SCALES, usual, "derive_changed: the derive of 'm' is new\n");
    findings_of(SCALES "derive \"m\" map=4 inputs=(dest \"s\" F32 1 4) nodes=(input F32 1 0,0,0 0x0; cast BF16 1 0,0,0 "
                       "0x0; cast F32 1 1,0,0 0x0)\n",
                SCALES "derive \"m\" map=4 inputs=(dest \"s\" F32 1 4) nodes=(input F32 1 0,0,0 0x0; cast F16 1 0,0,0 "
                       "0x0; cast F32 1 1,0,0 0x0)\n",
                "derive_changed: the derive of 'm' has other inputs or another place\n");
    findings_of(SCALES "derive \"m\" map=4 inputs=() nodes=(const F32 1 0,0,0 0x0)\n",
                SCALES "derive \"m\" map=4 inputs=() nodes=(const F32 1 0,0,0 0x3f800000)\n",
                "derive_changed: the derive of 'm' has the constant 1, was 0\n");
}

#define CHECKED(input, tolerance)                                                                                      \
    "derive check error=\"e\" inputs=(" input " F32 16 64) nodes=(input F32 16 0,0,0 0x0; const F32 1 0,0,0 "          \
    "0x3f800000; all_close - 0 0,1,0 " tolerance ")\n"

static void every_change_of_a_check_is_told(void **state)
{
    (void)state;
    const char *usual = SCALES CHECKED("dest \"s\"", "0x3727c5ac");
    findings_of(usual, SCALES CHECKED("dest \"s\"", "0x3a83126f"),
                "derive_changed: the check of 's' has the tolerance 0.00100000005, was 9.99999975e-06\n");
    findings_of(usual, SCALES CHECKED("name \"d\"", "0x3727c5ac"),
                "derive_changed: the check of 'd' is new\n"
                "derive_changed: the check of 's' is gone\n"
                "more_bytes_read: 64 more bytes of 'd' are read\n"
                "more_bytes_staged: 64 more bytes of 'd' are staged for derives\n");
    findings_of(SCALES CHECKED("name \"d\"", "0x3727c5ac"), SCALES CHECKED("name \"d\"", "0x0"),
                "derive_changed: the check of 'd' has the tolerance 0, was 9.99999975e-06\n");
    findings_of(usual, SCALES, "derive_changed: the check of 's' is gone\n");
    findings_of(SCALES "derive check error=\"e\" inputs=() nodes=(const F32 1 0,0,0 0x0; all_close - 0 0,0,0 0x0)\n",
                SCALES "derive check error=\"e\" inputs=() nodes=(const F32 1 0,0,0 0x0; all_close - 0 0,0,0 0x1)\n",
                "derive_changed: the check of 'a check' has the tolerance 1.40129846e-45, was 0\n");
    /* Two checks of one destination: the one that both have cancels, whatever stands first. */
    findings_of(SCALES CHECKED("dest \"s\"", "0x1") CHECKED("dest \"s\"", "0x2"),
                SCALES CHECKED("dest \"s\"", "0x2") CHECKED("dest \"s\"", "0x3"),
                "derive_changed: the check of 's' has the tolerance 4.20389539e-45, was 1.40129846e-45\n");
    /* What a refusal or a destination that came explains is not told again. */
    findings_of(SCALES CHECKED("name \"d\"", "0x0"), SCALES "refuse \"d\" op=\"aten.max\" reason=\"r\"\n",
                "copy_became_refusal: aten.max (r): the name now falls back to the engine on every load\n");
    findings_of(ROOT WHOLE,
                "dest \"m\" F32 [1] bytes=4 group=\"root\"\ndest \"s\" F32 [16] bytes=64 group=\"root\"\n" ROOT WHOLE
                "copy \"c\" -> \"s\" src=0 dst=0 map=64\n" CHECKED("dest \"s\"", "0x1"),
                "dest_added: 'm' is a new destination\n"
                "dest_added: 's' is a new destination\n"
                "more_bytes_read: 64 more bytes of 'c' are read\n");
}

static void what_refusals_change_is_told(void **state)
{
    (void)state;
#define REFUSED(place) DEST("group=\"root\"") "refuse \"a\" -> \"w\" map=0>1|64 op=\"aten.max\" reason=\"r\"" place "\n"
    const char *neither = DEST("group=\"root\"");
    findings_of(PLAIN, REFUSED(" at \"l.py\":7"),
                "copy_became_refusal: aten.max (r) at l.py:7: the name now falls back to the engine on every load\n");
    findings_of(PLAIN, REFUSED(""),
                "copy_became_refusal: aten.max (r): the name now falls back to the engine on every load\n");
    findings_of(REFUSED(""), PLAIN, "refusal_became_copy: 'a' was a fallback and is now loaded by the plan\n");
    findings_of(REFUSED(""), REFUSED(" at \"l.py\":7"), "");
    findings_of(neither, REFUSED(""),
                "new_refusal: aten.max (r): the name was not loaded and now falls back to the engine on every load\n");
    findings_of(REFUSED(""), neither, "map_changed: 'a' was a fallback and is now neither loaded nor refused\n");
}

/* ---- check ---- */

static void derives_in_one_storage_are_judged_by_their_bytes(void **state)
{
    (void)state;
#define POOL(name, off) "dest \"" name "\" F32 [2] storage=\"pool\" bytes=24 off=" off " group=\"root\"\n"
#define DERIVE(out, in, map)                                                                                           \
    "derive \"" out "\" map=8 inputs=(" in " F32 2 " map ") nodes=(input F32 2 0,0,0 0x0; neg F32 2 0,0,0 0x0)\n"
#define POOLS POOL("x", "0") POOL("y", "8") POOL("z", "16")
    /* Each reads the one before it: no circle, though all lie in one storage. */
    findings_of(POOLS "copy \"a\" -> \"x\" src=0 dst=0 map=8\n" DERIVE("y", "dest \"x\"", "8")
                    DERIVE("z", "dest \"y\"", "8"),
                NULL, "");
    /* x reads z through the storage of y: bytes 8 beyond y's own. */
    findings_of(POOLS DERIVE("x", "dest \"y\"", "8+0:8") DERIVE("y", "dest \"x\"", "8") DERIVE("z", "dest \"x\"", "8"),
                NULL,
                "derive_cycle: the derive of 'x' reads 'z', which waits for it in turn: neither can run first\n"
                "derive_cycle: the derive of 'z' reads 'x', which waits for it in turn: neither can run first\n");
    findings_of(POOLS DERIVE("x", "dest \"z\"", "8") DERIVE("y", "name \"c\"", "8") DERIVE("z", "dest \"x\"", "8"),
                NULL,
                "derive_cycle: the derive of 'x' reads 'z', which waits for it in turn: neither can run first\n"
                "derive_cycle: the derive of 'z' reads 'x', which waits for it in turn: neither can run first\n");
    /* Reads every other element, which the other derive does not write. */
    findings_of(
        "dest \"m\" F32 [2] bytes=8 group=\"root\"\ndest \"s\" F32 [4] bytes=16 group=\"root\"\n"
        "derive \"m\" map=8 inputs=(dest \"s\" F32 2 2x8:4,4) nodes=(input F32 2 0,0,0 0x0; neg F32 2 0,0,0 0x0)\n"
        "derive \"s\" map=0+4:2x4:8,4 inputs=(dest \"m\" F32 2 8) nodes=(input F32 2 0,0,0 0x0; neg F32 2 0,0,0 0x0)\n",
        NULL, "dest_uncovered: 8 bytes of 's' are written by nothing, the first are [0, 4)\n");
    /* Reads one element twice. */
    findings_of(
        "dest \"m\" F32 [2] bytes=8 group=\"root\"\ndest \"s\" F32 [2] bytes=8 group=\"root\"\ncopy \"c\" -> \"s\" "
        "src=0 dst=0 map=8\n"
        "derive \"m\" map=8 inputs=(dest \"s\" F32 2 2x0:4,4) nodes=(input F32 2 0,0,0 0x0; neg F32 2 0,0,0 0x0)\n",
        NULL, "");
    findings_of(
        "dest \"m\" F32 [2] bytes=8 group=\"root\"\n"
        "derive \"m\" map=8 inputs=(dest \"m\" F32 2 2x2:4,4) nodes=(input F32 2 0,0,0 0x0; neg F32 2 0,0,0 0x0)\n",
        NULL,
        "derive_not_idempotent: the derive of 'm' reads 'm', which is its own output: a second run gives something "
        "else\n");
    /* A check of what a derive and a copy write. */
    findings_of("dest \"m\" F32 [2] bytes=8 group=\"root\"\ncopy \"c\" -> \"m\" src=0 dst=0 map=8\n" DERIVE(
                    "m", "name \"d\"", "8") "derive check error=\"e\" inputs=(dest \"m\" F32 2 8) nodes=(input F32 2 "
                                            "0,0,0 0x0; const F32 1 0,0,0 0x0; all_close - 0 0,1,0 0x0)\n",
                NULL,
                "dest_overlap: 'c' and a derive both write bytes [0, 8) of 'm': which one wins depends on the order of "
                "arrival\n"
                "derive_not_idempotent: the derive of 'm' reads 'm', which is copied first and derived afterwards: a "
                "reload reads either value\n");
}

static void writers_of_every_kind_are_named(void **state)
{
    (void)state;
#define W(bytes) "dest \"w\" U8 [" #bytes "] bytes=" #bytes " group=\"root\"\n"
    findings_of(W(8) "fill \"a\" -> \"w\" value=0x1 dst=0 map=0>1|8\nfill begin -> \"w\" value=0x0 dst=4 map=0>1|4\n",
                NULL, "");
    findings_of(
        W(8) "copy \"a\" -> \"w\" src=0 dst=0 map=8 seq=1\ncopy \"b\" -> \"w\" src=0 dst=4 map=4 seq=1\n", NULL,
        "dest_overlap: 'a' and 'b' both write bytes [4, 8) of 'w': which one wins depends on the order of arrival\n");
    findings_of(
        W(8) "copy \"a\" -> \"w\" src=0 dst=0 map=8\nrefuse \"b\" -> \"w\" map=0>1|0+4:4 op=\"o\" reason=\"r\"\n", NULL,
        "non_view_op: o (r): 'b' falls back to the engine's loader on every load\n");
    findings_of(W(8) "refuse \"a\" -> \"w\" map=0>1|8 op=\"o\" reason=\"r\"\nrefuse \"b\" -> \"w\" map=0>1|0+4:4 "
                     "op=\"o\" reason=\"r\"\n",
                NULL,
                "non_view_op: o (r): 'a' falls back to the engine's loader on every load\n"
                "non_view_op: o (r): 'b' falls back to the engine's loader on every load\n");
    findings_of("dest \"w\" F32 [2] bytes=8 group=\"root\"\n" DERIVE(
                    "w", "name \"c\"", "8") "refuse \"b\" -> \"w\" map=0>1|0+4:4 op=\"o\" reason=\"r\"\n",
                NULL, "non_view_op: o (r): 'b' falls back to the engine's loader on every load\n");
    findings_of("dest \"w\" F32 [2] bytes=8 group=\"root\"\n" DERIVE("w", "name \"c\"", "8")
                    DERIVE("w", "name \"d\"", "8"),
                NULL,
                "dest_overlap: a derive and a derive both write bytes [0, 8) of 'w': which one wins depends on the "
                "order of arrival\n");
    findings_of("dest \"w\" U8 [8] bytes=16 off=4 group=\"root\"\ncopy \"a\" -> \"w\" src=0 dst=0 map=12\n", NULL,
                "shape_mismatch: 'a' writes bytes [8, 12) of 'w', which are no element of it\n");
    findings_of("dest \"w\" U8 [8] bytes=8 group=\"root\" flags=no_loader\ncopy \"a\" -> \"w\" src=0 dst=0 map=8\n",
                NULL, "dest_overlap: 'a' writes 'w', which is declared to have no loader bytes\n");
    findings_of("dest \"w\" U8 [8] bytes=8 group=\"root\" flags=no_loader\nrefuse \"a\" -> \"w\" map=0>1|8 op=\"o\" "
                "reason=\"r\"\n",
                NULL, "non_view_op: o (r): 'a' falls back to the engine's loader on every load\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_declaration_is_compared),
        cmocka_unit_test(every_change_of_a_record_is_told),
        cmocka_unit_test(every_change_of_a_derive_is_told),
        cmocka_unit_test(every_change_of_a_check_is_told),
        cmocka_unit_test(what_refusals_change_is_told),
        cmocka_unit_test(derives_in_one_storage_are_judged_by_their_bytes),
        cmocka_unit_test(writers_of_every_kind_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
