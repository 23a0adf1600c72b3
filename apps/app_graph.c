/* Graphs from the command line: a file, and numbers for its symbols. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "app.h"

enum { LARGEST_FILE = 1 << 30 };

static int complain(const char *who, const char *file, const char *text) {
    fprintf(stderr, "%s: %s: %s\n", who, file, text);
    return APP_FAILED;
}

/* The whole file, NULL with a complaint when it cannot be had. */
static char *read_file(const char *who, const char *path, size_t *bytes) {
    errno = 0;
    FILE *from = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *text = NULL;
    size_t n = 0, room = 0;
    while (from && !ferror(from) && !feof(from) && n < LARGEST_FILE) {
        if (n == room) {
            char *more = realloc(text, room = room ? room * 2 : 65536);
            if (!more) break;
            text = more;
        }
        n += fread(text + n, 1, room - n, from);
    }
    int whole = from && feof(from) && !ferror(from) && text;
    if (!whole) complain(who, path, from && !errno ? "too large, or no memory" : strerror(errno));
    if (from && from != stdin) fclose(from);
    *bytes = n;
    if (whole) return text;
    free(text);
    return NULL;
}

int app_graph_read(const char *who, const char *path, qn_graph **graph) {
    size_t bytes;
    qn_error error;
    char *text = read_file(who, path, &bytes);
    if (!text) return APP_FAILED;
    qn_status status = qn_graph_parse(text, bytes, 0, graph, &error);
    free(text);
    if (status == QN_OK) return APP_OK;
    fprintf(stderr, "%s: %s:%s\n", who, path, error.text); /* FILE:LINE:COLUMN: as compilers say it */
    return APP_FAILED;
}

static int symbol_by_name(const qn_graph *graph, const char *name, size_t length) {
    qn_symbol_info info = {.size = sizeof info};
    for (int i = 0; i < qn_graph_symbol_count(graph) && i < APP_SYMBOLS; i++)
        if (qn_graph_symbol_describe(graph, i, &info) == QN_OK && strlen(info.name) == length &&
            memcmp(info.name, name, length) == 0)
            return i;
    return -1;
}

int app_graph_symbols(const char *who, const qn_graph *graph, const char *list, int64_t *numbers) {
    qn_symbol_info info = {.size = sizeof info};
    for (int i = 0; i < APP_SYMBOLS; i++) numbers[i] = qn_graph_symbol_describe(graph, i, &info) == QN_OK ? info.most : 0;
    for (const char *item = list ? list : ""; *item;) {
        size_t length = strcspn(item, ",="), whole = strcspn(item, ",");
        char *end;
        int which = symbol_by_name(graph, item, length);
        long long number = item[length] == '=' ? strtoll(item + length + 1, &end, 10) : 0;
        if (which < 0 || item[length] != '=' || end == item + length + 1 || end != item + whole) {
            fprintf(stderr, which < 0 ? "%s: there is no symbol '%.*s'\n" : "%s: symbol '%.*s' needs a number\n", who,
                    (int)length, item);
            return APP_USAGE;
        }
        numbers[which] = number;
        item += whole + (item[whole] == ',');
    }
    return APP_OK;
}
