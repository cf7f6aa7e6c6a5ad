/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors headers: every verdict of the reference reader, the two where ours is stricter, and what errors say.
 * Files: test_safetensors_files.c. */
#include "safetensors_testing.h"

#include <inttypes.h>

/* One line of the case file, by its name. `says` is a part of our error; NULL: we accept. */
static const struct {
    const char *name, *header;
    int64_t header_bytes; /* 0: strlen */
    int64_t data_bytes;
    const char *says;
} cases[] = {
    {"baseline", ONE, 0, 8, NULL},
    {"duplicate key, identical entries", "{" A "," A "}", 0, 8, "tensor 'a': the name appears twice"},
    {"duplicate key, last at 0", "{" ENTRY("a", "F32", "[2]", "[8,16]") "," A "}", 0, 8, "the name appears twice"},
    {"duplicate key, zero-size first", "{" ENTRY("a", "F32", "[0]", "[0,0]") "," A "}", 0, 8, "the name appears twice"},
    {"duplicate __metadata__", "{\"__metadata__\":{},\"__metadata__\":{}," A "}", 0, 8, "'__metadata__' appears twice"},
    {"duplicate dtype field", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"," F32_8 "}}", 0, 8,
     "tensor 'a': 'dtype' appears twice"},
    {"unknown field in entry", "{\"a\":{\"dtype\":\"F32\",\"x\":{\"y\":[1,2.5e3,null,true,\"z\"]}," F32_8 "}}", 0, 8,
     NULL},
    {"entry as array", "{\"a\":[\"F32\",[2],[0,8]]}", 0, 8, "tensor 'a': the entry is an array, not an object"},
    {"__metadata__ null", "{\"__metadata__\":null," A "}", 0, 8, NULL},
    {"__metadata__ {}", "{\"__metadata__\":{}," A "}", 0, 8, NULL},
    {"__metadata__ number value", "{\"__metadata__\":{\"a\":1}," A "}", 0, 8, "a string was expected"},
    {"__metadata__ null value", "{\"__metadata__\":{\"a\":null}," A "}", 0, 8, "a string was expected"},
    {"__metadata__ is a tensor entry", "{\"__metadata__\":{\"dtype\":\"F32\"," F32_8 "}}", 0, 8,
     "a string was expected"},
    {"empty tensor name", "{" ENTRY("", "F32", "[2]", "[0,8]") "}", 0, 8, NULL},
    {"name with NUL escape", "{" ENTRY("a\\u0000b", "F32", "[2]", "[0,8]") "}", 0, 8, NULL},
    {"name with raw control char", "{" ENTRY("a\001b", "F32", "[2]", "[0,8]") "}", 0, 8,
     "control character in a string"},
    {"name lone surrogate", "{" ENTRY("a\\ud800", "F32", "[2]", "[0,8]") "}", 0, 8, "lone surrogate"},
    {"shape float 2.0", TENSOR("F32", "[2.0]", "[0,8]"), 0, 8, "tensor 'a': not an unsigned integer"},
    {"shape exponent 2e0", TENSOR("F32", "[2e0]", "[0,8]"), 0, 8, "tensor 'a': not an unsigned integer"},
    {"shape negative", TENSOR("F32", "[-2]", "[0,8]"), 0, 8, "tensor 'a': not an unsigned integer"},
    {"shape leading zero 02", TENSOR("F32", "[02]", "[0,8]"), 0, 8, "tensor 'a': a number begins with 0"},
    {"shape string", TENSOR("F32", "[\"2\"]", "[0,8]"), 0, 8, "found '\"' where a number was expected"},
    {"shape > u64", TENSOR("F32", "[18446744073709551616]", "[0,8]"), 0, 8, "tensor 'a': an integer beyond 64 bits"},
    {"shape u64max,2,0 (overflow before zero)", TENSOR("F32", "[18446744073709551615,2,0]", "[0,0]"), 0, 0,
     "tensor 'a': the product of its shape overflows 64 bits"},
    {"shape 0,u64max,2 (zero first)", TENSOR("F32", "[0,18446744073709551615,2]", "[0,0]"), 0, 0, NULL},
    {"scalar shape []", TENSOR("F32", "[]", "[0,4]"), 0, 4, NULL},
    {"F4 [3]", TENSOR("F4", "[3]", "[0,2]"), 0, 2, "tensor 'a': 3 elements of F4 are not whole bytes"},
    {"F4 [2,1]", TENSOR("F4", "[2,1]", "[0,1]"), 0, 1, NULL},
    {"F6_E2M3 [4] = 3 bytes", TENSOR("F6_E2M3", "[4]", "[0,3]"), 0, 3, NULL},
    {"C64 [1] = 8 bytes", TENSOR("C64", "[1]", "[0,8]"), 0, 8, NULL},
    {"C128", TENSOR("C128", "[1]", "[0,16]"), 0, 16, "tensor 'a': unknown dtype 'C128'"},
    {"F8_E8M0", TENSOR("F8_E8M0", "[1]", "[0,1]"), 0, 1, NULL},
    {"F8_E5M2FNUZ", TENSOR("F8_E5M2FNUZ", "[1]", "[0,1]"), 0, 1, NULL},
    {"F8_E4M3FN (torch spelling)", TENSOR("F8_E4M3FN", "[1]", "[0,1]"), 0, 1, "unknown dtype 'F8_E4M3FN'"},
    {"lower-case f32", TENSOR("f32", "[2]", "[0,8]"), 0, 8, "unknown dtype 'f32'"},
    {"offsets 3 items", TENSOR("F32", "[2]", "[0,8,8]"), 0, 8, "data_offsets needs two numbers"},
    {"offsets 1 item", TENSOR("F32", "[2]", "[0]"), 0, 8, "data_offsets needs two numbers"},
    {"offsets reversed", TENSOR("F32", "[2]", "[8,0]"), 0, 8, "tensor 'a': its data begin at 8"},
    {"hole between", "{" A "," ENTRY("b", "F32", "[2]", "[12,20]") "}", 0, 20,
     "tensor 'b': its data begin at 12 where the tensors before end at 8 (hole)"},
    {"overlap by 4", "{" A "," ENTRY("b", "F32", "[2]", "[4,12]") "}", 0, 12,
     "tensor 'b': its data begin at 4 where the tensors before end at 8 (overlap)"},
    {"tied (same range)", "{" A "," ENTRY("b", "F32", "[2]", "[0,8]") "}", 0, 8, "tensor 'b': its data begin at 0"},
    {"zero-size inside another tensor", "{" A "," ENTRY("z", "F32", "[0]", "[4,4]") "}", 0, 8,
     "tensor 'z': its data begin at 4"},
    {"zero-size at [0,0] with others first", "{" A "," ENTRY("z", "F32", "[0]", "[0,0]") "}", 0, 8, NULL},
    {"zero-size past the end", "{" A "," ENTRY("z", "F32", "[0]", "[100,100]") "}", 0, 8,
     "tensor 'z': its data begin at 100"},
    {"misaligned: U8[1] then F64", "{" ENTRY("a", "U8", "[1]", "[0,1]") "," ENTRY("b", "F64", "[1]", "[1,9]") "}", 0, 9,
     NULL},
    {"header len not multiple of 8", TENSOR("U8", "[1]", "[0,1]") " ", 0, 1, NULL},
    {"trailing 1 byte", ONE, 0, 9, "has 1 byte after the last tensor"},
    {"empty {} with 0 data", "{}", 0, 0, NULL},
    {"empty {} with 1 data byte", "{}", 0, 1, "has 1 byte after the last tensor, from byte 10 on"},
    {"header length 0", "", 0, 0, "the text ends where an object was expected"},
    {"header null", "null", 0, 0, "found 'n' where an object was expected"},
    {"header trailing NULs", "{}\0\0\0", 5, 0, "found byte 0x00 where the end was expected"},
    {"header trailing garbage", "{}x", 0, 0, "found 'x' where the end was expected"},
    {"header trailing comma", "{" A ",}", 0, 8, "comma before '}'"},
    {"header leading BOM", "\xef\xbb\xbf{}", 0, 0, "found byte 0xef where an object was expected"},
    {"header leading spaces", " \t\r\n{}", 0, 0, NULL},
    {"bool shape", TENSOR("F32", "[true]", "[0,8]"), 0, 8, "found 't' where a number was expected"},
    {"missing shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 0, 8, "tensor 'a': 'shape' is missing"},
    {"missing dtype", "{\"a\":{" F32_8 "}}", 0, 8, "tensor 'a': 'dtype' is missing"},
    {"non-UTF8 name", "{\"\xff\":1}", 0, 0, "at byte 10: not UTF-8"},
    {"UTF-8 surrogate ed a0 80", "{\"\xed\xa0\x80\":1}", 0, 0, "at byte 10: not UTF-8"},
};
enum { CASE_COUNT = sizeof cases / sizeof cases[0] };

/* The tensors as the case file prints them: n=1 "a":F32[2]. */
static void describe(const lp_safetensors *s, lp_text *t)
{
    lp_text_format(t, "n=%" PRId64 " ", s->count);
    bool *is_done = calloc((size_t)s->count + 1, 1);
    for (int64_t printed = 0; printed < s->count; printed++) {
        int64_t least = -1;
        for (int64_t i = 0; i < s->count; i++)
            if (!is_done[i] && (least < 0 || strcmp(s->entry[i].name, s->entry[least].name) < 0))
                least = i;
        const lp_safetensors_entry *e = &s->entry[least];
        is_done[least] = true;
        lp_text_format(t, "%s\"", printed > 0 ? " " : "");
        for (size_t k = 0; k < e->name_bytes; k++)
            lp_text_add(t, e->name[k] != '\0' ? &e->name[k] : "\\0", e->name[k] != '\0' ? 1 : 2);
        lp_text_format(t, "\":%s[", lp_dtype_name(e->dtype));
        for (int32_t d = 0; d < e->ndim; d++)
            lp_text_format(t, "%s%" PRIu64, d > 0 ? ", " : "", e->shape[d]);
        lp_text_add(t, "]", 1);
    }
    free(is_done);
}

static void expect_accepted(const char *name, const lp_safetensors *s, const char *expected)
{
    lp_text t;
    lp_text_init(&t, NULL);
    describe(s, &t);
    const char *dots = strstr(expected, " ...");
    const size_t length = dots != NULL ? (size_t)(dots - expected) : strlen(expected);
    if (strncmp(t.data, expected, length) != 0 || (dots == NULL && t.data[length] != '\0'))
        fail_msg("%s: got %.200s, expected %s", name, t.data, expected);
    lp_text_free(&t);
}

/* Headers that are too large for the table. */
static char *made_header(const char *name, size_t *bytes, int64_t *data_bytes, const char **says)
{
    lp_text t;
    lp_text_init(&t, NULL);
    *data_bytes = 0;
    *says = NULL;
    if (strcmp(name, "rank 100000") == 0) {
        lp_text_format(&t, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1");
        for (int i = 1; i < 100000; i++)
            lp_text_add(&t, ",1", 2);
        lp_text_format(&t, "]}}");
        *data_bytes = 1;
    } else if (strcmp(name, "unknown field nested 200 deep") == 0) {
        lp_text_format(&t, "{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"xx\":");
        for (int i = 0; i < 200; i++)
            lp_text_add(&t, "[", 1);
        for (int i = 0; i < 200; i++)
            lp_text_add(&t, "]", 1);
        lp_text_format(&t, "}}");
        *data_bytes = 8;
        *says = "at byte 191: tensor 'a': nested more than 127 deep"; /* where the reference stops: column 184 */
    } else if (strncmp(name, "header length ", 14) == 0) {
        const size_t length = (size_t)strtoul(name + 14, NULL, 10);
        char *padded = malloc(length);
        assert_non_null(padded);
        memset(padded, ' ', length);
        memcpy(padded, "{}", 2);
        *bytes = length;
        return padded;
    } else {
        fail_msg("no test for the case '%s'", name);
    }
    *bytes = (size_t)t.bytes;
    return t.data;
}

static void check_case(const char *name, const char *verdict)
{
    int i = 0;
    while (i < CASE_COUNT && strcmp(cases[i].name, name) != 0)
        i++;
    lp_safetensors s;
    lp_error err = {0};
    lp_status status;
    const char *says;
    if (i < CASE_COUNT) {
        const size_t bytes = cases[i].header_bytes > 0 ? (size_t)cases[i].header_bytes : strlen(cases[i].header);
        says = cases[i].says;
        status = parse(&s, cases[i].header, bytes, cases[i].data_bytes, &err);
    } else {
        size_t bytes;
        int64_t data_bytes;
        char *header = made_header(name, &bytes, &data_bytes, &says);
        status = parse(&s, header, bytes, data_bytes, &err);
        free(header);
    }
    const bool is_stricter = strncmp(name, "duplicate key", 13) == 0 || strcmp(name, "entry as array") == 0;
    const bool is_accepted = strncmp(verdict, "ACCEPT ", 7) == 0;
    if (!is_accepted && strncmp(verdict, "REJECT ", 7) != 0)
        fail_msg("%s: cannot read its verdict '%s'", name, verdict);
    if ((status == LP_OK) != (is_accepted && !is_stricter))
        fail_msg("%s: ours %s (%s), the reference %.60s", name, lp_status_name(status), err.text, verdict);
    if (status == LP_OK) {
        expect_accepted(name, &s, verdict + 7);
        lp_safetensors_free(&s);
        return;
    }
    assert_int_equal(status, LP_E_CORRUPT);
    assert_int_equal(err.code, LP_E_CORRUPT);
    assert_true(err.byte_off >= 8);
    if (says == NULL || strstr(err.text, says) == NULL)
        fail_msg("%s: '%s' does not say '%s'", name, err.text, says != NULL ? says : "(nothing)");
}

/* "file of 5 zero bytes -> Some(HeaderTooSmall)" */
static void check_zero_file(int bytes, const char *verdict)
{
    static const char zeros[8];
    lp_safetensors s;
    lp_error err = {0};
    const char *path = in_folder("zeros");
    write_file(path, zeros, (size_t)bytes);
    const lp_status status = read_path(&s, path, NULL, &err);
    if (strstr(verdict, "HeaderTooSmall") != NULL) {
        assert_int_equal(status, LP_E_FORMAT);
        assert_non_null(strstr(err.text, "is not a safetensors file"));
    } else {
        assert_non_null(strstr(verdict, "EOF while parsing"));
        assert_int_equal(status, LP_E_CORRUPT);
        assert_non_null(strstr(err.text, "the text ends where an object was expected"));
    }
}

static void the_case_file_agrees(void **state)
{
    (void)state;
    FILE *f = fopen(TEST_CASES "/safetensors_cases.txt", "r");
    assert_non_null(f);
    char line[1024];
    int checked = 0, zero_files = 0, bytes;
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        if (sscanf(line, "file of %d zero bytes", &bytes) == 1) {
            check_zero_file(bytes, line);
            zero_files++;
            continue;
        }
        char *verdict = strstr(line, "  ");
        assert_non_null(verdict);
        *verdict++ = '\0';
        verdict += strspn(verdict, " ");
        check_case(line, verdict);
        checked++;
    }
    fclose(f);
    assert_int_equal(checked, CASE_COUNT + 4);
    assert_int_equal(zero_files, 7);
}

static void names_repeated_by_escape_are_refused(void **state)
{
    (void)state;
    lp_safetensors s;
    lp_error err;
    const char *header = "{" ENTRY("a", "F32", "[2]", "[0,8]") "," ENTRY("\\u0061", "F32", "[2]", "[8,16]") "}";
    assert_int_equal(parse(&s, header, strlen(header), 16, &err), LP_E_CORRUPT);
    assert_string_equal(err.text, "bad safetensors header in 'x.safetensors' at byte 62: tensor 'a': the name appears "
                                  "twice, first at byte 9");
    assert_string_equal(err.subject, "x.safetensors");
    assert_int_equal(err.byte_off, 62);
}

static void verdicts_on_rare_forms_are_those_of_the_reference(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t data_bytes;
        bool is_accepted;
    } rare[] = {
        {"{\"a\":{\"dtype\":{\"F32\":null}," F32_8 "}}", 8, true},
        {"{\"a\":{\"dtype\":{\"F32\":{}}," F32_8 "}}", 8, false},
        {"{\"a\":{\"dtype\":{\"F32\":null,\"F32\":null}," F32_8 "}}", 8, false},
        {"{\"a\":{\"dtype\":{}," F32_8 "}}", 8, false},
        {"{\"a\":{\"dtype\":\"F\\u0033\\u0032\",\"sh\\u0061pe\":[2],\"data_offsets\":[0,8]}}", 8, true},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," A "}", 8, true},
        {"{\"\\u005f_metadata__\":{\"k\":\"1\"}," A "}", 8, true},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":1e308}}", 8, true},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":1e309}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":0e999}}", 8, true},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":1e-99999999999}}", 8, true},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":1e99999999999}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":-}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":1.}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":.5}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":NaN}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":\"\\ud83d\\ude00\"}}", 8, true},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":\"\\ude00\"}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":\"\\ud83d\\u0041\"}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":\"\\q\"}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":\"\\u00g0\"}}", 8, false},
        {"{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":tru}}", 8, false},
        {TENSOR("F32", "[-0]", "[0,0]"), 0, false},
        {TENSOR("F32", "[18446744073709551615,0]", "[0,0]"), 0, true},
        {TENSOR("F32", "[2305843009213693952]", "[0,0]"), 0, false}, /* 2^66 bits */
        {TENSOR("F32", "[2]", "[0,18446744073709551615]"), 8, false},
        {TENSOR("F6_E3M2", "[3]", "[0,3]"), 3, false},
        {TENSOR("F4", "[]", "[0,1]"), 1, false},
        {TENSOR("F4", "[1,3]", "[0,2]"), 2, false},
        {TENSOR("F4", "[1,2]", "[0,2]"), 2, false},
        {TENSOR("I32", "[2,2]", "[0,4]"), 4, false},
        {"{\"a\":null}", 0, false},
        {"{\"a\":5}", 0, false},
        {"{\"a\"}", 0, false},
        {"{\"a\":", 0, false},
        {"{\"a", 0, false},
        {"{\"a\\", 0, false},
        {"{", 0, false},
        {"{," A "}", 8, false},
        {"{" A " " A "}", 8, false},
        {ONE ONE, 8, false},
        {"/**/{}", 0, false},
        {"\f{}", 0, false},
        {"[{}]", 0, false},
    };
    for (size_t i = 0; i < sizeof rare / sizeof rare[0]; i++) {
        lp_safetensors s;
        lp_error err = {0};
        const lp_status status = parse(&s, rare[i].header, strlen(rare[i].header), rare[i].data_bytes, &err);
        if ((status == LP_OK) != rare[i].is_accepted)
            fail_msg("%s: %s %s", rare[i].header, lp_status_name(status), err.text);
        if (status == LP_OK)
            lp_safetensors_free(&s);
    }
}

