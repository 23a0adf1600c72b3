/* --profile, once for all verbs. */
#include "app_profile.h"

#include <stdio.h>

#include "app.h"

enum { RING_BYTES = 64 << 20 }; /* pages that are not written to are not used */

static const char default_folder[] = "quern-profile";

const char *app_profile_option(int *argc, char **argv) {
    const char *folder = qn_recorder_environment();
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--profile") == 0) folder = default_folder;
        else if (strncmp(argv[i], "--profile=", 10) == 0) folder = argv[i][10] ? argv[i] + 10 : default_folder;
        else argv[kept++] = argv[i];
    }
    argv[kept] = NULL;
    *argc = kept;
    return folder;
}

static int failed(const qn_error *error) {
    fprintf(stderr, "quern: recording: %s\n", error->text);
    return APP_FAILED;
}

int app_profile_begin(app_profile *profile, const char *folder) {
    profile->recorder = NULL;
    if (!folder) return APP_OK;
    qn_error error;
    qn_recorder_options options = qn_recorder_options_default();
    options.folder = folder;
    options.flags |= QN_RECORD_LIMITS | QN_RECORD_GZIP;
    options.ring_bytes = RING_BYTES;
    return qn_recorder_create(&options, &profile->recorder, &error) == QN_OK ? APP_OK : failed(&error);
}

int app_profile_attach(app_profile *profile, qn_context *context, const char *thread) {
    qn_error error;
    if (!profile->recorder) return APP_OK;
    return qn_recorder_attach(profile->recorder, context, thread, &error) == QN_OK ? APP_OK : failed(&error);
}

int app_profile_end(app_profile *profile) {
    if (!profile->recorder) return APP_OK;
    qn_error error;
    const char *path;
    qn_recorder_info info;
    info.size = sizeof info;
    int rc = APP_OK;
    if (qn_recorder_write(profile->recorder, &path, &error) != QN_OK) {
        rc = failed(&error);
    } else if (qn_recorder_describe(profile->recorder, &info) == QN_OK) {
        fprintf(stderr, "quern: %llu events recorded in %s\n", (unsigned long long)info.events, path);
        if (info.dropped) fprintf(stderr, "quern: %llu more found no room\n", (unsigned long long)info.dropped);
    }
    qn_recorder_destroy(profile->recorder);
    profile->recorder = NULL;
    return rc;
}
