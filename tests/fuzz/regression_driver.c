/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz entry point over stored inputs: the files given, and the files of the folders given. Without an input it
 * fails, so that a corpus that went missing is seen. */
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static long inputs;

static int complain(const char *path)
{
    fprintf(stderr, "cannot read '%s': %s\n", path, strerror(errno));
    return 1;
}

static int run_file(const char *path, size_t bytes)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return complain(path);
    /* Exactly as large as the input, so that a sanitiser sees a read past its end. */
    uint8_t *data = malloc(bytes > 0 ? bytes : 1);
    const int is_read = data != NULL && fread(data, 1, bytes, f) == bytes;
    fclose(f);
    if (is_read) {
        printf("%s\n", path);
        fflush(stdout); /* the last line names the input that crashes */
        LLVMFuzzerTestOneInput(data, bytes);
        inputs++;
    }
    free(data);
    return is_read ? 0 : complain(path);
}

static int run_path(const char *path, int depth) /* a folder's folders are not entered */
{
    struct stat st;
    if (stat(path, &st) != 0)
        return complain(path);
    if (!S_ISDIR(st.st_mode))
        return run_file(path, (size_t)st.st_size);
    if (depth > 0)
        return 0;
    struct dirent **entry;
    const int count = scandir(path, &entry, NULL, alphasort);
    if (count < 0)
        return complain(path);
    int failures = 0;
    for (int i = 0; i < count; i++) {
        char name[4096];
        if (entry[i]->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, entry[i]->d_name);
            failures += run_path(name, depth + 1);
        }
        free(entry[i]);
    }
    free(entry);
    return failures;
}

int main(int argc, char **argv)
{
    int failures = 0;
    for (int i = 1; i < argc; i++)
        failures += run_path(argv[i], 0);
    printf("%ld inputs\n", inputs);
    return failures > 0 || inputs == 0;
}
