/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files of `loadplan layout`. */
#ifndef LOADPLAN_LAYOUT_CLI_H
#define LOADPLAN_LAYOUT_CLI_H

#include "layouts/layout_private.h"
#include "traces/cli.h"

/* Transforms the checkpoint tensors of file `in` into the layout, or back. `sizes` is NULL when they are to be taken
 * from the shapes. Returns an exit code, having complained. */
int lp_layout_transform_file(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes, const char *in,
                             const char *out, bool overwrite, bool inverse);

/* What the layout is, with its tensor and formulas where `sizes` is not NULL. Return an exit code, having complained.
 */
int lp_layout_show_text(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes);
int lp_layout_show_json(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes);

/* A picture of the layout at these sizes, as SVG. Returns an exit code, having complained. */
int lp_layout_show_svg(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes);

/* A checkpoint tensor: w1, w3, w2 or w13. */
typedef struct lp_layout_piece {
    const char *name;
    lp_shard shard;
    lp_dtype dtype;
    int32_t ndim;
    int64_t shape[3];
    int64_t bytes;
    unsigned char *data; /* NULL until it is there */
} lp_layout_piece;

enum { LP_LAYOUT_PIECES = 2 }; /* most that a layout is made of at once */

/* The bytes of a tensor, allocated from the platform; the caller releases them. */
lp_status lp_layout_read_tensor(const lp_checkpoint *ck, const lp_platform *platform, const lp_checkpoint_tensor *t,
                                unsigned char **data, lp_error *err);

/* The files of one --apply. close keeps the output when `status` is LP_OK and says so, with the name of what was
 * applied or undone; otherwise it complains of *err. It follows open whatever that returned, and returns an exit code.
 */
typedef struct lp_layout_files {
    lp_platform platform;
    lp_checkpoint *ck; /* the input */
    lp_outfile file;
} lp_layout_files;
lp_status lp_layout_open_files(lp_layout_files *f, lp_cli *cli, const char *in, const char *out, bool overwrite,
                               lp_error *err);
int lp_layout_close_files(lp_layout_files *f, lp_cli *cli, const char *name, bool inverse, lp_status status,
                          lp_error *err);

/* An entry of the metadata of a checkpoint, or NULL. */
const char *lp_layout_metadata(const lp_checkpoint *ck, const char *wanted);

/* Writes the file of a tensor in a layout, which was made of these pieces (their bytes are not looked at), or the file
 * of the pieces themselves. */
lp_status lp_layout_write(const lp_layout *layout, const lp_layout_shape *shape, const lp_layout_piece *pieces,
                          int count, const unsigned char *data, lp_outfile *file, lp_error *err);
lp_status lp_layout_write_pieces(const lp_layout_piece *pieces, int count, lp_outfile *file, lp_error *err);

/* An entry of a safetensors header; the header of a file: length, JSON, padded with spaces so that the data starts at a
 * multiple of 8. */
json_t *lp_layout_tensor_entry(lp_dtype dtype, int64_t ndim, const int64_t *shape, int64_t begin, int64_t end);
lp_status lp_layout_write_header(lp_outfile *file, json_t *header, lp_error *err);

/* ---- chains ---- */

enum { LP_CHAIN_TEXT_BYTES = 8192 }; /* more than the text of a chain or its formula takes */

/* A chain as the command line names it: an id or a text, with its unit and the sizes that were given. */
typedef struct lp_chain_request {
    const lp_chain_known *known; /* NULL for --chain */
    lp_chain chain;
    int unit_bits;
    bool pads;
    bool sized;                   /* all dimensions are given */
    int64_t shape[LP_CHAIN_DIMS]; /* of the source, in units; 0: not given */
} lp_chain_request;

/* A chain of the table, of the text of --chain, or none but a shape, for --identify. Returns 0, or an exit code having
 * complained. */
int lp_chain_read_request(lp_cli *cli, lp_chain_request *out, const lp_chain_known *known, const char *text);

/* Whether this is a chain in some notation, rather than a name. */
bool lp_layout_is_chain_text(const char *text);

/* Complains of a name that no layout has: says which names hold it, or else which is the most alike, or where a chain
 * belongs. Returns LP_EXIT_USAGE. */
int lp_layout_unknown(lp_cli *cli, const char *id);

/* Where all extents are constants the chain says its only shape itself. */
void lp_chain_take_only_shape(lp_chain_request *request);

/* `loadplan layout` with a chain of the table, or the text of --chain, or neither (--identify). */
int lp_chain_run(lp_cli *cli, const lp_chain_known *known, const char *text);

/* Shows the chain; draws it; transforms a file by it; says whether another one is the same at this shape; finds the
 * chain of a recorded permutation, or with a chain in the request (axes > 0) compares the two. Exit codes, having
 * complained. */
int lp_chain_show(lp_cli *cli, const lp_chain_request *request, bool json);
int lp_chain_transform_file(lp_cli *cli, const lp_chain_request *request, const char *in, const char *out,
                            bool overwrite, bool inverse);
int lp_chain_show_svg(lp_cli *cli, const lp_chain_request *request);

/* dtype and dimensions of the result: the source's dtype where whole elements stand side by side, else bytes. */
lp_status lp_chain_result_shape(const lp_chain_form *form, int unit, lp_dtype source, lp_dtype *dtype, int64_t *shape,
                                lp_error *err);

/* A file of one tensor; takes over `metadata`, which may be NULL. */
lp_status lp_chain_write_file(lp_outfile *file, json_t *metadata, const char *name, lp_dtype dtype, int64_t ndim,
                              const int64_t *shape, const void *data, int64_t bytes, lp_error *err);

/* Extents and the shape in units that a file was made with, where the request leaves them open. */
lp_status lp_chain_take_sizes(const lp_checkpoint *ck, lp_chain_request *request, lp_error *err);

/* That the file was made by this chain. */
lp_status lp_chain_check_made(const lp_checkpoint *ck, const lp_chain *used, lp_error *err);

/* A file of one tensor for each part of the chain into one of packets, and back; whether a file is one of packets. */
lp_status lp_chain_apply_packet(const lp_chain_request *request, const lp_checkpoint *ck, const lp_platform *platform,
                                lp_outfile *file, lp_error *err);
lp_status lp_chain_undo_packet(const lp_chain_request *request, const lp_checkpoint *ck, const lp_platform *platform,
                               lp_outfile *file, lp_error *err);
bool lp_chain_is_packet(const lp_checkpoint *ck);

int lp_chain_compare(lp_cli *cli, const lp_chain_request *request, const lp_chain_request *with, bool json);
int lp_chain_identify_file(lp_cli *cli, const lp_chain_request *request, const char *in, bool json);

/* Whether the units came out changed, all in the same way: then the order alone may be a chain. Every index has as many
 * units as the file has tensors, so what is changed shows in the highest one. Gives the change, added or else
 * exclusive-or'ed, and that chain. */
bool lp_chain_find_change(const int64_t *place, int64_t count, int bits, const lp_chain_request *request,
                          const lp_platform *platform, int64_t *value, bool *adds, lp_chain *chain);

/* A list of integers, as JSON, and as text: "[2, 768, 256]". */
json_t *lp_layout_integers(int64_t count, const int64_t *value);
const char *lp_layout_list_text(char *buffer, size_t buffer_bytes, int64_t count, const int64_t *value);

#endif
