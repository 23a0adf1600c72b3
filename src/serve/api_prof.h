/* What the page asks for, whether a report carries it or the server answers it: an index of traces, and views by trace number. */
#ifndef QUERN_SERVE_API_PROF_H
#define QUERN_SERVE_API_PROF_H

#include <quern/page.h>

typedef struct page_source {
    qn_profile *profile, *against; /* against may be NULL */
    const char *title;
} page_source;

typedef struct page_trace { /* traces of the profile come first, then those to compare with */
    qn_profile *profile;
    int run, worker, span;
    int is_against;
} page_trace;

typedef struct page_query { /* all may be NULL except view */
    const char *view, *path, *start_ts, *end_ts;
    int trace, other; /* other: -1 when not given */
} page_query;

/* Checks the options and takes them apart. */
qn_status qn_page_source(qn_profile *profile, const qn_page_options *options, page_source *source, qn_error *error);
/* 0 past the last. */
int qn_page_trace(const page_source *source, int id, page_trace *trace);
qn_status qn_page_index(const page_source *source, qn_profile_write_fn write, void *user);
/* A view of the analyser, or `info`: what was kept of the trace and what was not. */
qn_status qn_page_view(const page_source *source, const page_query *query, qn_profile_write_fn write, void *user,
                       qn_error *error);

/* The page, made at build time; NULL when it was built without. The data of a report belongs at `data_at`. */
const char *qn_page_asset(size_t *length, size_t *data_at);

#endif
