/* SPDX-License-Identifier: Apache-2.0 */
/* The probes of `doctor`. Libraries are looked up the way a load looks them up, by name and only when needed. */
#include "replayer/doctor_cli.h"
#include "replayer/file_residency.h"
#include "replayer/read_queue.h"
#include "traces/base.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

__attribute__((format(printf, 2, 3))) static void say(lp_doctor_fact *f, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(f->text, sizeof f->text, format, values);
    va_end(values);
}

void lp_doctor_program(lp_doctor_fact *f)
{
    const unsigned xx = XXH_versionNumber();
    *f = (lp_doctor_fact){.key = "program", .is_there = true, .use = ""};
    say(f, "loadplan %s, trace format 1, SQLite %s, zstd %s, xxHash %u.%u.%u, jansson %s, %s", lp_version(),
        sqlite3_libversion(), ZSTD_versionString(), xx / 10000, xx / 100 % 100, xx % 100, jansson_version_str(),
        OpenSSL_version(OPENSSL_VERSION));
}

void lp_doctor_machine(lp_doctor_fact *f)
{
    struct utsname name;
    char memory[32];
    const int64_t page = sysconf(_SC_PAGESIZE);
    *f = (lp_doctor_fact){.key = "machine", .is_there = true, .use = ""};
    if (uname(&name) != 0)
        memset(&name, 0, sizeof name);
    say(f, "%s, %s %s, %ld processors, %s of memory, pages of %lld bytes", name.machine, name.sysname, name.release,
        sysconf(_SC_NPROCESSORS_ONLN), lp_format_bytes(memory, (int64_t)sysconf(_SC_PHYS_PAGES) * page),
        (long long)page);
}

static void find(void *library, const char *name, void *function, size_t bytes)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, bytes);
}

static void describe_devices(lp_doctor_fact *f, void *library, int version)
{
    int (*count_of)(int *) = NULL, (*get)(int *, int) = NULL, (*name_of)(char *, int, int) = NULL;
    int (*memory_of)(size_t *, int) = NULL;
    int count = 0;
    find(library, "cuDeviceGetCount", &count_of, sizeof count_of);
    find(library, "cuDeviceGet", &get, sizeof get);
    find(library, "cuDeviceGetName", &name_of, sizeof name_of);
    find(library, "cuDeviceTotalMem_v2", &memory_of, sizeof memory_of);
    if (count_of == NULL || get == NULL || name_of == NULL || memory_of == NULL || count_of(&count) != 0) {
        say(f, "the driver does not list its devices");
        return;
    }
    say(f, "driver for CUDA %d.%d, %d device%s", version / 1000, version % 1000 / 10, count, count == 1 ? "" : "s");
    f->is_there = count > 0;
    for (int i = 0; i < count && i < 16; i++) {
        char name[96] = "", memory[32];
        int device = 0;
        size_t bytes = 0;
        const size_t used = strlen(f->text);
        if (get(&device, i) == 0 && name_of(name, (int)sizeof name, device) == 0 && memory_of(&bytes, device) == 0)
            snprintf(f->text + used, sizeof f->text - used, "; cuda:%d %s %s", i, name,
                     lp_format_bytes(memory, (int64_t)bytes));
    }
}

void lp_doctor_cuda(lp_doctor_fact *f)
{
    int (*init)(unsigned) = NULL, (*version_of)(int *) = NULL;
    int version = 0;
    *f = (lp_doctor_fact){.key = "cuda", .use = "loads go to host memory; --device cuda:N is refused"};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        say(f, "no driver (libcuda.so.1 is not found)");
        return;
    }
    find(library, "cuInit", &init, sizeof init);
    find(library, "cuDriverGetVersion", &version_of, sizeof version_of);
    const int code = init == NULL ? -1 : init(0);
    if (code != 0 || version_of == NULL || version_of(&version) != 0)
        say(f, "the driver does not start (error %d)", code);
    else
        describe_devices(f, library, version);
    dlclose(library);
    if (f->is_there)
        f->use = "--device cuda:N loads into its memory";
}

void lp_doctor_nccl(lp_doctor_fact *f)
{
    int (*version_of)(int *) = NULL;
    int version = 0;
    *f = (lp_doctor_fact){.key = "nccl", .use = "ranks exchange bytes over sockets only"};
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        say(f, "not found (libnccl.so.2)");
        return;
    }
    find(library, "ncclGetVersion", &version_of, sizeof version_of);
    f->is_there = version_of != NULL && version_of(&version) == 0;
    if (f->is_there) {
        say(f, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
        f->use = "ranks on GPUs exchange bytes through it";
    } else {
        say(f, "libnccl.so.2 does not tell its version");
    }
    dlclose(library);
}

