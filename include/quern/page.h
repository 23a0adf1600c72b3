/* The profiler's page: a report in one HTML file that works from disk, or a small server for this machine's browser.
 *
 * These functions are not in libquern, which needs no more than the C library, zlib and, for its tokenizers, PCRE2 and utf8proc. They
 * live in the quern command, beside the page itself, which is built from web/ when npm is there, and the server needs libmicrohttpd.
 * Without them the answer is QN_UNSUPPORTED and a sentence that says what is missing. */
#ifndef QUERN_PAGE_H
#define QUERN_PAGE_H

#include <quern/profile.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_page_options {
    uint32_t size; /* sizeof(qn_page_options) */
    uint32_t reserved;
    const char *title;          /* of the browser's tab; may be NULL */
    struct qn_profile *against; /* offered as the right side of the diff; may be NULL */
} qn_page_options;

static inline qn_page_options qn_page_options_default(void) {
    qn_page_options options;
    memset(&options, 0, sizeof options);
    options.size = (uint32_t)sizeof options;
    return options;
}

/* Writes the whole report. Views that a trace does not have become sentences in it; a trace that cannot be read is named on the
 * page and does not stop the others, unless none can be read. */
qn_status qn_page_write(qn_profile *profile, const qn_page_options *options, qn_profile_write_fn write, void *user,
                        qn_error *error);

typedef struct qn_page_server qn_page_server;

/* Listens on `host` (NULL: 127.0.0.1; a numeric address) and `port` (0: any free one). Until stop, the server's thread is the
 * one that uses the profiles. On a loopback address, requests that name another host are refused, so that no web page can
 * read the profile through a name of its own. */
qn_status qn_page_serve(qn_profile *profile, const qn_page_options *options, const char *host, int port, qn_page_server **server,
                        qn_error *error);
int qn_page_server_port(const qn_page_server *server);
void qn_page_server_stop(qn_page_server *server); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
