/* qn_check vectors DIR: replays golden vectors. This file walks the folder and keeps the score. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check_vectors.h"

enum { LINE_MAX_BYTES = 1 << 20, TEXT_MAX = 512 };

static const struct {
    const char *op, *pattern;
    qn_vec_verdict how;
    const char *why;
} exceptions[] = {
#define QN_EXCEPT(op, pattern, how, why) {op, pattern, QN_VEC_##how, why},
#include "vectors_except.def"
#undef QN_EXCEPT
};

typedef struct score {
    const char *dir;
    int verbose;
    int data_fd;
    uint64_t data_size;
    qn_context *context;
    int64_t line, agree, excepted, differ;
} score;

/* * stands for any run of characters. The last star is the only one worth going back to. */
static int matches(const char *pattern, const char *text) {
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            retry = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++retry;
        } else {
            return 0;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

/* The section of the spec that says why the case may end so, or NULL. */
static const char *exception_of(const qn_vec_case *c, qn_vec_verdict how) {
    for (size_t i = 0; i < sizeof exceptions / sizeof *exceptions; i++)
        if (exceptions[i].how == how && strcasecmp(exceptions[i].op, c->op) == 0 && matches(exceptions[i].pattern, c->name))
            return exceptions[i].why;
    return NULL;
}

static int give_up(const score *s, const char *what) {
    fprintf(stderr, "%s: %s\n", s->dir, what);
    return 2;
}

/* 0, or 2 when the folder turns out not to be what it must be. */
static int replay_line(score *s, const char *line, size_t n, qn_vec_case *c) {
    qn_error error;
    char text[TEXT_MAX] = "";
    if (qn_vec_parse(line, n, s->data_size, c, &error) != QN_OK) {
        fprintf(stderr, "%s/index.jsonl: line %lld: %s\n", s->dir, (long long)s->line, error.text);
        return 2;
    }
    qn_vec_verdict verdict = qn_vec_run(s->context, c, s->data_fd, text, sizeof text);
    if (verdict == QN_VEC_BROKEN) {
        fprintf(stderr, "%s/index.jsonl: line %lld: %s\n", s->dir, (long long)s->line, text);
        return 2;
    }
    const char *why = verdict == QN_VEC_AGREE ? NULL : exception_of(c, verdict);
    if (verdict == QN_VEC_AGREE) {
        s->agree++;
        if (s->verbose) printf("agrees: %s %s\n", c->op, c->name);
    } else if (why) {
        s->excepted++;
        if (s->verbose) printf("excepted: %s %s: %s (spec %s)\n", c->op, c->name, text, why);
    } else {
        s->differ++;
        printf("differs: %s %s: %s\n", c->op, c->name, text);
    }
    return 0;
}

static int blank(const char *line, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", line[i]) || !line[i]) return 0;
    return 1;
}

/* Line by line, so that a huge or endless file costs no more than one line. */
static int replay_index(score *s, FILE *index, char *line, qn_vec_case *c) {
    size_t n = 0;
    for (int byte = 0; byte != EOF;) {
        byte = getc(index);
        if (byte != '\n' && byte != EOF) {
            if (n >= LINE_MAX_BYTES) {
                fprintf(stderr, "%s/index.jsonl: line %lld is longer than %d bytes\n", s->dir, (long long)s->line + 1,
                        LINE_MAX_BYTES);
                return 2;
            }
            line[n++] = (char)byte;
            continue;
        }
        s->line++;
        int failed = blank(line, n) ? 0 : replay_line(s, line, n, c);
        if (failed) return failed;
        n = 0;
    }
    if (ferror(index)) return give_up(s, "index.jsonl cannot be read to its end");
    if (s->agree + s->excepted + s->differ == 0) return give_up(s, "index.jsonl holds no case");
    printf("%lld agree, %lld excepted, %lld differ\n", (long long)s->agree, (long long)s->excepted, (long long)s->differ);
    return s->differ ? 1 : 0;
}

/* A plain file of the folder opened for reading, or -1 after saying why not. */
static int open_plain(const score *s, const char *name, uint64_t *bytes) {
    char path[4096];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", s->dir, name) >= (int)sizeof path) {
        give_up(s, "the name is too long");
        return -1;
    }
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* not to hang on a pipe of that name */
    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        fprintf(stderr, "%s: not a plain file\n", path);
    } else {
        *bytes = (uint64_t)st.st_size;
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

int qn_check_vectors(const char *dir, int verbose) {
    score s = {.dir = dir, .verbose = verbose, .data_fd = -1};
    const qn_context_options by_reference = {.size = sizeof by_reference, .flags = QN_CONTEXT_REFERENCE};
    uint64_t index_size;
    int failed = 2;
    int index_fd = open_plain(&s, "index.jsonl", &index_size);
    FILE *index = index_fd >= 0 ? fdopen(index_fd, "r") : NULL;
    if (index) s.data_fd = open_plain(&s, "data.bin", &s.data_size);
    char *line = malloc(LINE_MAX_BYTES);
    qn_vec_case *c = malloc(sizeof *c);
    if (index && s.data_fd >= 0) {
        if (!line || !c || qn_context_create(&by_reference, &s.context) != QN_OK)
            failed = give_up(&s, "there is not enough memory");
        else failed = replay_index(&s, index, line, c);
    }
    qn_context_destroy(s.context);
    free(c);
    free(line);
    if (s.data_fd >= 0) close(s.data_fd);
    if (index) fclose(index);
    else if (index_fd >= 0) close(index_fd);
    return failed;
}
