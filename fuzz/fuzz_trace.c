/* libFuzzer: any bytes as a trace. The first byte picks dialect, flags and whether the file counts as gzip; every view is asked
 * for. Nothing may crash, leak or take more than the memory allowed. Built with -fsanitize=fuzzer it searches; linked with replay.c it runs saved inputs. */
#include <quern/profile.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static qn_status count(void *user, const char *text, size_t length) {
    (void)text;
    *(size_t *)user += length;
    return QN_OK;
}

static int save(const uint8_t *data, size_t size, int gz, char *path, size_t room) {
    const char *folder = getenv("TMPDIR");
    char plain[512];
    int length = snprintf(plain, sizeof plain, "%s/quern-fuzz-XXXXXX", folder ? folder : "/tmp");
    int fd = length > 0 && (size_t)length + 3 < sizeof plain ? mkstemp(plain) : -1;
    if (fd < 0) {
        return 0;
    }
    FILE *file = fdopen(fd, "wb");
    int written = file && fwrite(data, 1, size, file) == size;
    snprintf(path, room, "%s%s", plain, gz ? ".gz" : "");
    return file && fclose(file) == 0 && written && rename(plain, path) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[520];
    qn_profile *profile;
    if (size == 0 || !save(data + 1, size - 1, data[0] & 4, path, sizeof path)) {
        return 0;
    }
    qn_profile_options options = qn_profile_options_default();
    options.dialect = (qn_profile_dialect)(data[0] & 3);
    options.flags = data[0] >> 3 & 31u;
    if ((options.flags & QN_PROFILE_OWNER_TIME) && size % 2) {
        options.flags ^= QN_PROFILE_OWNER_TIME | QN_PROFILE_OWNER_ENCLOSING;
    }
    options.max_memory = 256u << 20;
    if (qn_profile_open(path, &options, &profile, NULL) == QN_OK) {
        size_t written = 0;
        for (int view = 0; qn_profile_view_name(view); view++) {
            qn_error error;
            qn_profile_view(profile, qn_profile_view_name(view), NULL, count, &written, &error);
        }
        qn_profile_close(profile);
    }
    unlink(path);
    return 0;
}
