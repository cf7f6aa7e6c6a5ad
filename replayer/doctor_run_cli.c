/* SPDX-License-Identifier: Apache-2.0 */
/* `doctor`: what is there, and what a load will therefore use. */
#include "replayer/doctor_cli.h"
#include "replayer/replay_cli.h"
#include "traces/base.h"

static int gather(lp_doctor_fact *facts, const char *path)
{
    int count = 0;
    lp_doctor_program(&facts[count++]);
    lp_doctor_machine(&facts[count++]);
    lp_doctor_cuda(&facts[count++]);
    lp_doctor_nccl(&facts[count++]);
    lp_doctor_io_uring(&facts[count++]);
    lp_doctor_direct(&facts[count++], path);
    lp_doctor_resident(&facts[count++], path);
    lp_doctor_pinned(&facts[count++]);
    lp_doctor_setting(&facts[count++], "LOADPLAN_LOG", "error, warning, info or debug where --log does not say");
    lp_doctor_setting(&facts[count++], "LOADPLAN_THREADS", "the default of --threads");
    lp_doctor_setting(&facts[count++], "LOADPLAN_PROGRESS", "'plain' asks for a line of progress every ten seconds");
    lp_doctor_setting(&facts[count++], "NO_COLOR", "any value turns colours off");
    lp_doctor_setting(&facts[count++], "CLICOLOR_FORCE", "any value but 0 turns colours on everywhere");
    return count;
}

static bool print_json(lp_cli *cli, const lp_doctor_fact *facts, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s}", "key", facts[i].key, "there", facts[i].is_there,
                                              "found", facts[i].text, "use", facts[i].use));
    return lp_cli_json(cli, json_pack("{s:i, s:o}", "format", 1, "facts", list));
}

static void print_text(FILE *out, const lp_doctor_fact *facts, int count)
{
    for (int i = 0; i < count; i++)
        fprintf(out, "%-18s %s%s%s\n", facts[i].key, facts[i].text, facts[i].use[0] != '\0' ? ": " : "", facts[i].use);
}

static const lp_doctor_fact *find_fact(const lp_doctor_fact *facts, int count, const char *key, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(facts[i].key) == length && strncmp(facts[i].key, key, length) == 0)
            return &facts[i];
    return NULL;
}

/* Goes through the words of `required`. With `cli` it says what is missing; without, it returns the first word that is
 * no key, or NULL. */
static const char *judge(lp_cli *cli, const char *required, const lp_doctor_fact *facts, int count, int *exit_code)
{
    while (*required != '\0') {
        const size_t length = strcspn(required, ",");
        const lp_doctor_fact *fact = find_fact(facts, count, required, length);
        if (fact == NULL)
            return required;
        if (cli != NULL && !fact->is_there) {
            lp_cli_summary(cli, "missing: %s", fact->key);
            *exit_code = LP_EXIT_NO;
        }
        required += length + (required[length] == ',');
    }
    return NULL;
}

int lp_cli_doctor(lp_cli *cli)
{
    lp_doctor_fact facts[LP_DOCTOR_FACTS];
    const int count = gather(facts, cli->argument_count > 0 ? cli->argument[0] : ".");
    const char *required = lp_cli_text(cli, "require", "");
    const char *unknown = judge(NULL, required, facts, count, NULL);
    int exit_code = LP_EXIT_DONE;
    if (unknown != NULL)
        return lp_cli_usage(cli, "--require knows cuda, nccl, io_uring, o_direct and cached, not '%s'",
                            lp_cli_clean(unknown));
    if (strcmp(lp_cli_text(cli, "format", "text"), "json") != 0)
        print_text(cli->out, facts, count);
    else if (!print_json(cli, facts, count))
        return LP_EXIT_ENVIRONMENT;
    exit_code = lp_cli_close_output(cli);
    if (exit_code == LP_EXIT_DONE)
        judge(cli, required, facts, count, &exit_code);
    return exit_code;
}
