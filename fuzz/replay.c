/* Runs a fuzz target over files and folders of inputs that once mattered; linked with one fuzz_*.c in the place of libFuzzer, so
 * that every build replays them. Exits 1 when a file cannot be read; a broken promise aborts, and names its input. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, int *count) {
    FILE *from = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t n = 0, room = 0;
    while (from && !feof(from) && !ferror(from)) {
        if (n == room) {
            uint8_t *more = realloc(data, room = room ? room * 2 : 65536);
            if (!more) break;
            data = more;
        }
        n += fread(data + n, 1, room - n, from);
    }
    int ok = from && feof(from);
    if (from) fclose(from);
    if (ok) {
        printf("%s\n", path);
        fflush(stdout); /* so that the last line names the input that broke something */
        LLVMFuzzerTestOneInput(data, n);
        ++*count;
    } else {
        fprintf(stderr, "replay: %s cannot be read\n", path);
    }
    free(data);
    return ok;
}

static int replay(const char *path, int *count) {
    struct stat s;
    if (stat(path, &s) != 0 || !S_ISDIR(s.st_mode)) return replay_file(path, count);
    DIR *folder = opendir(path);
    int ok = folder != NULL;
    for (struct dirent *e; folder && (e = readdir(folder)) != NULL;) {
        char inner[4096];
        if (e->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        ok &= replay(inner, count);
    }
    if (folder) closedir(folder);
    return ok;
}

int main(int argc, char **argv) {
    int ok = 1, count = 0;
    for (int i = 1; i < argc; i++) ok &= replay(argv[i], &count);
    printf("%d inputs replayed\n", count);
    return ok && count ? 0 : 1;
}
