/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples single bytes with reads that fail instead of waiting. mincore would need a mapping, and says that everything
 * is resident of files that the process may not write. A sample that is not there may be fetched by the kernel: no more
 * than its page, since the file is said to be read at random meanwhile, and few samples are taken where all agree.
 */
#include "replayer/file_residency.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

enum { SAMPLES = 64, FIRST_SAMPLES = 8 };

#ifdef RWF_NOWAIT

/* 1: there; 0: not; -1: it cannot be told. */
static int sample(int fd, int64_t off)
{
    char byte;
    const struct iovec to = {&byte, 1};
    const ssize_t got = preadv2(fd, &to, 1, off, RWF_NOWAIT);
    if (got == 1)
        return 1;
    return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static int sample_all(int fd, int64_t size_bytes)
{
    int resident = 0;
    for (int pass = 0; pass < 2; pass++) { /* a few of all, then the others */
        const int step = SAMPLES / FIRST_SAMPLES;
        for (int i = 0; i < SAMPLES; i++) {
            if ((i % step == step / 2) != (pass == 0))
                continue;
            const int there = sample(fd, size_bytes / SAMPLES * i + size_bytes / (2 * SAMPLES));
            if (there < 0)
                return -1;
            resident += there;
        }
        if (pass == 0 && (resident == 0 || resident == FIRST_SAMPLES))
            return resident == 0 ? 0 : 100;
    }
    return resident * 100 / SAMPLES;
}

int lp_file_residency(int fd, int64_t size_bytes)
{
    if (size_bytes <= 0)
        return -1;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    const int percent = sample_all(fd, size_bytes);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
    return percent;
}

#else

int lp_file_residency(int fd, int64_t size_bytes)
{
    (void)fd;
    (void)size_bytes;
    return -1;
}

#endif
