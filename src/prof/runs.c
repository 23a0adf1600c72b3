/* Listing a log directory. Folders are walked with an explicit list, links to folders are followed to a small depth only, and
 * everything is sorted, because the order of a directory is nobody's friend. */
#include "prof/runs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "prof/prof_sort.h"

enum { DEEPEST = 32 };

typedef struct folder {
    const char *path, *name; /* name is relative to the log directory, "." for itself */
    int depth;
} folder;

typedef struct lister {
    qn_arena *arena;
    prof_runs *runs;
    QN_VEC(folder) folders; /* grows while it is walked */
    qn_error *error;
} lister;

static char *copy_text(qn_arena *arena, const char *text, size_t length) {
    char *copy = qn_arena_alloc(arena, length + 1, 1);
    if (copy) {
        memcpy(copy, text, length);
    }
    return copy;
}

static char *join(qn_arena *arena, const char *folder_path, const char *name) {
    size_t length = strlen(folder_path), more = strlen(name);
    char *joined = qn_arena_alloc(arena, length + more + 2, 1);
    if (joined) {
        memcpy(joined, folder_path, length);
        joined[length] = '/';
        memcpy(joined + length + 1, name, more);
    }
    return joined;
}

/* Splits `<worker>[.<digits>].pt.trace.json[.gz]`; 0 when the name is another. */
static int split_name(const char *name, size_t *worker, const char **stamp, size_t *stamp_length) {
    static const char MIDDLE[] = ".pt.trace.json";
    size_t length = strlen(name), middle = sizeof MIDDLE - 1;
    if (length >= 3 && strcmp(name + length - 3, ".gz") == 0) {
        length -= 3;
    }
    if (length < middle || memcmp(name + length - middle, MIDDLE, middle) != 0) {
        return 0;
    }
    length -= middle;
    size_t digits = length;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') {
        digits--;
    }
    int stamped = digits > 0 && digits < length && name[digits - 1] == '.';
    *worker = stamped ? digits - 1 : length;
    *stamp = name + digits;
    *stamp_length = stamped ? length - digits : 0;
    return 1;
}

static qn_status add_span(lister *l, prof_run *run, const char *path, const char *name, size_t length, const char *stamp,
                          size_t digits) {
    prof_worker *worker = NULL;
    for (size_t i = 0; i < run->workers.n && !worker; i++) {
        const char *known = run->workers.at[i].name;
        worker = strlen(known) == length && memcmp(known, name, length) == 0 ? &run->workers.at[i] : NULL;
    }
    if (!worker) {
        if (!QN_VEC_ROOM(l->arena, &run->workers, 1)) {
            return QN_NO_MEMORY;
        }
        worker = &run->workers.at[run->workers.n++];
        memset(worker, 0, sizeof *worker);
        worker->name = copy_text(l->arena, name, length);
    }
    prof_span span = {"default", copy_text(l->arena, stamp, digits), path, NULL, 0, NULL};
    if (!worker->name || !span.stamp || !QN_VEC_ROOM(l->arena, &worker->spans, 1)) {
        return QN_NO_MEMORY;
    }
    worker->spans.at[worker->spans.n++] = span;
    return QN_OK;
}

/* ---- Order and numbers -------------------------------------------------------------------------------------------- */

static int span_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    const prof_span *x = a, *y = b;
    int order = strcmp(x->stamp, y->stamp);
    return order < 0 || (order == 0 && strcmp(x->path, y->path) < 0);
}

static int worker_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return strcmp(((const prof_worker *)a)->name, ((const prof_worker *)b)->name) < 0;
}

static int run_before(const void *a, const void *b, const void *unused) {
    (void)unused;
    return strcmp(((const prof_run *)a)->name, ((const prof_run *)b)->name) < 0;
}

