/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of this room: explain, replay, serve, verify. */
#include "replayer/replay_cli.h"
#include "replayer/report_cli.h"
#include "traces/cli_settings.h"

static const lp_option replay_options[] = {
    {"checkpoint", 0, "PATH", NULL, "a safetensors file, an index or a folder"},
    {"rank", 0, "RANKS", NULL, "ranks to load, such as 3, 0-7 or all (default all that the trace has)"},
    {"device", 0, "DEVICE", NULL,
     "where to load to: cpu (default) or cuda:N; with --world also cuda, the GPU of the local rank"},
    {"pinned", 0, "BYTES", NULL, "most pinned host memory on the way to a device (default 128MiB)"},
    {"device-staging", 0, "BYTES", NULL, "device memory to stage in (default 1GiB)"},
    {"output", 'o', "DIR", NULL, "write rank-NNNNN.safetensors of each rank there"},
    {"force", 'f', NULL, NULL, "replace existing files"},
    {"mode", 0, "MODE", "cold|direct|layerwise|dummy|meta",
     "how to load (default cold); dummy and meta need no checkpoint"},
    {"tensor", 0, "GLOB", NULL, "only destinations whose name matches, and what they need"},
    {"ops", 0, "SET", NULL,
     "only destinations that these rows of each rank write, numbered as in dump: 0-99,7 or @FILE"},
    {"staging", 0, "BYTES", NULL,
     "most memory to stage in, such as 256MiB: the host's, or in other modes than cold the device's (default: as much "
     "as needed)"},
    {"spill", 0, "BYTES", NULL, "most pinned host memory behind the staging of a device, --mode layerwise (default 0)"},
    {"threads", 'j', "N", NULL, "threads that read and move (default 0: one for each core, at most 16 to a device)"},
    {"allow-fallbacks", 0, NULL, NULL, "leave out names that the trace cannot load"},
    {"verify", 0, NULL, NULL, "compare with the digests of earlier loads, and read back what was written"},
    {"attach", 0, "SOCKET", NULL, "use the weights that 'loadplan serve' holds there; load where it does not"},
    {"world", 0, NULL, NULL, "load this rank of torchrun, mpirun or srun together with the others, sharing reads"},
    {"rendezvous", 0, "HOST:PORT", NULL, "where the ranks of --world meet (default MASTER_ADDR, port MASTER_PORT + 1)"},
    {"join-timeout", 0, "SECONDS", NULL, "how long ranks of --world wait for one that is late (default 300)"},
    {"stall-timeout", 0, "SECONDS", NULL, "how long nothing may move before a rank of it is named (default 60)"},
    {"dry-run", 0, NULL, NULL, "say what would be done, like 'loadplan explain'"},
    {"format", 0, "FORMAT", "text|json", "of --dry-run (default text)"},
};

static const lp_option verify_options[] = {
    {"checkpoint", 0, "PATH", NULL, "a safetensors file, an index or a folder"},
    {"rank", 0, "RANKS", NULL, "ranks to verify, such as 3, 0-7 or all (default all that the trace has)"},
    {"against", 0, "DIR", NULL, "compare with the rank files in a folder instead of kept digests"},
    {"sync", 0, NULL, NULL, "load, reload scrambled weights, reload the real ones, and compare"},
    {"mode", 0, "MODE", "direct|layerwise", "how --sync reloads (default direct)"},
    {"device", 0, "DEVICE", NULL, "where --sync loads to: cpu (default) or cuda:N"},
    {"spill", 0, "BYTES", NULL, "most pinned host memory behind the staging of a device, --mode layerwise (default 0)"},
    {"staging", 0, "BYTES", NULL, "most host memory to stage in (default: as much as needed)"},
    {"threads", 'j', "N", NULL, "threads that read and move (default 0: one for each physical core)"},
    {"allow-fallbacks", 0, NULL, NULL, "leave out names that the trace cannot load"},
};

