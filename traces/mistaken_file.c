/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are not what they are called: see mistaken_file.h. */
#include "traces/mistaken_file.h"

#define CONVERT    ": convert it to safetensors first"
#define COMPRESSED "it looks like a compressed file: unpack it first"
#define NOT_FOUND  "it looks like text, such as a server's answer instead of the file: download it again"

static const struct {
    const char *magic;
    const char *hint;
} known[] = {
    {"version https://git-lfs", "it looks like a Git LFS pointer: fetch the file itself with 'git lfs pull'"},
    {"# xet version", "it looks like a pointer into Xet storage: fetch the file itself, such as with 'hf download'"},
    {"PK\003\004", "it looks like a PyTorch or zip file" CONVERT},
    {"\x80\002", "it looks like a pickle" CONVERT},
    {"\x80\003", "it looks like a pickle" CONVERT},
    {"\x80\004\x95", "it looks like a pickle" CONVERT},
    {"\x80\005\x95", "it looks like a pickle" CONVERT},
    {"GGUF", "GGUF files are not supported: use the safetensors checkpoint that it was made from"},
    {"\x89HDF", "it looks like an HDF5 file" CONVERT},
    {"\x93NUMPY", "it looks like a NumPy array" CONVERT},
    {"|TZR|", "it looks like a tensorizer file" CONVERT},
    {"SQLite format 3", "it looks like a trace or another SQLite database"},
    {"loadplan-trace ", "it looks like the text of a trace: 'loadplan undump' makes one of it"},
    {"loadplan headers", "it looks like a header bundle"},
    {"\x1f\x8b", COMPRESSED},
    {"\x28\xb5\x2f\xfd", COMPRESSED},
    {"\xfd\x37zXZ", COMPRESSED},
    {"BZh", COMPRESSED},
    {"\xef\xbb\xbf", "it begins with a byte order mark: save it as UTF-8 without one"},
    {"\xff\xfe", "it looks like UTF-16: save it as UTF-8"},
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_text(const char *start, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((start[i] < ' ' && !is_space(start[i])) || start[i] == 0x7f)
            return false;
    return true;
}

/* What a file that begins with these bytes looks like, though it was taken for something else: a hint, or NULL. */
static const char *mistaken_hint(const char *start, size_t bytes)
{
    size_t zeros = 0, blank = 0;
    if (bytes == 0)
        return "it is empty: a download or a copy may have failed";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (bytes >= strlen(known[i].magic) && memcmp(start, known[i].magic, strlen(known[i].magic)) == 0)
            return known[i].hint;
    while (zeros < bytes && start[zeros] == '\0')
        zeros++;
    if (zeros == bytes)
        return "it begins with zeros, as an interrupted download may leave it: download it again";
    while (blank < bytes && is_space(start[blank]))
        blank++;
    if (blank < bytes && start[blank] == '<')
        return "it looks like an HTML page: the download may have failed";
    return is_text(start, bytes) ? NOT_FOUND : NULL;
}

void lp_hint_mistaken(lp_error *err, const char *start, size_t bytes)
{
    if (err == NULL || err->hint[0] != '\0')
        return;
    const char *hint = mistaken_hint(start, bytes < LP_MISTAKEN_BYTES ? bytes : LP_MISTAKEN_BYTES);
    if (hint != NULL)
        lp_hint(err, "%s", hint);
}

/* The length of a header below 4 GiB, and the header's first byte. */
static bool looks_like_safetensors(const char *start, size_t bytes)
{
    static const char zeros[4];
    return bytes > 8 && memcmp(start + 4, zeros, sizeof zeros) == 0 && start[8] == '{';
}

void lp_hint_no_trace(lp_error *err, const char *start, size_t bytes)
{
    if (looks_like_safetensors(start, bytes))
        lp_hint(err, "it looks like a safetensors file: 'loadplan record --checkpoint' makes a trace of a checkpoint");
    else
        lp_hint_mistaken(err, start, bytes);
}
