/* SPDX-License-Identifier: Apache-2.0 */
/* Error texts: one place that formats, sanitises and fills lp_error. */
#include "traces/base.h"

#include <errno.h>
#include <stdio.h>

/* The functions themselves, not what an analyser is told of them. */
#undef lp_fail
#undef lp_fail_at
#undef lp_fail_errno
#undef lp_fail_memory

static const struct {
    lp_status status;
    const char *name, *text;
} table[] = {
    {LP_OK, "LP_OK", "no error"},
    {LP_E_ARGUMENT, "LP_E_ARGUMENT", "an argument is out of range"},
    {LP_E_MISUSE, "LP_E_MISUSE", "calls in a wrong order"},
    {LP_E_UNSUPPORTED, "LP_E_UNSUPPORTED", "not supported"},
    {LP_E_LIMIT, "LP_E_LIMIT", "a limit would be exceeded"},
    {LP_E_USAGE, "LP_E_USAGE", "wrong usage"},
    {LP_E_FORMAT, "LP_E_FORMAT", "not a file of this kind"},
    {LP_E_CORRUPT, "LP_E_CORRUPT", "the content contradicts itself"},
    {LP_E_VERSION, "LP_E_VERSION", "written by a newer version"},
    {LP_E_HOSTILE, "LP_E_HOSTILE", "a limit against hostile input was hit"},
    {LP_E_IO, "LP_E_IO", "input or output failed"},
    {LP_E_MEMORY, "LP_E_MEMORY", "out of memory"},
    {LP_E_DEVICE, "LP_E_DEVICE", "the device failed"},
    {LP_E_PEER, "LP_E_PEER", "a peer failed"},
    {LP_E_EXISTS, "LP_E_EXISTS", "the output exists"},
    {LP_E_STALE, "LP_E_STALE", "the trace is stale"},
    {LP_E_MISMATCH, "LP_E_MISMATCH", "a tensor is not what the plan says"},
    {LP_E_UNKNOWN_NAME, "LP_E_UNKNOWN_NAME", "unknown name"},
    {LP_E_DUPLICATE, "LP_E_DUPLICATE", "bytes were pushed already"},
    {LP_E_INCOMPLETE, "LP_E_INCOMPLETE", "the load is incomplete"},
    {LP_E_POISONED, "LP_E_POISONED", "the session is poisoned"},
    {LP_E_REFUSED, "LP_E_REFUSED", "the loader does more than views and copies"},
    {LP_E_VALUE, "LP_E_VALUE", "a check on loaded values failed"},
    {LP_E_INTERNAL, "LP_E_INTERNAL", "internal error"},
};

const char *lp_status_name(lp_status status)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status)
            return table[i].name;
    return "LP_E_UNKNOWN";
}

const char *lp_strerror(lp_status status)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status)
            return table[i].text;
    return "unknown status";
}

static void fill_text(char *out, size_t out_bytes, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
static void fill_text(char *out, size_t out_bytes, const char *format, va_list args)
{
    char raw[1024];
    const int n = vsnprintf(raw, sizeof raw, format, args);
    const size_t bytes = n < 0 ? 0 : (size_t)n < sizeof raw ? (size_t)n : sizeof raw - 1;
    lp_sanitise(out, out_bytes, raw, bytes);
}

static void fill(lp_error *err, lp_status code, const char *subject, int64_t off, const char *format, va_list args)
    __attribute__((format(printf, 5, 0)));
static void fill(lp_error *err, lp_status code, const char *subject, int64_t off, const char *format, va_list args)
{
    if (err == NULL)
        return;
    char subject_copy[sizeof err->subject];
    lp_sanitise(subject_copy, sizeof subject_copy, subject, strlen(subject));
    char text[sizeof err->text];
    fill_text(text, sizeof text, format, args);
    err->code = code;
    memcpy(err->subject, subject_copy, sizeof subject_copy);
    memcpy(err->text, text, sizeof text);
    err->hint[0] = '\0';
    err->byte_off = off < 0 ? -1 : off;
}

lp_status lp_fail(lp_error *err, lp_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, code, "", -1, format, args);
    va_end(args);
    return code;
}

lp_status lp_fail_at(lp_error *err, lp_status code, const char *subject, int64_t off, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill(err, code, subject, off, format, args);
    va_end(args);
    return code;
}

void lp_hint(lp_error *err, const char *format, ...)
{
    if (err == NULL)
        return;
    va_list args;
    va_start(args, format);
    fill_text(err->hint, sizeof err->hint, format, args);
    va_end(args);
}

void lp_error_of_file(lp_error *err, const char *path)
{
    if (err == NULL ||
        (err->code != LP_E_CORRUPT && err->code != LP_E_FORMAT && err->code != LP_E_HOSTILE && err->code != LP_E_LIMIT))
        return;
    char text[sizeof err->text], name[sizeof err->subject];
    lp_sanitise(name, sizeof name, path, strlen(path));
    if (strstr(err->text, name) != NULL)
        return;
    /* The file's name may be long, and what is wrong stands behind it: cut the name rather than that. */
    snprintf(text, sizeof text, "'%.200s' is damaged: %.290s", name, err->text);
    memcpy(err->text, text, sizeof text);
    if (err->subject[0] == '\0')
        memcpy(err->subject, name, sizeof name);
}

lp_status lp_fail_errno(lp_error *err, int errno_value, const char *verb, const char *path)
{
    const int positive = errno_value < 0 ? -errno_value : errno_value;
    if (positive == ENOMEM)
        return lp_fail_memory(err);
    return lp_fail_at(err, LP_E_IO, path, -1, "cannot %s '%s': %s", verb, path, strerror(positive));
}

lp_status lp_fail_memory(lp_error *err)
{
    return lp_fail(err, LP_E_MEMORY, "out of memory");
}