static const lp_option serve_options[] = {
    {"checkpoint", 0, "PATH", NULL, "a safetensors file, an index or a folder"},
    {"rank", 0, "N", NULL, "the rank to load and serve"},
    {"socket", 0, "PATH", NULL, "where to serve; a socket that a dead server left is replaced"},
    {"device", 0, "DEVICE", NULL, "where the weights lie: cpu (default) or cuda:N"},
    {"any-user", 0, NULL, NULL, "let processes of other users attach"},
    {"pinned", 0, "BYTES", NULL, "most pinned host memory on the way to a device (default 128MiB)"},
    {"device-staging", 0, "BYTES", NULL, "device memory to stage in (default 1GiB)"},
    {"staging", 0, "BYTES", NULL, "most host memory to stage in (default: as much as needed)"},
    {"threads", 'j', "N", NULL, "threads that read and move (default 0: one for each physical core)"},
    {"allow-fallbacks", 0, NULL, NULL, "leave out names that the trace cannot load"},
};

static const lp_option explain_options[] = {
    {"rank", 0, "RANKS", NULL, "ranks to explain, such as 3, 0-7 or all (default all that the trace has)"},
    {"families", 0, NULL, NULL, "the same as --by=family"},
    {"top", 0, "N", NULL, "families or layers to show in text (default 10)"},
    {"by", 0, "KEY", "family|layer", "show what each family, or each layer, costs"},
    {"rate", 0, "NAME=RATE,...", NULL, "for estimates: disk=1.8GB/s, link=50GB/s, device=1880GB/s are the defaults"},
    {"disk-rate", 0, "RATE", NULL, "the same as --rate disk=RATE, in bytes a second"},
    {"link-rate", 0, "RATE", NULL, "the same as --rate link=RATE"},
    LP_CLI_CONFIG_OPTION,
    {"world", 0, NULL, NULL, "show instead what all ranks together read and what a sync moves"},
    {"trainer", 0, "TRACE", NULL, "of --world: what the sending ranks hold (default: everything)"},
    {"senders", 0, "N", NULL, "of --world: sending ranks that hold everything (default 1)"},
    {"push-order", 0, NULL, NULL, "show instead in which order a layerwise reload stages least, and its peaks"},
    {"tensor", 0, "NAME", NULL, "show instead where the bytes of one destination come from"},
    {"format", 0, "FORMAT", "text|json|svg", "how to print (default text); svg is a picture of --tensor"},
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},
    {"force", 'f', NULL, NULL, "replace an existing output"},
};

static const lp_option doctor_options[] = {
    {"require", 0, "LIST", NULL, "exit with 1 unless all of these are there: cuda,nccl,io_uring,o_direct,cached"},
    {"format", 0, "FORMAT", "text|json", "how to print (default text)"},
};

static const lp_option report_options[] = {
    {"against", 0, "BASE", NULL, "also show what changed since that trace"},
    {"output", 'o', "FILE", NULL, "the page to write"},
    {"force", 'f', NULL, NULL, "replace an existing page"},
};

#define COUNT(list) (int)(sizeof(list) / sizeof(list)[0])

