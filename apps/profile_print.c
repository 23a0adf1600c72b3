/* Printing a table: aligned columns for people, comma-separated values for programs. */
#include <stdlib.h>
#include <string.h>

#include "profile_cmd.h"

enum { NARROWEST = 24, GAP = 2 };

/* ---- Making a table ----------------------------------------------------------------------------------------------- */

void table_begin(table *t, const char *title) {
    memset(t, 0, sizeof *t);
    t->title = title;
}

void table_column_add(table *t, const char *name, int is_number) {
    if (t->columns < sizeof t->column / sizeof *t->column) t->column[t->columns++] = (table_column){name, is_number};
}

static int room(char ***list, size_t n, size_t *cap) {
    if (n < *cap) return 1;
    size_t more = *cap * 2 + 256;
    char **at = realloc(*list, more * sizeof *at);
    if (!at) return 0;
    *list = at;
    *cap = more;
    return 1;
}

void table_cell(table *t, const char *text) {
    if (!room(&t->cell, t->cells, &t->cap)) t->failed = 1;
    else t->cell[t->cells++] = (char *)text;
}

void table_cell_copy(table *t, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    if (!copy || !room(&t->word, t->words, &t->words_cap)) {
        free(copy);
        t->failed = 1;
        return;
    }
    memcpy(copy, text, n);
    t->word[t->words++] = copy;
    table_cell(t, copy);
}

static void forget(table *t) {
    for (size_t i = 0; i < t->words; i++) free(t->word[i]);
    free(t->word);
    free(t->cell);
    memset(t, 0, sizeof *t);
}

/* ---- Text of a cell ----------------------------------------------------------------------------------------------- */

