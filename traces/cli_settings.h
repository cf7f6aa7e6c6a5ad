/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one optional configuration file of the command line: --config FILE, else loadplan.conf at the root of the
 * repository that the current folder is in. There is none in the home folder, so that no machine decides what CI says.
 */
#ifndef LOADPLAN_CLI_SETTINGS_H
#define LOADPLAN_CLI_SETTINGS_H

#include "traces/cli.h"
#include "traces/settings.h"

#define LP_CLI_CONFIG_NAME "loadplan.conf"
#define LP_CLI_CONFIG_OPTION                                                                                           \
    {                                                                                                                  \
        "config", 0, "FILE", NULL, "settings (default " LP_CLI_CONFIG_NAME " at the root of the repository)"           \
    }

typedef struct lp_cli_settings {
    lp_settings *list; /* NULL: no file */
    char *path;        /* of the file, or NULL */
    char *root;        /* of the repository, without a slash at its end; NULL: the current folder is in none */
} lp_cli_settings;

/* Finds and reads the file of a command that has LP_CLI_CONFIG_OPTION. 0, or an exit code after a complaint, also about
 * keys that no command knows. */
int lp_cli_settings_open(lp_cli_settings *s, lp_cli *cli);
void lp_cli_settings_close(lp_cli_settings *s);

/* `path` of the file as it lies beside the settings file: relative names start at that file's folder. malloc, or NULL.
 */
char *lp_cli_settings_beside(const lp_cli_settings *s, const char *path);

/* `path` relative to the root of the repository where it lies below it; else without leading slashes and dots, so that
 * it never leaves the root. Points into `path`. */
const char *lp_cli_settings_relative(const lp_cli_settings *s, const char *path);

#endif