static qn_status number_spans(lister *l, prof_worker *worker) {
    char digits[24];
    int number = 0;
    if (qn_prof_sort(l->arena, worker->spans.at, worker->spans.n, sizeof *worker->spans.at, span_before, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < worker->spans.n; i++) {
        prof_span *span = &worker->spans.at[i];
        if (!span->stamp[0]) {
            continue;
        }
        if (i == 0 || strcmp(span->stamp, worker->spans.at[i - 1].stamp) != 0) {
            number++;
        }
        snprintf(digits, sizeof digits, "%d", number);
        span->name = copy_text(l->arena, digits, strlen(digits));
        if (!span->name) {
            return QN_NO_MEMORY;
        }
    }
    return QN_OK;
}

static qn_status order_run(lister *l, prof_run *run) {
    qn_status status = QN_OK;
    for (size_t i = 0; i < run->workers.n && status == QN_OK; i++) {
        status = number_spans(l, &run->workers.at[i]);
    }
    if (status != QN_OK) {
        return status;
    }
    return qn_prof_sort(l->arena, run->workers.at, run->workers.n, sizeof *run->workers.at, worker_before, NULL);
}

/* ---- Folders ------------------------------------------------------------------------------------------------------ */

static qn_status add_entry(lister *l, const folder *from, const char *name, prof_run *run) {
    struct stat info;
    size_t worker, digits;
    const char *stamp;
    int is_trace = split_name(name, &worker, &stamp, &digits);
    char *path = join(l->arena, from->path, name);
    if (!path) {
        return QN_NO_MEMORY;
    }
    if (stat(path, &info) != 0) {
        return QN_OK; /* gone, or a link to nowhere */
    }
    if (S_ISREG(info.st_mode)) {
        return is_trace ? add_span(l, run, path, name, worker, stamp, digits) : QN_OK;
    }
    if (!S_ISDIR(info.st_mode) || from->depth == DEEPEST) {
        return QN_OK;
    }
    char *relative = strcmp(from->name, ".") == 0 ? copy_text(l->arena, name, strlen(name)) : join(l->arena, from->name, name);
    if (!relative || !QN_VEC_ROOM(l->arena, &l->folders, 1)) {
        return QN_NO_MEMORY;
    }
    folder below = {path, relative, from->depth + 1};
    l->folders.at[l->folders.n++] = below;
    return QN_OK;
}

static qn_status read_folder(lister *l, folder from) {
    prof_run run;
    memset(&run, 0, sizeof run);
    run.name = from.name;
    DIR *dir = opendir(from.path);
    if (!dir) {
        return from.depth ? QN_OK : qn_error_set(l->error, QN_IO, "%s: cannot list: %s", from.path, strerror(errno));
    }
    qn_status status = QN_OK;
    for (struct dirent *entry; status == QN_OK && (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            status = add_entry(l, &from, entry->d_name, &run);
        }
    }
    closedir(dir);
    if (status != QN_OK || run.workers.n == 0) {
        return status;
    }
    status = order_run(l, &run);
    if (status != QN_OK || !QN_VEC_ROOM(l->arena, l->runs, 1)) {
        return QN_NO_MEMORY;
    }
    l->runs->at[l->runs->n++] = run;
    return QN_OK;
}

static qn_status list_folders(lister *l, const char *path) {
    folder top = {path, ".", 0};
    if (!QN_VEC_ROOM(l->arena, &l->folders, 1)) {
        return QN_NO_MEMORY;
    }
    l->folders.at[l->folders.n++] = top;
    for (size_t i = 0; i < l->folders.n; i++) {
        qn_status status = read_folder(l, l->folders.at[i]);
        if (status != QN_OK) {
            return status;
        }
    }
    if (l->runs->n == 0) {
        return qn_error_set(l->error, QN_ARGUMENT, "%s: no file named <worker>[.<digits>].pt.trace.json[.gz] below it", path);
    }
    return qn_prof_sort(l->arena, l->runs->at, l->runs->n, sizeof *l->runs->at, run_before, NULL);
}

static qn_status list_file(lister *l, const char *path) {
    const char *name = strrchr(path, '/'), *stamp = "";
    size_t worker, digits = 0;
    name = name ? name + 1 : path;
    if (!split_name(name, &worker, &stamp, &digits)) {
        worker = strlen(name);
        stamp = "";
        digits = 0;
    }
    prof_run run;
    memset(&run, 0, sizeof run);
    run.name = ".";
    if (add_span(l, &run, path, name, worker, stamp, digits) != QN_OK || order_run(l, &run) != QN_OK ||
        !QN_VEC_ROOM(l->arena, l->runs, 1)) {
        return QN_NO_MEMORY;
    }
    l->runs->at[l->runs->n++] = run;
    return QN_OK;
}

qn_status qn_prof_runs_list(qn_arena *arena, const char *path, prof_runs *runs, qn_error *error) {
    struct stat info;
    lister l;
    memset(&l, 0, sizeof l);
    l.arena = arena;
    l.runs = runs;
    l.error = error;
    char *kept = copy_text(arena, path, strlen(path));
    if (!kept) {
        return QN_NO_MEMORY;
    }
    if (stat(path, &info) != 0) {
        return qn_error_set(error, QN_IO, "%s: cannot open: %s", path, strerror(errno));
    }
    return S_ISDIR(info.st_mode) ? list_folders(&l, kept) : list_file(&l, kept);
}
