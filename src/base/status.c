/* Status codes and the error that carries its story. The texts come from the tables, so a code cannot lack its words. */
#include <stdarg.h>

#include "base/reason.h"
#include <stdio.h>

#include <quern/quern.h>

const char *qn_version(void) {
#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)
    return TEXT(QN_VERSION_MAJOR) "." TEXT(QN_VERSION_MINOR) "." TEXT(QN_VERSION_PATCH);
}

const char *qn_status_name(qn_status status) {
    switch (status) {
#define QN_STATUS(name, number, meaning) \
    case QN_##name:                      \
        return #name;
#include <quern/status.def>
#undef QN_STATUS
    }
    return "UNKNOWN";
}

const char *qn_status_meaning(qn_status status) {
    switch (status) {
#define QN_STATUS(name, number, meaning) \
    case QN_##name:                      \
        return meaning;
#include <quern/status.def>
#undef QN_STATUS
    }
    return "a status this library does not know";
}

const char *qn_reason_name(qn_reason reason) {
    static const char *const names[] = {
#define QN_REASON(name, sentence) #name,
#include <quern/reasons.def>
#undef QN_REASON
    };
    return (unsigned)reason < QN_REASON_COUNT ? names[reason] : "UNKNOWN";
}

/* A cut text says so, or a reader would take half a sentence for the whole. */
static void mark_cut(char *text, size_t size, int wanted) {
    if (wanted >= 0 && (size_t)wanted >= size) memcpy(text + size - 4, "...", 4);
}

/* Bytes of the character at `text`, 0 when it is none. */
static int character(const unsigned char *text) {
    int n = *text < 0x80                    ? 1
            : *text >= 0xC2 && *text < 0xE0 ? 2
            : *text >= 0xE0 && *text < 0xF0 ? 3
            : *text >= 0xF0 && *text < 0xF5 ? 4
                                            : 0;
    for (int i = 1; i < n; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    return n;
}

/* Sentences quote files, and files hold anything: what would steer a terminal, or is no UTF-8, becomes a question mark. */
static void make_plain(char *text) {
    while (*text) {
        unsigned char c = (unsigned char)*text;
        int n = character((const unsigned char *)text), steers = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
        steers |= n == 2 && c == 0xC2 && (unsigned char)text[1] < 0xA0;
        if (!n || steers) *text = '?';
        if (n == 2 && steers) text[1] = '?';
        text += n ? n : 1;
    }
}

qn_status qn_error_set(qn_error *error, qn_status status, const char *format, ...) {
    if (!error) return status;
    va_list args;
    va_start(args, format);
    error->status = status;
    int wanted = vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    mark_cut(error->text, sizeof error->text, wanted);
    make_plain(error->text);
    return status;
}

qn_status qn_error_wrap(qn_error *error, const char *format, ...) {
    if (!error) return QN_ARGUMENT;
    char inner[sizeof error->text];
    memcpy(inner, error->text, sizeof inner);
    inner[sizeof inner - 1] = 0;
    va_list args;
    va_start(args, format);
    int head = vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    if (head < 0) head = 0;
    if ((size_t)head < sizeof error->text) {
        int tail = snprintf(error->text + head, sizeof error->text - (size_t)head, ": %s", inner);
        mark_cut(error->text, sizeof error->text, head + tail);
    } else {
        mark_cut(error->text, sizeof error->text, head);
    }
    make_plain(error->text);
    return error->status;
}
