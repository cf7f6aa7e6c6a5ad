/* SPDX-License-Identifier: Apache-2.0 */
/* config.json, reduced to what loaders read. */
#include "recorder/config.h"

#include "traces/mistaken_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

typedef enum key_type { KEY_INTEGER, KEY_FLAG, KEY_TEXT } key_type;

typedef struct key_row {
    const char *name;
    key_type type;
} key_row;

/* Sorted: this is the order of the lines. */
static const key_row KEYS[] = {
    {"architectures", KEY_TEXT}, /* the first one */
    {"head_dim", KEY_INTEGER},
    {"hidden_size", KEY_INTEGER},
    {"intermediate_size", KEY_INTEGER},
    {"linear_key_head_dim", KEY_INTEGER},
    {"linear_num_key_heads", KEY_INTEGER},
    {"model_type", KEY_TEXT},
    {"moe_intermediate_size", KEY_INTEGER},
    {"multi_query", KEY_FLAG},
    {"n_groups", KEY_INTEGER},
    {"n_head", KEY_INTEGER},
    {"n_routed_experts", KEY_INTEGER},
    {"new_decoder_architecture", KEY_FLAG},
    {"num_attention_heads", KEY_INTEGER},
    {"num_experts", KEY_INTEGER},
    {"num_heads", KEY_INTEGER},
    {"num_hidden_layers", KEY_INTEGER},
    {"num_key_value_heads", KEY_INTEGER},
    {"num_kv_heads", KEY_INTEGER},
    {"num_local_experts", KEY_INTEGER},
    {"num_nextn_predict_layers", KEY_INTEGER},
    {"state_size", KEY_INTEGER},
    {"tie_word_embeddings", KEY_FLAG},
    {"vocab_size", KEY_INTEGER},
};
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

struct lp_config {
    const lp_alloc *alloc;
    lp_arena arena;
    bool present[KEY_COUNT];
    int64_t number[KEY_COUNT]; /* of integers and flags */
    const char *text[KEY_COUNT];
};

static int find_key(const char *name, size_t bytes)
{
    for (int i = 0; i < KEY_COUNT; i++) {
        if (strlen(KEYS[i].name) == bytes && memcmp(KEYS[i].name, name, bytes) == 0)
            return i;
    }
    return -1;
}

lp_status lp_config_empty(lp_config **out, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    lp_config *c = lp_allocate_zero(p.alloc, sizeof *c);
    *out = c;
    if (c == NULL)
        return lp_fail_memory(err);
    c->alloc = p.alloc;
    lp_arena_init(&c->arena, p.alloc);
    return LP_OK;
}

void lp_config_free(lp_config *config)
{
    if (config == NULL)
        return;
    lp_arena_free(&config->arena);
    lp_release(config->alloc, config);
}

/* Texts go into lines of the trace: one with a line break or another control character is as good as absent. */
static lp_status keep_text(lp_config *c, int key, const char *text, size_t bytes, lp_error *err)
{
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return LP_OK;
    }
    c->text[key] = lp_arena_text(&c->arena, text, bytes);
    if (c->text[key] == NULL)
        return lp_fail_memory(err);
    c->present[key] = true;
    return LP_OK;
}

static lp_status wrong_type(const char *key, const char *wanted, lp_error *err)
{
    return lp_fail_at(err, LP_E_CORRUPT, "config.json", -1, "'%s' in config.json is not %s", key, wanted);
}

static lp_status read_value(lp_config *c, int key, const json_t *value, lp_error *err)
{
    const char *name = KEYS[key].name;
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (value == NULL || json_is_null(value))
        return LP_OK;
    switch (KEYS[key].type) {
    case KEY_INTEGER:
        if (!json_is_integer(value))
            return wrong_type(name, "an integer", err);
        c->number[key] = json_integer_value(value);
        c->present[key] = true;
        return LP_OK;
    case KEY_FLAG:
        if (!json_is_boolean(value))
            return wrong_type(name, "true or false", err);
        c->number[key] = json_is_true(value);
        c->present[key] = true;
        return LP_OK;
    case KEY_TEXT:
        break;
    }
    if (!json_is_string(value))
        return wrong_type(name, "a string", err);
    return keep_text(c, key, json_string_value(value), json_string_length(value), err);
}

/* Python writes NaN, Infinity and -Infinity, which JSON does not have: each becomes an empty string of its length. None
 * of the keys that are read has such a value. */
static void blank_infinities(char *text, int64_t bytes)
{
    static const char *const words[] = {"NaN", "-Infinity", "Infinity"};
    bool in_string = false;
    for (int64_t i = 0; i < bytes; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        for (size_t w = 0; !in_string && w < sizeof words / sizeof *words; w++) {
            const size_t length = strlen(words[w]);
            if (i + (int64_t)length > bytes || memcmp(text + i, words[w], length) != 0)
                continue;
            memset(text + i, ' ', length);
            text[i] = text[i + 1] = '"';
            i += (int64_t)length - 1;
            break;
        }
    }
}