const lp_command lp_replayer_commands[] = {
    {.name = "doctor",
     .arguments = "[PATH]",
     .summary = "show what this machine offers a load, and what will be used",
     .details =
         "Asks the system: libraries, GPUs, NCCL, io_uring, reading past the page cache, and how much of the first "
         "file of PATH (default: the current folder) is in memory. Changes nothing.\n\n"
         "Exit codes: 0 told; 1 something of --require is missing.\n\n"
         "Example:  loadplan doctor ./ckpt --require cuda",
     .options = doctor_options,
     .option_count = COUNT(doctor_options),
     .least = 0,
     .most = 1,
     .run = lp_cli_doctor},
    {.name = "explain",
     .arguments = "TRACE",
     .summary = "show what a load from a trace reads, writes and costs",
     .details =
         "For each rank: bytes and ranges read, bytes written, staging, derives, fallbacks with reason and place, "
         "and what that takes at given rates. The seconds are estimates, everything else is what the plan "
         "does.\n\n"
         "Example:  loadplan explain v4.lpt --rank 3 --families",
     .options = explain_options,
     .option_count = COUNT(explain_options),
     .least = 1,
     .most = 1,
     .run = lp_cli_explain},
    {.name = "replay",
     .arguments = "TRACE [--checkpoint PATH]",
     .summary = "load a checkpoint as a trace says",
     .details =
         "Reads the bytes that each rank needs and no others, and writes one safetensors file for each rank: "
         "dimensions in physical order, with logical shape, strides, layout and aliases in its metadata. Digests "
         "of the loaded tensors are kept in TRACE.digests.\n\n"
         "With --device cuda:N the tensors are loaded into memory of that GPU, at the speed of the link from files "
         "that are cached and of the disk otherwise; -v says how each file is read and why.\n\n"
         "Exit codes: 0 loaded; 1 incomplete, a check of loaded values failed, or --verify found a difference; "
         "3 bad data; 4 a file cannot be read or written, or the device cannot be used; 5 the trace is of another "
         "checkpoint.\n\n"
         "Example:  loadplan replay v4.lpt --checkpoint ./ckpt --rank 3 -o out",
     .options = replay_options,
     .option_count = COUNT(replay_options),
     .least = 1,
     .most = 1,
     .run = lp_cli_replay},
    {.name = "serve",
     .arguments = "TRACE --checkpoint PATH --socket PATH",
     .summary = "hold the weights of a rank for other processes",
     .details =
         "Loads one rank and serves it at a Unix socket until it is told to end (SIGTERM, SIGINT). The socket appears "
         "when the weights are complete. Others attach in milliseconds by plan digest, content id and device, which "
         "all must agree; 'loadplan replay --attach SOCKET' loads by itself where they do not.\n\n"
         "Exit codes: 0 ended as told; 1 incomplete, or a check of loaded values failed; 2 another server listens "
         "there; 3 bad data; 4 a file cannot be read; 5 the trace is of another checkpoint.\n\n"
         "Example:  loadplan serve v4.lpt --checkpoint ./ckpt --rank 3 --socket /run/engine.sock",
     .options = serve_options,
     .option_count = COUNT(serve_options),
     .least = 1,
     .most = 1,
     .run = lp_cli_serve},
    {.name = "report",
     .arguments = "TRACE -o FILE.html",
     .summary = "write a page that shows a trace, or what changed between two",
     .details =
         "One HTML file without scripts that loads nothing: findings, a map of every destination's bytes by source, "
         "families, fallbacks with the loader's lines, and what each rank carries; with --against the "
         "difference first. For phones, paper, light and dark.\n\n"
         "Example:  loadplan report pr.lpt --against main.lpt -o report.html",
     .options = report_options,
     .option_count = COUNT(report_options),
     .least = 1,
     .most = 1,
     .run = lp_cli_report},
    {.name = "verify",
     .arguments = "TRACE --checkpoint PATH",
     .summary = "load again and compare with an earlier load",
     .details =
         "Loads into memory and compares every tensor with the digests that 'loadplan replay' kept, or with the "
         "rank files of --against. Tensors that differ are named.\n\n"
         "With --sync: a cold start, a reload in which every checkpoint tensor's elements are rolled by one, and "
         "a reload of the real ones. What had to change and did not, did not come back, or moved, is named.\n\n"
         "Exit codes: 0 all equal; 1 some differ; 3 bad data or nothing to compare with; 5 the trace is of "
         "another checkpoint.\n\n"
         "Example:  loadplan verify v4.lpt --checkpoint ./ckpt --rank all",
     .options = verify_options,
     .option_count = COUNT(verify_options),
     .least = 1,
     .most = 1,
     .run = lp_cli_verify},
};

const int lp_replayer_command_count = COUNT(lp_replayer_commands);
