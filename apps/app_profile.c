/* --profile, once for all verbs. */
#include "app_profile.h"

#include <quern/device.h>
#include <stdio.h>
#include <stdlib.h>

#include "app.h"

enum { RING_BYTES = 64 << 20 }; /* pages that are not written to are not used */

static const char default_folder[] = "quern-profile";

const char *app_profile_folder(const option_maybe *given) {
    if (!given->given) return qn_recorder_environment();
    return given->argument && *given->argument ? given->argument : default_folder;
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

int app_profile_device(app_profile *profile, const char *backend, int index) {
    enum { MOST = 16 };
    qn_error error = {QN_OK, ""};
    int n = 0;
    if (!profile->recorder) return APP_OK;
    qn_device_info *infos = calloc(MOST, sizeof *infos);
    if (!infos || qn_device_list(infos, MOST, &n, &error) != QN_OK) n = 0;
    qn_status status = QN_OK;
    for (int i = 0; i < n && i < MOST; i++) {
        if (strcmp(infos[i].backend, backend) != 0 || infos[i].index != index) continue;
        qn_record_device device = {
            .size = sizeof device, .name = infos[i].name, .memory = infos[i].memory_bytes, .clock_bound = infos[i].clock_bound};
        status = qn_recorder_add_device(profile->recorder, &device, &error);
    }
    free(infos);
    return status == QN_OK ? APP_OK : failed(&error);
}

int app_profile_run(app_profile *profile, qn_plan *plan, const char *thread) {
    qn_error error = {QN_OK, "no context could be made"};
    qn_context *context = NULL;
    if (!profile->recorder) return APP_OK;
    int rc = qn_context_create(NULL, &context) == QN_OK ? app_profile_attach(profile, context, thread) : failed(&error);
    if (rc == APP_OK && qn_plan_run(plan, context, &error) != QN_OK) rc = failed(&error);
    qn_context_destroy(context);
    return rc;
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
        fprintf(stderr, "quern: %llu event%s recorded in %s\n", (unsigned long long)info.events, app_s((int64_t)info.events),
                path);
        if (info.dropped) fprintf(stderr, "quern: %llu more found no room\n", (unsigned long long)info.dropped);
    }
    qn_recorder_destroy(profile->recorder);
    profile->recorder = NULL;
    return rc;
}
