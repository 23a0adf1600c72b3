#define _GNU_SOURCE /* sched_getaffinity */
#include "thread/cores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>

enum { MOST_CPUS = 1 << 16, LONG_BITS = 8 * sizeof(long) };

int qn_cores_allowed(void) {
    unsigned long mask[MOST_CPUS / LONG_BITS];
    memset(mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)(void *)mask) != 0) return 0;
    return CPU_COUNT_S(sizeof mask, (cpu_set_t *)(void *)mask);
}
#else
int qn_cores_allowed(void) { return 0; }
#endif

enum { ROOM = 4096 };

/* The first line of folder/name, without its end; 0 when there is none. */
static int read_line(const char *folder, const char *name, char *line, int room) {
    char path[2 * ROOM + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    int found = f && fgets(line, room, f) != NULL;
    if (f) fclose(f);
    if (found) line[strcspn(line, "\n")] = 0;
    return found;
}

/* What one group may use: a file with both numbers, or, in version 1 of these groups, two files. */
static int quota_of(const char *folder) {
    char line[160], period[64];
    if (read_line(folder, "cpu.max", line, 64)) return qn_cores_of_quota(line);
    if (!read_line(folder, "cpu.cfs_quota_us", line, 64) || !read_line(folder, "cpu.cfs_period_us", period, sizeof period))
        return 0;
    return qn_cores_of_quota(strcat(strcat(line, " "), period));
}

/* The least that the group below `top` and those around it may use; 0: all. */
static int least_of(const char *top, char *group) {
    char folder[2 * ROOM];
    int least = 0;
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", top, group);
        int some = quota_of(folder);
        if (some && (!least || some < least)) least = some;
        char *last = strrchr(group, '/');
        if (!last) return least;
        *last = 0;
    }
}

/* Whether a word is among those between commas. */
static int is_listed(const char *list, const char *word) {
    size_t length = strlen(word);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == length && memcmp(list, word, length) == 0) return 1;
    return 0;
}

/* Lines are NUMBER:CONTROLLERS:PATH; version 2 names no controllers. In a container the path often is not that of the mount there, and
 * the mount itself is the group: that is where the walk upwards ends. */
int qn_cores_granted(const char *list, const char *mount) {
    char line[ROOM], top[ROOM];
    FILE *f = fopen(list, "r");
    int least = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        path[strcspn(path, "\n")] = 0;
        int second = controllers[1] == 0;
        if (!second && !is_listed(controllers + 1, "cpu")) continue;
        snprintf(top, sizeof top, "%s%s", mount, second ? "" : "/cpu");
        int some = least_of(top, path);
        if (some && (!least || some < least)) least = some;
    }
    if (f) fclose(f);
    return least;
}

int qn_cores_of_quota(const char *text) {
    char *end;
    long long quota = strtoll(text, &end, 10), period = end != text ? strtoll(end, NULL, 10) : 0;
    if (quota <= 0 || period <= 0) return 0; /* "max", or -1 */
    long long cores = quota / period + (quota % period != 0);
    return cores > 1 << 20 ? 0 : (int)cores;
}

int qn_cores(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int cores = online < 1 ? 1 : online > 1 << 20 ? 1 << 20 : (int)online;
    int ours = qn_cores_allowed(), time = qn_cores_granted("/proc/self/cgroup", "/sys/fs/cgroup");
    if (ours > 0 && ours < cores) cores = ours;
    if (time > 0 && time < cores) cores = time;
    return cores;
}
