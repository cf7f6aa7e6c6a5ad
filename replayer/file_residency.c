/* SPDX-License-Identifier: Apache-2.0 */
/* Samples single bytes with reads that fail instead of waiting. mincore would need a mapping, and says that everything
 * is resident of files that the process may not write. */
#include "replayer/file_residency.h"

#include <errno.h>
#include <sys/uio.h>

enum { SAMPLES = 64 };

int lp_file_residency(int fd, int64_t size_bytes)
{
#ifdef RWF_NOWAIT
    int resident = 0;
    if (size_bytes <= 0)
        return -1;
    for (int64_t i = 0; i < SAMPLES; i++) {
        char byte;
        const struct iovec to = {&byte, 1};
        const int64_t off = size_bytes / SAMPLES * i + size_bytes / (2 * SAMPLES);
        const ssize_t got = preadv2(fd, &to, 1, off, RWF_NOWAIT);
        if (got == 1)
            resident++;
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            return -1;
    }
    return resident * 100 / SAMPLES;
#else
    (void)fd;
    (void)size_bytes;
    return -1;
#endif
}
