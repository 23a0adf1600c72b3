/* Flags, progress, Ctrl-C and the printing of foreign text, for the verbs about model files. */
#include "model_app.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- The command line */

int model_fail(const char *verb, const char *text) {
    fprintf(stderr, "quern %s: %s\n", verb, text);
    return APP_FAILED;
}

static int is_one_file(const char *path, const struct stat *out) {
    struct stat s;
    return stat(path, &s) == 0 && s.st_dev == out->st_dev && s.st_ino == out->st_ino;
}

/* NAME-00001-of-00003.gguf is read with the others of its number. */
static int is_shard(const char *in, const struct stat *out) {
    enum { TAIL = 20, DIGITS = 5 };
    char path[4096];
    size_t n = strlen(in), stem = n > TAIL ? n - TAIL : 0;
    int first = 0, count = 0, end = 0;
    if (!stem || n >= sizeof path || sscanf(in + stem, "-%5d-of-%5d.gguf%n", &first, &count, &end) != 2 || end != TAIL) return 0;
    for (int i = 1; i <= count; i++) {
        snprintf(path, sizeof path, "%.*s-%0*d%s", (int)stem, in, DIGITS, i, in + stem + 1 + DIGITS);
        if (is_one_file(path, out)) return 1;
    }
    return 0;
}

/* A folder is read for its weights, settings and words, and often has a converted model beside them. */
static int is_of_folder(const char *in, const char *out) {
    const char *name = strrchr(out, '/');
    struct stat in_folder, of_out;
    size_t n = strlen(out);
    char folder[4096];
    if (stat(in, &in_folder) != 0 || !S_ISDIR(in_folder.st_mode) || (n > 5 && strcmp(out + n - 5, ".gguf") == 0)) return 0;
    snprintf(folder, sizeof folder, "%.*s", name ? (int)(name - out + 1) : 1, name ? out : ".");
    return stat(folder, &of_out) == 0 && of_out.st_dev == in_folder.st_dev && of_out.st_ino == in_folder.st_ino;
}

int model_is_same(const char *verb, const char *in, const char *out) {
    struct stat s;
    if (!in || !out || stat(out, &s) != 0 || !(is_one_file(in, &s) || is_shard(in, &s) || is_of_folder(in, out))) return 0;
    fprintf(stderr, "quern %s: %s is what is read; give the output another name\n", verb, out);
    return 1;
}

/* ---- Files */

qn_status model_open_file(const char *path, int no_map, qn_file **file, qn_error *error) {
    qn_file_options options = qn_file_options_default();
    options.flags = no_map ? QN_FILE_NO_MAP : 0;
    options.cancel = model_stopped();
    return qn_file_open(path, &options, file, error);
}

/* ---- Text from files */

int model_character(const char *text, uint64_t room) {
    const unsigned char *p = (const unsigned char *)text;
    int n = p[0] < 0x80                   ? 1
            : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
            : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
            : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                          : 0;
    if (!n || room < (uint64_t)n) return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (n == 3 && ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0))) return 0; /* overlong, surrogate */
    if (n == 4 && ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))) return 0;
    return n;
}

static int put_text(FILE *to, const char *text, uint64_t bytes, uint64_t most) {
    const unsigned char *p = (const unsigned char *)text;
    int columns = 0;
    for (uint64_t i = 0; i < bytes;) {
        if (i >= most) return columns + fprintf(to, "...");
        int n = model_character(text + i, bytes - i);
        int control = n == 1 && (p[i] < 32 || p[i] == 127);
        int c1 = n == 2 && p[i] == 0xc2 && p[i + 1] < 0xa0; /* the other control characters */
        if (p[i] == '\n') columns += fprintf(to, "\\n");
        else if (p[i] == '\t') columns += fprintf(to, "\\t");
        else if (!n || control || c1) columns += fprintf(to, "\\x%02x", p[i]), n = 1;
        else columns += fprintf(to, "%.*s", n, text + i) ? 1 : 0;
        i += (uint64_t)n;
    }
    return columns;
}

int model_print_text(const char *text, uint64_t bytes, uint64_t most) { return put_text(stdout, text, bytes, most); }

void model_print_json(const char *text, uint64_t bytes) {
    const unsigned char *p = (const unsigned char *)text;
    putchar('"');
    for (uint64_t i = 0; i < bytes;) {
        int n = model_character(text + i, bytes - i);
        if (!n) printf("\\ufffd"), n = 1;
        else if (p[i] == '"' || p[i] == '\\') printf("\\%c", p[i]);
        else if (p[i] < 32) printf("\\u%04x", p[i]);
        else fwrite(text + i, 1, (size_t)n, stdout);
        i += (uint64_t)n;
    }
    putchar('"');
}

void model_print_number(double v, int wide) {
    char text[40];
    for (int digits = 1; digits <= (wide ? 17 : 9); digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (wide ? strtod(text, NULL) == v : strtof(text, NULL) == (float)v) break;
    }
    printf("%s", text);
}

const char *model_type_name(qn_key_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (size_t)type < sizeof names / sizeof *names ? names[type] : "?";
}

/* ---- Long work */

static volatile int stopped; /* written by the handler alone */
static void (*volatile to_stop)(void *);
static void *volatile what_runs;

static void on_stop(int signal_number) {
    (void)signal_number;
    stopped = 1;
    if (to_stop) to_stop(what_runs);
}

void model_stop_by(void (*stop)(void *), void *work) {
    to_stop = NULL; /* never one without the other */
    what_runs = work;
    to_stop = stop;
}

static void catch_stop(int more) { app_catch_end(on_stop, (int)(SA_RESETHAND | (unsigned)more)); }

void model_catch_stop(void) { catch_stop(SA_RESTART); }
void model_catch_stop_reading(void) { catch_stop(0); }

void model_catch_stop_writing(void) {
    struct sigaction action = {.sa_handler = on_stop,
                               .sa_flags = SA_RESTART}; /* for good: the next line must not end it either */
    sigemptyset(&action.sa_mask);
    catch_stop(SA_RESTART);
    sigaction(SIGPIPE, &action, NULL);
}

const volatile int *model_stopped(void) { return &stopped; }

void model_progress(const char *what, uint64_t done, uint64_t total) {
    enum { WIDTH = 60 };
    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r%3d %%  ", total ? (int)(100.0 * (double)done / (double)total) : 100);
    int columns = put_text(stderr, what, strlen(what), WIDTH - 4);
    fprintf(stderr, "%*s", columns < WIDTH ? WIDTH - columns : 0, "");
}

void model_progress_end(void) {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%68s\r", "");
}
