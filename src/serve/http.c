/* The profile server: one thread of libmicrohttpd, which is also the only one that touches the profiles. It answers
 *     GET /             the page
 *     GET /api/index    which traces there are
 *     GET /api/view     ?view=NAME&trace=N[&other=N][&path=...][&start_ts=...][&end_ts=...]
 * A view that a trace does not have is no error of HTTP: {"error": "sentence"}. */
#include <quern/page.h>

#include "serve/api_prof.h"

#ifdef QUERN_HAS_MICROHTTPD

#include <arpa/inet.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/arena.h"
#include "prof/prof_json.h"

/* Beyond those that are kept, three of four, whoever has let the server wait longest gives way: clients who send their question byte by
 * byte, or none, would else keep out everybody who comes after them. Past the most, which leaves time for that, the library refuses. */
enum { MOST_CONNECTIONS = 64, LEAST_CONNECTIONS = 4, OWN_FILES = 8, IDLE_SECONDS = 60, CONNECTION_BYTES = 64 * 1024 };

typedef struct client {
    struct MHD_Connection *connection; /* NULL: free */
    uint64_t since;                    /* the server's count when it began to wait, or to be answered */
    int is_answered;                   /* its question is there; its answer is not all sent */
    int gives_way;
} client;

struct qn_page_server {
    qn_arena arena;
    page_source source;
    struct MHD_Daemon *daemon;
    int port, loopback, most; /* connections */
    char title[256], host[64];
    client clients[MOST_CONNECTIONS]; /* of the library's thread, as everything below */
    int n_clients;
    uint64_t count;
};

/* ---- Answers ------------------------------------------------------------------------------------------------------ */

typedef struct body { /* lives in its own arena, as long as the answer does */
    qn_arena arena;
    QN_VEC(char) text;
} body;

static body *new_body(void) {
    qn_arena arena;
    qn_arena_init(&arena, 0);
    body *made = qn_arena_alloc(&arena, 1, sizeof *made);
    if (made) {
        made->arena = arena;
    } else {
        qn_arena_destroy(&arena);
    }
    return made;
}

static void free_body(void *user) {
    qn_arena arena = ((body *)user)->arena;
    qn_arena_destroy(&arena);
}

static qn_status take(void *user, const char *text, size_t length) {
    body *b = user;
    if (!QN_VEC_ROOM(&b->arena, &b->text, length)) {
        return QN_NO_MEMORY;
    }
    memcpy(b->text.at + b->text.n, text, length);
    b->text.n += length;
    return QN_OK;
}

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned code, const char *type,
                                     struct MHD_Response *response) {
    static const char *const HEADERS[][2] = {{MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"X-Frame-Options", "DENY"},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"Cross-Origin-Resource-Policy", "same-origin"}};
    if (!response) {
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    for (size_t i = 0; i < sizeof HEADERS / sizeof *HEADERS; i++) {
        MHD_add_response_header(response, HEADERS[i][0], HEADERS[i][1]);
    }
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_body(struct MHD_Connection *connection, unsigned code, body *b) {
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback_cls(
        b->text.n, b->text.at ? b->text.at : "", free_body, b);
    if (!response) {
        free_body(b);
    }
    return send_response(connection, code, "application/json", response);
}

static enum MHD_Result send_error(struct MHD_Connection *connection, unsigned code, const char *sentence) {
    prof_json json;
    body *b = new_body();
    if (!b) {
        return MHD_NO;
    }
    qn_prof_json_init(&json, take, b);
    qn_prof_json_object(&json);
    qn_prof_json_key(&json, "error");
    qn_prof_json_text(&json, sentence);
    qn_prof_json_object_end(&json);
    qn_prof_json_finish(&json);
    return send_body(connection, code, b);
}

static enum MHD_Result send_page(struct MHD_Connection *connection) {
    size_t length, data_at;
    const char *page = qn_page_asset(&length, &data_at);
    struct MHD_Response *response = MHD_create_response_from_buffer(length, (void *)(uintptr_t)page, MHD_RESPMEM_PERSISTENT);
    return send_response(connection, MHD_HTTP_OK, "text/html; charset=utf-8", response);
}

/* ---- Questions ---------------------------------------------------------------------------------------------------- */

static const char *parameter(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
}

/* -1 for what is no small number. */
static int number(const char *text) {
    char *end;
    if (!text || *text < '0' || *text > '9' || strlen(text) > 8) {
        return -1;
    }
    long value = strtol(text, &end, 10);
    return *end ? -1 : (int)value;
}

static enum MHD_Result answer_view(qn_page_server *server, struct MHD_Connection *connection) {
    page_query query = {parameter(connection, "view"),          parameter(connection, "path"),
                        parameter(connection, "start_ts"),      parameter(connection, "end_ts"),
                        number(parameter(connection, "trace")), number(parameter(connection, "other"))};
    qn_error error = {QN_OK, ""};
    if (!query.view || query.trace < 0) {
        return send_error(connection, MHD_HTTP_BAD_REQUEST, "a view needs its name and the number of a trace");
    }
    body *b = new_body();
    if (!b) {
        return MHD_NO;
    }
    qn_status status = qn_page_view(&server->source, &query, take, b, &error);
    if (status == QN_OK) {
        return send_body(connection, MHD_HTTP_OK, b);
    }
    free_body(b);
    return send_error(connection, MHD_HTTP_OK, error.text[0] ? error.text : qn_status_meaning(status));
}

static enum MHD_Result answer_index(qn_page_server *server, struct MHD_Connection *connection) {
    body *b = new_body();
    if (!b) {
        return MHD_NO;
    }
    qn_page_index(&server->source, take, b);
    return send_body(connection, MHD_HTTP_OK, b);
}

/* A page of somebody else, whose name was made to point here, sends that name: its requests are refused. */
static int names_this_machine(const qn_page_server *server, const char *host) {
    const char *const names[] = {"127.0.0.1", "localhost", "[::1]", server->host};
    for (size_t i = 0; host && i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (host[n] == 0 || host[n] == ':')) {
            return 1;
        }
    }
    return 0;
}