static lp_status parse(json_t **root, const char *text, int64_t bytes, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    json_error_t problem;
    char *copy = lp_allocate(p.alloc, (size_t)bytes + 1);
    if (copy == NULL)
        return lp_fail_memory(err);
    memcpy(copy, text, (size_t)bytes);
    blank_infinities(copy, bytes);
    /* Of two values for one key, other readers may take the other one. */
    *root = json_loadb(copy, (size_t)bytes, JSON_REJECT_DUPLICATES, &problem);
    lp_release(p.alloc, copy);
    if (*root != NULL)
        return LP_OK;
    lp_fail_at(err, LP_E_CORRUPT, "config.json", problem.position, "config.json is not JSON: %s, line %d", problem.text,
               problem.line);
    if (bytes == 0 || text[0] != '{')
        lp_hint_mistaken(err, text, (size_t)bytes);
    return LP_E_CORRUPT;
}

lp_status lp_config_from_json(lp_config **out, const char *text, int64_t bytes, const lp_platform *platform,
                              lp_error *err)
{
    lp_config *c = NULL;
    lp_status status = LP_OK;
    json_t *root;
    *out = NULL;
    LP_TRY(parse(&root, text, bytes, platform, err));
    if (!json_is_object(root)) {
        status = lp_fail_at(err, LP_E_CORRUPT, "config.json", 0, "config.json is not an object");
        goto free_root;
    }
    LP_TRY_GOTO(lp_config_empty(&c, platform, err), free_root);
    const json_t *nested = json_object_get(root, "text_config");
    for (int i = 0; i < KEY_COUNT; i++) {
        const json_t *value = json_object_get(root, KEYS[i].name);
        if ((value == NULL || json_is_null(value)) && json_is_object(nested))
            value = json_object_get(nested, KEYS[i].name);
        if (value != NULL)
            LP_TRY_GOTO(read_value(c, i, value, err), free_config);
    }
    json_decref(root);
    *out = c;
    return LP_OK;
free_config:
    lp_config_free(c);
free_root:
    json_decref(root);
    return status;
}

static const char PREFIX[] = "config.";

static lp_status read_line(lp_config *c, const char *line, size_t bytes, lp_error *err)
{
    const size_t prefix = sizeof PREFIX - 1;
    const char *equals = memchr(line, '=', bytes);
    if (equals == NULL || bytes < prefix || memcmp(line, PREFIX, prefix) != 0)
        return LP_OK;
    const int key = find_key(line + prefix, (size_t)(equals - line) - prefix);
    const char *value = equals + 1;
    const size_t value_bytes = bytes - (size_t)(value - line);
    if (key < 0)
        return LP_OK;
    switch (KEYS[key].type) {
    case KEY_FLAG:
        c->number[key] = value_bytes == 4 && memcmp(value, "true", 4) == 0;
        c->present[key] = true;
        return LP_OK;
    case KEY_INTEGER: {
        char digits[32], *end;
        if (value_bytes == 0 || value_bytes >= sizeof digits)
            return LP_OK;
        memcpy(digits, value, value_bytes);
        digits[value_bytes] = '\0';
        c->number[key] = strtoll(digits, &end, 10);
        c->present[key] = *end == '\0';
        return LP_OK;
    }
    case KEY_TEXT:
        break;
    }
    return keep_text(c, key, value, value_bytes, err);
}

lp_status lp_config_from_lines(lp_config **out, const char *lines, const lp_platform *platform, lp_error *err)
{
    lp_config *c = NULL;
    *out = NULL;
    LP_TRY(lp_config_empty(&c, platform, err));
    for (const char *line = lines; *line != '\0';) {
        const size_t bytes = strcspn(line, "\n");
        const lp_status status = read_line(c, line, bytes, err);
        if (status != LP_OK) {
            lp_config_free(c);
            return status;
        }
        line += bytes + (line[bytes] == '\n');
    }
    *out = c;
    return LP_OK;
}

bool lp_config_integer(const lp_config *config, const char *key, int64_t *value)
{
    const int i = find_key(key, strlen(key));
    if (i < 0 || !config->present[i])
        return false;
    *value = config->number[i];
    return true;
}

bool lp_config_flag(const lp_config *config, const char *key, bool fallback)
{
    const int i = find_key(key, strlen(key));
    return i >= 0 && config->present[i] ? config->number[i] != 0 : fallback;
}

const char *lp_config_text(const lp_config *config, const char *key)
{
    const int i = find_key(key, strlen(key));
    return i >= 0 && config->present[i] ? config->text[i] : NULL;
}

void lp_config_lines(const lp_config *config, lp_text *out)
{
    for (int i = 0; i < KEY_COUNT; i++) {
        if (!config->present[i])
            continue;
        switch (KEYS[i].type) {
        case KEY_INTEGER:
            lp_text_format(out, "%s%s=%" PRId64 "\n", PREFIX, KEYS[i].name, config->number[i]);
            break;
        case KEY_FLAG:
            lp_text_format(out, "%s%s=%s\n", PREFIX, KEYS[i].name, config->number[i] != 0 ? "true" : "false");
            break;
        case KEY_TEXT:
            lp_text_format(out, "%s%s=%s\n", PREFIX, KEYS[i].name, config->text[i]);
            break;
        }
    }
}
