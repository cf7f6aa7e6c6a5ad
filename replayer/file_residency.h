/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a file the page cache holds. */
#ifndef LOADPLAN_FILE_RESIDENCY_H
#define LOADPLAN_FILE_RESIDENCY_H

#include <stdint.h>

/* Percent of sampled bytes that can be read without waiting for the disk; -1 where the file system cannot say. Reads at
 * most a page for each sample from the disk, and does not wait for it. */
int lp_file_residency(int fd, int64_t size_bytes);

#endif