static const char *header(struct MHD_Connection *connection, const char *name) {
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* The library calls first when the headers are there: what is answered then is the last of its connection. So is what brings a body,
 * which nothing here takes and nobody waits for; the others are answered when they are asked for again, and more may follow. */
static int is_last(struct MHD_Connection *connection) {
    return header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH) || header(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

/* ---- Clients ------------------------------------------------------------------------------------------------------ */

/* Who waits for a question before who is sent an answer, and of those the first to have begun. */
static int gives_way_to(const client *a, const client *b) {
    return a->is_answered != b->is_answered ? b->is_answered : a->since < b->since;
}

static void make_room(qn_page_server *server) {
    client *oldest = NULL;
    for (int i = 0; i < MOST_CONNECTIONS; i++) {
        client *c = &server->clients[i];
        if (c->connection && !c->gives_way && (!oldest || gives_way_to(c, oldest))) {
            oldest = c;
        }
    }
    const union MHD_ConnectionInfo *info = oldest ? MHD_get_connection_info(oldest->connection, MHD_CONNECTION_INFO_CONNECTION_FD)
                                                  : NULL;
    if (info) {
        oldest->gives_way = 1;
        shutdown(info->connect_fd, SHUT_RDWR); /* the library then finds it ended, and closes it */
    }
}

static void begin_client(qn_page_server *server, struct MHD_Connection *connection, void **slot) {
    if (server->n_clients >= server->most - server->most / 4) {
        make_room(server);
    }
    for (int i = 0; i < MOST_CONNECTIONS && !*slot; i++) {
        if (!server->clients[i].connection) {
            server->clients[i] = (client){connection, ++server->count, 0, 0};
            *slot = &server->clients[i];
            server->n_clients++;
        }
    }
}

static void notice_client(void *user, struct MHD_Connection *connection, void **slot, enum MHD_ConnectionNotificationCode what) {
    qn_page_server *server = user;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        begin_client(server, connection, slot);
    } else if (*slot) {
        ((client *)*slot)->connection = NULL;
        server->n_clients--;
    }
}

static void turn_client(qn_page_server *server, struct MHD_Connection *connection, int is_answered) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    client *c = info ? info->socket_context : NULL;
    if (c) {
        c->is_answered = is_answered;
        c->since = ++server->count;
    }
}

static void end_answer(void *user, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode why) {
    (void)state, (void)why;
    turn_client(user, connection, 0);
}

/* ---- Requests ----------------------------------------------------------------------------------------------------- */

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *data_size, void **state) {
    static char seen;
    qn_page_server *server = user;
    (void)version, (void)data, (void)data_size;
    if (!*state && !is_last(connection)) {
        *state = &seen;
        return MHD_YES;
    }
    turn_client(server, connection, 1);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return send_error(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "this server only answers GET");
    }
    if (server->loopback && !names_this_machine(server, header(connection, MHD_HTTP_HEADER_HOST))) {
        return send_error(connection, MHD_HTTP_FORBIDDEN, "this server answers only to 127.0.0.1 and localhost");
    }
    if (strcmp(url, "/") == 0 || strcmp(url, "/index.html") == 0) {
        return send_page(connection);
    }
    if (strcmp(url, "/api/index") == 0) {
        return answer_index(server, connection);
    }
    if (strcmp(url, "/api/view") == 0) {
        return answer_view(server, connection);
    }
    return send_error(connection, MHD_HTTP_NOT_FOUND, "there is no such page");
}

/* ---- Life --------------------------------------------------------------------------------------------------------- */

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address;

