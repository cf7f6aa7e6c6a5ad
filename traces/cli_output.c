/* SPDX-License-Identifier: Apache-2.0 */
/* Output: errors and warnings in one form, data to stdout or a file that appears whole, colours, exit codes. */
#include "traces/base.h"
#include "traces/cli_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The functions themselves, not what an analyser is told of them. */
#undef lp_cli_fail
#undef lp_cli_fail_about
#undef lp_cli_usage

const char *lp_cli_clean(const char *name)
{
    static char ring[8][512];
    static int next;
    char *buffer = ring[next++ % 8];
    lp_sanitise(buffer, sizeof ring[0], name, strlen(name));
    return buffer;
}

/* One write for a whole message, so that lines of several processes do not mix. */
static void say(lp_cli *cli, const char *label, const char *code, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));
static void say(lp_cli *cli, const char *label, const char *code, const char *format, va_list args)
{
    lp_cli_progress_end(cli);
    char raw[2048], text[sizeof raw];
    vsnprintf(raw, sizeof raw, format, args);
    lp_sanitise(text, sizeof text, raw, strlen(raw)); /* whatever was put into it */
    if (label[0] == '\0')
        fprintf(stderr, "%s\n", text);
    else if (cli->color_errors)
        fprintf(stderr, "loadplan: \x1b[%sm%s:\x1b[0m %s\n", code, label, text);
    else
        fprintf(stderr, "loadplan: %s: %s\n", label, text);
}

static void error_line(lp_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void error_line(lp_cli *cli, const char *format, ...)
{
    if (cli->quiet >= 2)
        return;
    va_list args;
    va_start(args, format);
    say(cli, "error", "1;31", format, args);
    va_end(args);
}

static int exit_code_of(lp_status status)
{
    switch (status) {
    case LP_OK:
        return LP_EXIT_DONE;
    case LP_E_USAGE:
    case LP_E_ARGUMENT:
    case LP_E_EXISTS:
        return LP_EXIT_USAGE;
    case LP_E_FORMAT:
    case LP_E_CORRUPT:
    case LP_E_VERSION:
    case LP_E_HOSTILE:
    case LP_E_LIMIT:
    case LP_E_UNSUPPORTED:
    case LP_E_UNKNOWN_NAME:
    case LP_E_MISMATCH:
    case LP_E_DUPLICATE:
        return LP_EXIT_DATA;
    case LP_E_IO:
    case LP_E_MEMORY:
    case LP_E_DEVICE:
    case LP_E_PEER:
        return LP_EXIT_ENVIRONMENT;
    case LP_E_STALE:
        return LP_EXIT_STALE;
    case LP_E_INCOMPLETE:
    case LP_E_POISONED:
    case LP_E_REFUSED:
    case LP_E_VALUE:
        return LP_EXIT_NO;
    case LP_E_MISUSE:
    case LP_E_INTERNAL:
        break;
    }
    return LP_EXIT_BUG;
}

int lp_cli_fail(lp_cli *cli, const lp_error *err)
{
    error_line(cli, "%s", err->text);
    if (err->hint[0] != '\0' && cli->quiet < 2)
        fprintf(stderr, "hint: %s\n", err->hint);
    return exit_code_of(err->code);
}

int lp_cli_fail_about(lp_cli *cli, const char *path, const lp_error *err)
{
    lp_error named = {0};
    lp_fail_at(&named, err->code, path, -1, "'%s': %s", path, err->text);
    lp_hint(&named, "%s", err->hint);
    return lp_cli_fail(cli, &named);
}

int lp_cli_usage(lp_cli *cli, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_line(cli, "%s", text);
    if (cli->quiet < 2) {
        if (cli->command != NULL && strcmp(cli->command->name, "help") != 0)
            fprintf(stderr, "hint: see 'loadplan help %s'\n", cli->command->name);
        else
            fprintf(stderr, "hint: see 'loadplan help'\n");
    }
    return LP_EXIT_USAGE;
}

void lp_cli_warn(lp_cli *cli, const char *format, ...)
{
    if (cli->quiet >= 1)
        return;
    va_list args;
    va_start(args, format);
    say(cli, "warning", "1;33", format, args);
    va_end(args);
}

void lp_cli_note(lp_cli *cli, const char *format, ...)
{
    if (cli->verbose < 1)
        return;
    va_list args;
    va_start(args, format);
    say(cli, "note", "1", format, args);
    va_end(args);
}

void lp_cli_summary(lp_cli *cli, const char *format, ...)
{
    if (cli->quiet >= 1)
        return;
    va_list args;
    va_start(args, format);
    say(cli, "", "", format, args);
    va_end(args);
}

static int output_failed(lp_cli *cli, const char *verb, const char *path, int errno_value)
{
    lp_error err;
    lp_fail_errno(&err, errno_value, verb, path);
    return lp_cli_fail(cli, &err);
}

char *lp_cli_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    const int bytes = vasprintf(&text, format, args);
    va_end(args);
    return bytes < 0 ? NULL : text;
}

bool lp_cli_print_entity(FILE *out, char c)
{
    static const struct {
        char byte;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++)
        if (entities[i].byte == c) {
            fputs(entities[i].entity, out);
            return true;
        }
    return false;
}

/* Takes nothing that somebody laid in a shared folder: the target of a link would be emptied, and a pipe would wait for
 * its reader, or hand him what is written. Negative: -errno. */
