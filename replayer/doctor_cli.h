/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine offers a load; each probe asks the system itself and changes nothing. Part of the program. */
#ifndef LOADPLAN_DOCTOR_CLI_H
#define LOADPLAN_DOCTOR_CLI_H

#include "traces/cli.h"

enum { LP_DOCTOR_TEXT = 400, LP_DOCTOR_FACTS = 32 };

/* One line of the answer. */
typedef struct lp_doctor_fact {
    const char *key;           /* stable: "cuda", "nccl", "io_uring", ... */
    bool is_there;             /* what --require asks for */
    char text[LP_DOCTOR_TEXT]; /* what was found */
    const char *use;           /* what follows from it; may be empty */
} lp_doctor_fact;

void lp_doctor_program(lp_doctor_fact *f);
void lp_doctor_machine(lp_doctor_fact *f);
void lp_doctor_cuda(lp_doctor_fact *f);
void lp_doctor_nccl(lp_doctor_fact *f);
void lp_doctor_io_uring(lp_doctor_fact *f);
void lp_doctor_direct(lp_doctor_fact *f, const char *path); /* a file or folder on the file system in question */
void lp_doctor_resident(lp_doctor_fact *f, const char *path);
void lp_doctor_pinned(lp_doctor_fact *f);
void lp_doctor_setting(lp_doctor_fact *f, const char *variable, const char *meaning);

#endif