static int read_address(const char *host, int port, address *to, int *loopback) {
    memset(to, 0, sizeof *to);
    if (strcmp(host, "localhost") == 0) {
        host = "127.0.0.1";
    }
    if (inet_pton(AF_INET, host, &to->v4.sin_addr) == 1) {
        to->v4.sin_family = AF_INET;
        to->v4.sin_port = htons((uint16_t)port);
        *loopback = ntohl(to->v4.sin_addr.s_addr) >> 24 == 127;
        return 1;
    }
    if (inet_pton(AF_INET6, host, &to->v6.sin6_addr) == 1) {
        to->v6.sin6_family = AF_INET6;
        to->v6.sin6_port = htons((uint16_t)port);
        *loopback = IN6_IS_ADDR_LOOPBACK(&to->v6.sin6_addr);
        return 1;
    }
    return 0;
}

static void be_silent(void *user, const char *format, va_list arguments) {
    (void)user, (void)format, (void)arguments; /* the library's default is to print */
}

/* How many more files the process may open, counted up to `most`. */
static int free_files(int most) {
    struct rlimit limit;
    int n = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return most;
    }
    for (rlim_t fd = 0; fd < limit.rlim_cur && n < most; fd++) {
        n += fcntl((int)fd, F_GETFD) < 0;
    }
    return n;
}

/* Where connections took every file there may be, nobody could be let in any more and no trace be read. */
static qn_status count_connections(qn_page_server *server, qn_error *error) {
    int files = free_files(MOST_CONNECTIONS + OWN_FILES);
    server->most = files - OWN_FILES;
    if (server->most >= LEAST_CONNECTIONS) {
        return QN_OK;
    }
    return qn_error_set(error, QN_IO, "the process may open %d more files and a server takes at least %d; ulimit -n raises that",
                        files, LEAST_CONNECTIONS + OWN_FILES);
}

static qn_status start(qn_page_server *server, const address *at, const char *host, int port, qn_error *error) {
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ERROR_LOG;
    qn_status status = count_connections(server, error);
    if (status != QN_OK) {
        return status;
    }
    if (at->any.sa_family == AF_INET6) {
        flags |= MHD_USE_IPv6;
    }
    server->daemon = MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, answer, server, MHD_OPTION_EXTERNAL_LOGGER, be_silent,
                                      NULL, MHD_OPTION_SOCK_ADDR, &at->any, MHD_OPTION_CONNECTION_LIMIT, (unsigned)server->most,
                                      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                      (size_t)CONNECTION_BYTES, MHD_OPTION_NOTIFY_CONNECTION, notice_client, server,
                                      MHD_OPTION_NOTIFY_COMPLETED, end_answer, server, MHD_OPTION_END);
    if (!server->daemon) {
        return qn_error_set(error, QN_IO, "cannot listen on %s port %d; another program may have it", host, port);
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    server->port = info ? info->port : port;
    return QN_OK;
}

qn_status qn_page_serve(qn_profile *profile, const qn_page_options *options, const char *host, int port, qn_page_server **server,
                        qn_error *error) {
    page_source source;
    address at;
    qn_arena arena;
    int loopback = 0;
    host = host ? host : "127.0.0.1";
    if (!server || port < 0 || port > 65535) {
        return qn_error_set(error, QN_ARGUMENT, "%d is no port: 0 to 65535", port);
    }
    *server = NULL;
    qn_status status = qn_page_source(profile, options, &source, error);
    if (status != QN_OK) {
        return status;
    }
    if (!read_address(host, port, &at, &loopback)) {
        return qn_error_set(error, QN_ARGUMENT, "'%.100s' is no numeric address, such as 127.0.0.1 or ::1", host);
    }
    qn_arena_init(&arena, 0);
    qn_page_server *made = qn_arena_alloc(&arena, 1, sizeof *made);
    if (!made) {
        return qn_error_set(error, QN_NO_MEMORY, "no memory for the server");
    }
    made->arena = arena;
    made->source = source;
    made->loopback = loopback;
    strncpy(made->title, source.title, sizeof made->title - 1);
    strncpy(made->host, host, sizeof made->host - 1);
    made->source.title = made->title;
    status = start(made, &at, host, port, error);
    if (status != QN_OK) {
        qn_page_server_stop(made);
        return status;
    }
    *server = made;
    return QN_OK;
}

int qn_page_server_port(const qn_page_server *server) { return server->port; }

void qn_page_server_stop(qn_page_server *server) {
    if (!server) {
        return;
    }
    if (server->daemon) {
        MHD_stop_daemon(server->daemon);
    }
    qn_arena arena = server->arena;
    qn_arena_destroy(&arena);
}

#else

qn_status qn_page_serve(qn_profile *profile, const qn_page_options *options, const char *host, int port, qn_page_server **server,
                        qn_error *error) {
    (void)profile, (void)options, (void)host, (void)port;
    if (server) {
        *server = NULL;
    }
    return qn_error_set(error, QN_UNSUPPORTED,
                        "this quern was built without libmicrohttpd, so it cannot serve; install libmicrohttpd-dev and build "
                        "again, or write a report with quern profile html");
}

int qn_page_server_port(const qn_page_server *server) {
    (void)server;
    return 0;
}

void qn_page_server_stop(qn_page_server *server) { (void)server; }

#endif