static void nesting_is_limited_where_the_reference_limits_it(void **state)
{
    (void)state;
    for (int depth = 120; depth < 132; depth++) {
        lp_text t;
        lp_text_init(&t, NULL);
        lp_text_format(&t, "{\"a\":{\"dtype\":\"F32\"," F32_8 ",\"x\":");
        for (int i = 0; i < depth; i++)
            lp_text_format(&t, i % 2 == 0 ? "[" : "{\"k\":");
        lp_text_format(&t, "1");
        for (int i = depth - 1; i >= 0; i--)
            lp_text_format(&t, i % 2 == 0 ? "]" : "}");
        lp_text_format(&t, "}}");
        lp_safetensors s;
        lp_error err = {0};
        const lp_status status = parse(&s, t.data, (size_t)t.bytes, 8, &err);
        assert_int_equal(status, depth <= 125 ? LP_OK : LP_E_CORRUPT); /* 127 with the two around it */
        if (status == LP_OK)
            lp_safetensors_free(&s);
        lp_text_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_case_file_agrees),
        cmocka_unit_test(names_repeated_by_escape_are_refused),
        cmocka_unit_test(verdicts_on_rare_forms_are_those_of_the_reference),
        cmocka_unit_test(nesting_is_limited_where_the_reference_limits_it),
    };
    return cmocka_run_group_tests(tests, make_test_folder, remove_test_folder);
}
