/* Devices on the command line. */
#include <stdio.h>
#include <stdlib.h>

#include "app.h"

int app_device_name(const char *name, char backend[APP_BACKEND], int *index) {
    const char *colon = strchr(name, ':');
    size_t n = colon ? (size_t)(colon - name) : strlen(name), digits = colon ? strspn(colon + 1, "0123456789") : 0;
    if (!n || n >= APP_BACKEND || (colon && (!digits || digits > 3 || colon[1 + digits]))) return 0;
    memcpy(backend, name, n);
    backend[n] = 0;
    *index = colon ? atoi(colon + 1) : 0;
    return 1;
}

int app_device_wrong(const char *who, const char *name) {
    fprintf(stderr, "%s: '%s' is no device: 'vulkan', or 'vulkan:1' for the second\n", who, name);
    return APP_USAGE;
}

int app_device_open(const char *who, const char *name, qn_device **device) {
    char backend[APP_BACKEND];
    int index;
    qn_error error = {QN_OK, ""};
    if (!app_device_name(name, backend, &index)) return app_device_wrong(who, name);
    if (qn_device_open(backend, index, device, &error) != QN_OK) {
        fprintf(stderr, "%s: %s: %s\n", who, name, error.text);
        return APP_FAILED;
    }
    qn_device_info info;
    if (qn_device_describe(*device, &info) == QN_OK && info.features & QN_DEVICE_SOFTWARE)
        fprintf(stderr, "%s: %s is %s, a driver that computes on the CPU: without it the CPU is faster\n", who, name, info.name);
    return APP_OK;
}
