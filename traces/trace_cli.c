/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of this room, in the order of the help text. */
#include "traces/trace_commands.h"

const lp_command *const lp_trace_commands[] = {&lp_info_command, &lp_check_command,  &lp_diff_command, &lp_join_command,
                                               &lp_dump_command, &lp_undump_command, &lp_query_command};
const int lp_trace_command_count = sizeof lp_trace_commands / sizeof lp_trace_commands[0];
