/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model configuration that built-in loaders read: a fixed list of keys of config.json. Those present are written
 * into the trace as sorted "config.KEY=VALUE" lines, from which the same configuration can be read back where the
 * checkpoint is not. Private to recorder/.
 */
#ifndef LOADPLAN_CONFIG_H
#define LOADPLAN_CONFIG_H

#include "recorder/recorder.h"
#include "traces/base.h"

typedef struct lp_config lp_config;

/* From the text of a config.json. Other keys are ignored; a key that is missing at the top is looked for in
 * "text_config". LP_E_CORRUPT: not a JSON object, or a key of another type. */
lp_status lp_config_from_json(lp_config **out, const char *text, int64_t bytes, const lp_platform *platform,
                              lp_error *err);

/* From the configuration lines of a trace; lines that are not about the model's configuration are ignored. */
lp_status lp_config_from_lines(lp_config **out, const char *lines, const lp_platform *platform, lp_error *err);

/* Of a checkpoint: the text of the options, what the checkpoint carries, config.json in its folder, or the
 * configuration lines of the options' base trace, in this order; empty where there is none, because not every loader
 * needs one. */
lp_status lp_config_find(lp_config **out, const lp_checkpoint *checkpoint, const lp_loader_options *options,
                         const lp_platform *platform, lp_error *err);

lp_status lp_config_empty(lp_config **out, const lp_platform *platform, lp_error *err);
void lp_config_free(lp_config *config); /* NULL is allowed */

/* false, and *value untouched, when the key is absent. */
bool lp_config_integer(const lp_config *config, const char *key, int64_t *value);
bool lp_config_flag(const lp_config *config, const char *key, bool fallback);
const char *lp_config_text(const lp_config *config, const char *key); /* NULL when absent */

/* Adds the lines. */
void lp_config_lines(const lp_config *config, lp_text *out);

#endif