void lp_doctor_io_uring(lp_doctor_fact *f)
{
    *f = (lp_doctor_fact){.key = "io_uring", .use = "files are read by threads"};
#ifdef SYS_io_uring_setup
    uint64_t parameters[15] = {0}; /* struct io_uring_params is 120 bytes of zeros for the defaults */
    const long fd = syscall(SYS_io_uring_setup, 1u, parameters);
    f->is_there = fd >= 0;
    if (f->is_there) {
        close((int)fd);
        say(f, "available");
        if (lp_read_queue_system() != NULL)
            f->use = "cold starts into device memory have several direct reads under way";
    } else {
        say(f, "not available (%s)", strerror(errno));
    }
#else
    say(f, "not known to this build");
#endif
}

/* A regular file at or directly below `path`, to open; false when there is none. */
static bool some_file(const char *path, char *file, size_t bytes)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return false;
    if (S_ISREG(about.st_mode))
        return snprintf(file, bytes, "%s", path) < (int)bytes;
    DIR *folder = opendir(path);
    bool is_found = false;
    if (folder == NULL)
        return false;
    for (const struct dirent *d = readdir(folder); d != NULL && !is_found; d = readdir(folder))
        is_found = snprintf(file, bytes, "%s/%s", path, d->d_name) < (int)bytes && stat(file, &about) == 0 &&
                   S_ISREG(about.st_mode) && about.st_size > 0;
    closedir(folder);
    return is_found;
}

void lp_doctor_direct(lp_doctor_fact *f, const char *path)
{
    enum { ALIGNMENT = 4096 };
    char file[4096];
    void *buffer = NULL;
    *f = (lp_doctor_fact){.key = "o_direct", .use = "files are read through the page cache"};
    if (!some_file(path, file, sizeof file)) {
        say(f, "'%s' has no file to try it on", lp_cli_clean(path));
        return;
    }
    const int fd = open(file, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) {
        say(f, "'%s' cannot be opened for it (%s)", lp_cli_clean(file), strerror(errno));
        return;
    }
    if (posix_memalign(&buffer, ALIGNMENT, ALIGNMENT) == 0) {
        f->is_there = pread(fd, buffer, ALIGNMENT, 0) >= 0;
        if (f->is_there) {
            say(f, "works on '%s'", lp_cli_clean(file));
            f->use = "files that are not cached are read past the page cache";
        } else {
            say(f, "reading '%s' with it fails (%s)", lp_cli_clean(file), strerror(errno));
        }
    }
    free(buffer);
    close(fd);
}

void lp_doctor_resident(lp_doctor_fact *f, const char *path)
{
    char file[4096];
    struct stat about;
    *f = (lp_doctor_fact){.key = "cached", .use = ""};
    const int fd = some_file(path, file, sizeof file) ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &about) != 0) {
        say(f, "'%s' has no file to look at", lp_cli_clean(path));
    } else {
        const int percent = lp_file_residency(fd, (int64_t)about.st_size);
        f->is_there = percent >= 0;
        if (percent < 0)
            say(f, "this file system does not tell what is in memory of '%s'", lp_cli_clean(file));
        else
            say(f, "%d %% of '%s' is in memory", percent, lp_cli_clean(file));
    }
    if (fd >= 0)
        close(fd);
}

void lp_doctor_pinned(lp_doctor_fact *f)
{
    struct rlimit limit;
    char bytes[32];
    *f = (lp_doctor_fact){.key = "pinned", .use = ""};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
        say(f, "the limit of locked memory is not known");
        return;
    }
    f->is_there = true;
    if (limit.rlim_cur == RLIM_INFINITY)
        say(f, "locked memory is not limited");
    else
        say(f, "locked memory is limited to %s", lp_format_bytes(bytes, (int64_t)limit.rlim_cur));
}

void lp_doctor_setting(lp_doctor_fact *f, const char *variable, const char *meaning)
{
    const char *value = getenv(variable);
    *f = (lp_doctor_fact){.key = variable, .is_there = value != NULL, .use = meaning};
    say(f, "%s", value == NULL ? "not set" : lp_cli_clean(value));
}
