/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header bundles: what a checkpoint says about itself, in one small file that travels without the payload. Private.
 *
 *   "loadplan headers"      16 bytes
 *   version                 4 bytes, little endian: 1
 *   frame                   column_codec.h: raw length, digest, zstd
 *
 * The raw bytes are items up to their end: kind, file name, size of the file, content; lengths and numbers as varints.
 * Kind 1 is the head of a safetensors file (length and JSON, as they stand there), kind 2 the text of config.json.
 */
#ifndef LOADPLAN_CHECKPOINT_BUNDLE_H
#define LOADPLAN_CHECKPOINT_BUNDLE_H

#include "traces/checkpoint_catalogue.h"

#define LP_BUNDLE_MAGIC "loadplan headers"

enum {
    LP_BUNDLE_VERSION = 1,
    LP_BUNDLE_RAW_MAX = 1 << 28,
    LP_BUNDLE_FILE_MAX = 1 << 28,
    LP_BUNDLE_CONFIG_MAX = 1 << 22
};

/* Adds the tensors of the bundle at `path`, with no files and no offsets, and keeps its config.json. */
lp_status lp_checkpoint_add_bundle(lp_checkpoint *c, const char *path, lp_error *err);

/* The same from its raw bytes: what a fuzzer can reach. */
lp_status lp_bundle_read_items(lp_checkpoint *c, const uint8_t *raw, int64_t bytes, const char *path, lp_error *err);

#endif