static int create_file(const char *path)
{
    const lp_io *io = lp_io_default(); /* which lets nobody else write the file meanwhile */
    const int fd = io->open(io->context, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0666);
    struct stat st;
    if (fd == -ENXIO) /* what opening a pipe without a reader says */
        return -EEXIST;
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    return -EEXIST;
}

int lp_cli_open_output(lp_cli *cli, const char *path, bool overwrite)
{
    lp_cli_state *s = cli->state;
    struct stat st;
    const bool exists = stat(path, &st) == 0;
    /* Devices and pipes are written to, never replaced by a file. */
    const bool is_stream = exists && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    if (exists && !is_stream && (S_ISDIR(st.st_mode) || !overwrite)) {
        lp_error err;
        lp_fail(&err, LP_E_EXISTS, "'%s' exists%s", path, S_ISDIR(st.st_mode) ? " and is a folder" : "");
        if (!S_ISDIR(st.st_mode))
            lp_hint(&err, "use -f to replace it");
        return lp_cli_fail(cli, &err);
    }
    s->path = lp_cli_format("%s", path);
    s->partial = is_stream ? NULL : lp_cli_format("%s.partial", path);
    if (s->path == NULL || (s->partial == NULL && !is_stream))
        return output_failed(cli, "create", path, ENOMEM);
    if (is_stream) {
        s->file = fopen(path, "wb");
        if (s->file == NULL)
            return output_failed(cli, "open", path, errno);
    } else {
        const int fd = create_file(s->partial);
        s->file = fd < 0 ? NULL : fdopen(fd, "wb");
        if (s->file == NULL) {
            lp_error err;
            lp_fail_output(&err, fd < 0 ? fd : -errno, path, s->partial);
            if (fd >= 0)
                close(fd);
            return lp_cli_fail(cli, &err);
        }
    }
    cli->out = s->file;
    cli->color = s->color_always; /* what was decided before was about standard output */
    return 0;
}

/* 0, or why something of what was printed did not get there. A write that failed while there was more to print has left
 * no reason that is safe to tell: one byte more is refused for the same one. */
static int end_writing(FILE *file, bool sync)
{
    const bool has_failed = ferror(file) != 0;
    if (has_failed)
        fputc('\n', file);
    errno = 0;
    if (fflush(file) == 0 && !has_failed && (!sync || fsync(fileno(file)) == 0))
        return 0;
    return errno != 0 ? errno : EIO;
}

int lp_cli_close_output(lp_cli *cli)
{
    lp_cli_state *s = cli->state;
    if (s->file == NULL) {
        const int code = end_writing(stdout, false);
        return code == 0 ? 0 : output_failed(cli, "write", "standard output", code);
    }
    int exit_code = 0;
    const int code = end_writing(s->file, s->partial != NULL);
    if (code != 0)
        exit_code = output_failed(cli, "write", s->partial != NULL ? s->partial : s->path, code);
    else if (s->partial != NULL && rename(s->partial, s->path) != 0) /* before the close, which ends the lock */
        exit_code = output_failed(cli, "rename", s->partial, errno);
    if (exit_code != 0 && s->partial != NULL)
        unlink(s->partial);
    if (fclose(s->file) != 0 && exit_code == 0)
        exit_code = output_failed(cli, "close", s->path, errno);
    s->file = NULL;
    cli->out = stdout;
    free(s->path);
    free(s->partial);
    s->path = s->partial = NULL;
    return exit_code;
}

void lp_cli_abandon_output(lp_cli *cli)
{
    lp_cli_state *s = cli->state;
    if (s->file != NULL) {
        if (s->partial != NULL)
            unlink(s->partial);
        fclose(s->file);
    }
    free(s->path);
    free(s->partial);
    s->file = NULL;
    s->path = s->partial = NULL;
}

static bool wants_color(const lp_cli_state *s, FILE *stream)
{
    if (s->color_always)
        return true;
    if (s->color_never)
        return false;
    const char *no_color = getenv("NO_COLOR"), *force = getenv("CLICOLOR_FORCE"), *term = getenv("TERM");
    if (no_color != NULL && no_color[0] != '\0')
        return false;
    if (force != NULL && force[0] != '\0' && strcmp(force, "0") != 0)
        return true;
    return isatty(fileno(stream)) && term != NULL && strcmp(term, "dumb") != 0;
}

static void log_line(void *context, int level, const char *module, const char *line)
{
    static const char *const name[] = {"error", "warning", "info", "debug"};
    lp_cli *cli = context;
    const lp_cli_state *s = cli->state;
    if (level > s->log_level || level < 0 || level > LP_LOG_DEBUG)
        return;
    lp_cli_progress_end(cli);
    fprintf(stderr, "loadplan: %s: %s: %s\n", name[level], module, line);
}

const lp_platform *lp_cli_platform(lp_cli *cli)
{
    lp_cli_state *s = cli->state;
    s->platform = (lp_platform){.log = log_line, .log_context = cli};
    return &s->platform;
}

void lp_cli_settle(lp_cli *cli)
{
    lp_cli_state *s = cli->state;
    cli->color = wants_color(s, stdout);
    cli->color_errors = wants_color(s, stderr);
    if (cli->verbose > 0 && s->log_level == LP_LOG_WARNING)
        s->log_level = cli->verbose > 1 ? LP_LOG_DEBUG : LP_LOG_INFO;
}
