/* The table of before that `quern bench ops --against` reads: what `-o csv` wrote, perhaps saved again by another program, which may
 * quote more fields or fewer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "bench.h"

enum { TABLE = 4096, KEY = 120, NAMES = 4 }; /* a row's name: op, shape, dtype, threads */

struct bench_entry {
    char key[KEY];
    double ns;
};

/* One field without its quotes, of which two within them are one; *line moves behind its comma. What finds no room is cut. */
static void take_field(const char **line, char *field, size_t size) {
    const char *at = *line;
    int quoted = *at == '"';
    size_t n = 0;
    for (at += quoted; *at && *at != '\r' && *at != '\n'; at++) {
        if (quoted ? *at == '"' && *++at != '"' : *at == ',') break;
        if (n + 1 < size) field[n++] = *at;
    }
    field[n] = 0;
    *line = *at == ',' ? at + 1 : at;
}

/* Whether the line is a row: its name, then nanoseconds. */
static int take_row(const char *line, struct bench_entry *e) {
    char field[KEY], *end;
    size_t length = 0;
    for (int i = 0; i < NAMES; i++) {
        take_field(&line, field, sizeof field);
        length += (size_t)snprintf(e->key + length, sizeof e->key - length, "%s\t", field);
        if (length >= sizeof e->key) return 0;
    }
    take_field(&line, field, sizeof field);
    e->ns = strtod(field, &end);
    return e->ns > 0 && !*end;
}

int bench_before_read(bench_before *b, const char *path) {
    char line[400];
    FILE *from = fopen(path, "r");
    int why = errno;
    *b = (bench_before){path, calloc(TABLE, sizeof *b->rows), 0};
    while (from && b->rows && b->n < TABLE && fgets(line, sizeof line, from)) b->n += take_row(line, &b->rows[b->n]);
    int read = from && !ferror(from);
    if (from) why = errno; /* of reading, where that failed: a folder can be opened */
    if (!read) fprintf(stderr, "quern bench ops: %s cannot be read: %s\n", path, strerror(why));
    else if (!b->rows) fprintf(stderr, "quern bench ops: there is no memory for the table of before\n");
    else if (!b->n) fprintf(stderr, "quern bench ops: %s has no row as 'quern bench ops -o csv' writes them\n", path);
    if (from) fclose(from);
    return read && b->n ? APP_OK : APP_FAILED;
}

double bench_before_ns(const bench_before *b, const char *op, const char *shape, const char *dtype, int threads) {
    char key[KEY];
    double ns = 0;
    snprintf(key, sizeof key, "%s\t%s\t%s\t%d\t", op, shape, dtype, threads);
    for (int i = 0; i < b->n; i++)
        if (strcmp(key, b->rows[i].key) == 0) ns = b->rows[i].ns;
    return ns;
}

void bench_before_free(bench_before *b) {
    free(b->rows);
    b->rows = NULL;
}