static int is_continuation(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

static size_t width_of(const char *text) {
    size_t n = 0;
    for (; *text; text++) n += !is_continuation(*text);
    return n;
}

static const char *skip_characters(const char *text, size_t n) {
    for (; *text && n; n--) {
        text++;
        while (is_continuation(*text)) text++;
    }
    return text;
}

/* A name comes from a file nobody vouches for: what could move a terminal's cursor is not passed on. */
static void put_clean(FILE *to, const char *from, const char *end) {
    for (; from < end; from++) {
        unsigned char c = (unsigned char)*from;
        int high_control = c == 0xc2 && from + 1 < end && (unsigned char)from[1] < 0xa0;
        fputc(c < 0x20 || c == 0x7f || high_control ? '?' : c, to);
        from += high_control;
    }
}

void print_clean(FILE *to, const char *text, size_t most) { put_clean(to, text, skip_characters(text, most)); }

/* Numbers with a fraction to three places, which a person can compare; CSV keeps every digit. */
static const char *number_text(const char *text, char *room_for, size_t size) {
    const char *dot = strchr(text, '.');
    if (!dot || strchr(text, 'e') || strlen(dot) <= 4) return text;
    snprintf(room_for, size, "%.3f", strtod(text, NULL));
    return room_for;
}

static void put_cell(printer *p, const char *text, size_t width, int is_number, int last) {
    size_t n = width_of(text);
    if (is_number) {
        fprintf(p->to, "%*s", n < width ? (int)(width - n) : 0, "");
        put_clean(p->to, text, text + strlen(text));
    } else if (n > width) { /* the end of a long name tells as much as its beginning */
        size_t tail = (width - 3) / 3, head = width - 3 - tail;
        put_clean(p->to, text, skip_characters(text, head));
        fputs("...", p->to);
        const char *rest = skip_characters(text, n - tail);
        put_clean(p->to, rest, rest + strlen(rest));
    } else {
        put_clean(p->to, text, text + strlen(text));
        if (!last) fprintf(p->to, "%*s", (int)(width - n), "");
    }
}

/* ---- Aligned ------------------------------------------------------------------------------------------------------ */

static const char *shown(const table *t, size_t row, size_t column, char *scratch, size_t size) {
    const char *text = t->cell[row * t->columns + column];
    return t->column[column].is_number ? number_text(text, scratch, size) : text;
}

static size_t longest_word(const char *name) {
    size_t longest = 0;
    while (*name) {
        size_t n = strcspn(name, " ");
        if (n > longest) longest = n;
        name += n + strspn(name + n, " ");
    }
    return longest;
}

/* Headers break at blanks: a line of a header as wide as its column, NULL behind the last. */
static const char *header_line(const char *name, size_t width, size_t line, size_t *length) {
    for (;; line--) {
        size_t n = strcspn(name, " ");
        if (*name == 0) return NULL;
        while (name[n]) {
            size_t next = n + 1 + strcspn(name + n + 1, " ");
            if (next > width) break;
            n = next;
        }
        if (line == 0) {
            *length = n;
            return name;
        }
        name += n + (name[n] == ' ');
    }
}

/* As wide as the widest cell; then the widest names give way until the line fits. */
static void measure(const printer *p, const table *t, size_t rows, size_t *width) {
    char scratch[64];
    size_t total = 0;
    for (size_t c = 0; c < t->columns; c++) {
        width[c] = longest_word(t->column[c].name);
        for (size_t r = 0; r < rows; r++) {
            size_t n = width_of(shown(t, r, c, scratch, sizeof scratch));
            if (n > width[c]) width[c] = n;
        }
        total += width[c] + GAP;
    }
    while (total > p->width + GAP) {
        size_t widest = t->columns;
        for (size_t c = 0; c < t->columns; c++)
            if (!t->column[c].is_number && width[c] > NARROWEST && (widest == t->columns || width[c] > width[widest])) widest = c;
        if (widest == t->columns) return;
        width[widest]--;
        total--;
    }
}

static void print_header(printer *p, const table *t, const size_t *width) {
    size_t lines = 1, n;
    for (size_t c = 0; c < t->columns; c++)
        while (header_line(t->column[c].name, width[c], lines, &n)) lines++;
    for (size_t l = 0; l < lines; l++)
        for (size_t c = 0; c < t->columns; c++) {
            size_t own = 0; /* the last lines of all headers stand side by side */
            while (header_line(t->column[c].name, width[c], own, &n)) own++;
            const char *text = l + own >= lines ? header_line(t->column[c].name, width[c], l + own - lines, &n) : NULL;
            size_t pad = width[c] - (text ? n : 0);
            int number = t->column[c].is_number, last = c + 1 == t->columns;
            fprintf(p->to, "%*s%.*s%*s%s", number ? (int)pad : 0, "", text ? (int)n : 0, text ? text : "",
                    number || last ? 0 : (int)pad, "", last ? "\n" : "  ");
        }
    for (size_t c = 0; c < t->columns; c++) {
        for (size_t i = 0; i < width[c]; i++) fputc('-', p->to);
        fputs(c + 1 == t->columns ? "\n" : "  ", p->to);
    }
}

static void print_aligned(printer *p, const table *t, size_t rows) {
    size_t width[sizeof t->column / sizeof *t->column];
    char scratch[64];
    measure(p, t, rows, width);
    if (t->title) {
        put_clean(p->to, t->title, t->title + strlen(t->title));
        fputc('\n', p->to);
    }
    print_header(p, t, width);
    for (size_t r = 0; r < rows && !*p->cancel; r++)
        for (size_t c = 0; c < t->columns; c++) {
            put_cell(p, shown(t, r, c, scratch, sizeof scratch), width[c], t->column[c].is_number, c + 1 == t->columns);
            fputs(c + 1 == t->columns ? "\n" : "  ", p->to);
        }
}

/* ---- Comma-separated ---------------------------------------------------------------------------------------------- */

static void put_field(FILE *to, const char *text) {
    if (!strpbrk(text, ",\"\n\r")) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (; *text; text++) {
        if (*text == '"') fputc('"', to);
        fputc(*text, to);
    }
    fputc('"', to);
}

static void print_csv(printer *p, const table *t, size_t rows) {
    if (t->title) {
        fputs("# ", p->to);
        put_clean(p->to, t->title, t->title + strlen(t->title));
        fputc('\n', p->to);
    }
    for (size_t c = 0; c < t->columns; c++) {
        put_field(p->to, t->column[c].name);
        fputc(c + 1 == t->columns ? '\n' : ',', p->to);
    }
    for (size_t r = 0; r < rows && !*p->cancel; r++)
        for (size_t c = 0; c < t->columns; c++) {
            put_field(p->to, t->cell[r * t->columns + c]);
            fputc(c + 1 == t->columns ? '\n' : ',', p->to);
        }
}

void table_print(printer *p, table *t) {
    size_t rows = t->columns ? t->cells / t->columns : 0, left_out = 0;
    if (t->failed) p->failed = 1;
    if (p->top && rows > p->top) {
        left_out = rows - p->top;
        rows = p->top;
    }
    if (t->columns && !p->failed) {
        if (p->printed++) fputc('\n', p->to);
        if (p->form == PRINT_CSV) print_csv(p, t, rows);
        else print_aligned(p, t, rows);
        if (left_out && p->form != PRINT_CSV) fprintf(p->to, "(%zu more)\n", left_out);
    }
    forget(t);
}

void print_line(printer *p, const char *text) {
    if (p->form == PRINT_CSV) return;
    if (p->printed++) fputc('\n', p->to);
    put_clean(p->to, text, text + strlen(text));
    fputc('\n', p->to);
}
