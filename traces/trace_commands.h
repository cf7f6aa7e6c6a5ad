/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of this room, one in each *_cli.c; trace_cli.c joins them into the room's table. */
#ifndef LOADPLAN_TRACE_COMMANDS_H
#define LOADPLAN_TRACE_COMMANDS_H

#include "traces/cli.h"

extern const lp_command lp_info_command, lp_check_command, lp_diff_command, lp_dump_command, lp_undump_command,
    lp_query_command, lp_join_command;

#endif
