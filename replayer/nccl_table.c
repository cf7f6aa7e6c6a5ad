/* SPDX-License-Identifier: Apache-2.0 */
/* Looking NCCL up. */
#include "replayer/nccl_table.h"

#include <dlfcn.h>

static lp_status find(void *library, const char *name, void *entry, size_t bytes, lp_error *err)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        return lp_fail(err, LP_E_UNSUPPORTED, "NCCL has no '%s'", name);
    /* A pointer to a function is no pointer to an object in C; POSIX says that they have one form. */
    memcpy(entry, &symbol, bytes);
    return LP_OK;
}

static lp_status find_all(lp_nccl *n, lp_error *err)
{
#define LP_NCCL_FIND(name, result, parameters) LP_TRY(find(n->library, #name, &n->name, sizeof n->name, err));
    LP_NCCL_ENTRIES(LP_NCCL_FIND)
#undef LP_NCCL_FIND
    LP_TRY(lp_nccl_check(n, n->ncclGetVersion(&n->version), "ask for the version", err));
    if (n->version < LP_NCCL_LEAST)
        return lp_fail(err, LP_E_UNSUPPORTED, "NCCL is of version %d, at least %d is needed", n->version,
                       LP_NCCL_LEAST);
    return LP_OK;
}

lp_status lp_nccl_open(lp_nccl *out, const char *path, lp_error *err)
{
    const char *name = path == NULL ? "libnccl.so.2" : path;
    /* It has threads of its own, which may outlive the last communicator: it stays in the process. */
    *out = (lp_nccl){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)};
    if (out->library == NULL) {
        lp_fail_at(err, LP_E_UNSUPPORTED, name, -1, "cannot load '%s'", name);
        lp_hint(err, "install NCCL or add its folder to LD_LIBRARY_PATH");
        return LP_E_UNSUPPORTED;
    }
    const lp_status status = find_all(out, err);
    if (status != LP_OK)
        lp_nccl_close(out);
    return status;
}

void lp_nccl_close(lp_nccl *nccl)
{
    if (nccl->library != NULL)
        dlclose(nccl->library);
    *nccl = (lp_nccl){.library = NULL};
}

lp_status lp_nccl_check(const lp_nccl *nccl, int result, const char *verb, lp_error *err)
{
    if (result == LP_NCCL_SUCCESS || result == LP_NCCL_IN_PROGRESS)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: NCCL says '%s'", verb, nccl->ncclGetErrorString(result));
}
