/* See spirv_emit.h. An instruction is a word with its length above and its opcode below, and as many words as that says. */
#include "vulkan/spirv_emit.h"

enum { /* the opcodes that are looked at or written */
       OP_SOURCE_CONTINUED = 2,
       OP_SOURCE = 3,
       OP_SOURCE_EXTENSION = 4,
       OP_NAME = 5,
       OP_MEMBER_NAME = 6,
       OP_STRING = 7,
       OP_LINE = 8,
       OP_ENTRY_POINT = 15,
       OP_TYPE_INT = 21,
       OP_TYPE_FLOAT = 22,
       OP_CONSTANT = 43,
       OP_FUNCTION = 54,
       OP_FUNCTION_PARAMETER = 55,
       OP_FUNCTION_END = 56,
       OP_FUNCTION_CALL = 57,
       OP_STORE = 62,
       OP_DECORATE = 71,
       OP_CONTROL_BARRIER = 224,
       OP_MEMORY_BARRIER = 225,
       OP_LOOP_MERGE = 246,
       OP_LABEL = 248,
       OP_RETURN = 253,
       OP_UNREACHABLE = 255,
       OP_MODULE_PROCESSED = 330,
       HEADER = 5,
       BOUND = 3
};

static uint32_t opcode(const qn_spirv *s, size_t at) { return s->words[at] & 0xffff; }
static size_t length(const qn_spirv *s, size_t at) { return s->words[at] >> 16; }

/* Whether there is a whole instruction at this place. */
static int has(const qn_spirv *s, size_t at) { return at < s->n_words && length(s, at) > 0 && length(s, at) <= s->n_words - at; }

static void put(qn_spirv *s, const uint32_t *words, size_t n) {
    if (s->failed || !QN_VEC_ROOM(s->arena, &s->out, n)) {
        s->failed = 1;
        return;
    }
    memcpy(s->out.at + s->out.n, words, n * sizeof *words);
    s->out.n += n;
}

/* ---- Reading */

static int find(const qn_spirv *s, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < s->functions.n; i++) {
        const char *have = s->functions.at[i].name;
        if (have && strncmp(have, name, n) == 0 && have[n] == '(') return (int)i;
    }
    return -1;
}

static int by_id(const qn_spirv *s, uint32_t id) {
    for (size_t i = 0; i < s->functions.n; i++)
        if (s->functions.at[i].id == id) return (int)i;
    return -1;
}

static size_t read_function(qn_spirv *s, size_t at) {
    qn_spirv_function f = {.id = s->words[at + 2], .result_type = s->words[at + 1], .first = at};
    for (; has(s, at) && opcode(s, at) != OP_FUNCTION_END; at += length(s, at))
        if (opcode(s, at) == OP_LABEL && !f.body) f.body = at + length(s, at);
    f.end = has(s, at) ? at + length(s, at) : at;
    if (!f.body || !has(s, at) || !QN_VEC_ROOM(s->arena, &s->functions, 1)) s->failed = 1;
    else s->functions.at[s->functions.n++] = f;
    return f.end;
}

static void read_name(qn_spirv *s, size_t at) {
    int i = length(s, at) > 2 ? by_id(s, s->words[at + 1]) : -1;
    if (i >= 0) s->functions.at[i].name = (const char *)&s->words[at + 2];
}

void qn_spirv_begin(qn_spirv *s, qn_arena *arena, const uint32_t *words, size_t n_words, const char *target) {
    memset(s, 0, sizeof *s);
    s->arena = arena;
    s->words = words;
    s->n_words = n_words;
    if (n_words < HEADER) {
        s->failed = 1;
        return;
    }
    s->bound = words[BOUND];
    size_t at = HEADER;
    for (; has(s, at) && opcode(s, at) != OP_FUNCTION; at += length(s, at)) {
        if (opcode(s, at) == OP_TYPE_INT && words[at + 2] == 32 && words[at + 3] == 0) s->type_uint = words[at + 1];
        if (opcode(s, at) == OP_TYPE_FLOAT && words[at + 2] == 32) s->type_float = words[at + 1];
    }
    s->functions_at = at;
    while (!s->failed && has(s, at)) at = read_function(s, at);
    for (at = HEADER; at < s->functions_at; at += length(s, at))
        if (opcode(s, at) == OP_NAME) read_name(s, at);
    s->target = find(s, target);
    if (s->target < 0 || !s->type_uint || !s->type_float) s->failed = 1;
}

/* ---- Writing the body */

uint32_t qn_spirv_parameter(qn_spirv *s, int number) {
    if (s->failed) return 0;
    const qn_spirv_function *f = &s->functions.at[s->target];
    for (size_t at = f->first; at < f->body; at += length(s, at))
        if (opcode(s, at) == OP_FUNCTION_PARAMETER && number-- == 0) return s->words[at + 2];
    s->failed = 1;
    return 0;
}

static uint32_t constant(qn_spirv *s, uint32_t type, uint32_t bits) {
    for (size_t i = 0; i < s->constants.n; i++)
        if (s->constants.at[i].type == type && s->constants.at[i].bits == bits) return s->constants.at[i].id;
    if (s->failed || !QN_VEC_ROOM(s->arena, &s->constants, 1)) {
        s->failed = 1;
        return 0;
    }
    s->constants.at[s->constants.n++] = (qn_spirv_constant_of){type, bits, s->bound};
    return s->bound++;
}

uint32_t qn_spirv_uint(qn_spirv *s, uint32_t value) { return constant(s, s->type_uint, value); }

uint32_t qn_spirv_float(qn_spirv *s, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return constant(s, s->type_float, bits);
}

uint32_t qn_spirv_call(qn_spirv *s, const char *function, int n, const uint32_t *arguments) {
    int f = s->failed ? -1 : find(s, function);
    if (f < 0 || !QN_VEC_ROOM(s->arena, &s->body, (size_t)n + 4)) {
        s->failed = 1;
        return 0;
    }
    uint32_t *w = s->body.at + s->body.n, result = s->bound++;
    w[0] = (uint32_t)(n + 4) << 16 | OP_FUNCTION_CALL;
    w[1] = s->functions.at[f].result_type;
    w[2] = result;
    w[3] = s->functions.at[f].id;
    memcpy(w + 4, arguments, (size_t)n * sizeof *w);
    s->body.n += (size_t)n + 4;
    return result;
}

/* ---- Putting the module together */

static void keep(qn_spirv *s, uint32_t id, int *more) {
    int f = by_id(s, id);
    if (f < 0 || s->functions.at[f].kept) return;
    s->functions.at[f].kept = 1;
    *more = 1;
}

static void keep_called(qn_spirv *s, const uint32_t *words, size_t from, size_t end, int *more) {
    for (size_t at = from; at < end; at += words[at] >> 16)
        if ((words[at] & 0xffff) == OP_FUNCTION_CALL) keep(s, words[at + 3], more);
}

/* From the entry point on, until nothing new is called. */
static void keep_reached(qn_spirv *s) {
    int more = 0;
    for (size_t at = HEADER; at < s->functions_at; at += length(s, at))
        if (opcode(s, at) == OP_ENTRY_POINT) keep(s, s->words[at + 2], &more);
    while (more) {
        more = 0;
        for (size_t i = 0; i < s->functions.n; i++) {
            const qn_spirv_function *f = &s->functions.at[i];
            if (!f->kept) continue;
            if ((int)i == s->target) keep_called(s, s->body.at, 0, s->body.n, &more);
            else keep_called(s, s->words, f->body, f->end, &more);
        }
    }
}

/* Of the instructions that a function can have, those without a type and a result in front. */
static int gives_nothing(uint32_t op) {
    return op == OP_STORE || op == OP_CONTROL_BARRIER || op == OP_MEMORY_BARRIER ||
           (op >= OP_LOOP_MERGE && op <= OP_UNREACHABLE) || op == OP_FUNCTION_END || op == OP_LINE;
}

/* Marks the ids that go away with their functions, so that nothing is decorated that is not there. */
static void mark_gone(const qn_spirv *s, unsigned char *gone) {
    for (size_t i = 0; i < s->functions.n; i++) {
        const qn_spirv_function *f = &s->functions.at[i];
        if (f->kept && (int)i != s->target) continue;
        for (size_t at = f->kept ? f->body : f->first; at < f->end; at += length(s, at))
            if (!gives_nothing(opcode(s, at)) && length(s, at) > 2 && s->words[at + 2] < s->words[BOUND])
                gone[s->words[at + 2]] = 1;
    }
}

static int is_left_out(const qn_spirv *s, size_t at, const unsigned char *gone) {
    switch (opcode(s, at)) {
    case OP_SOURCE_CONTINUED:
    case OP_SOURCE:
    case OP_SOURCE_EXTENSION:
    case OP_NAME:
    case OP_MEMBER_NAME:
    case OP_STRING:
    case OP_LINE:
    case OP_MODULE_PROCESSED: return 1;
    case OP_DECORATE: return s->words[at + 1] < s->words[BOUND] && gone[s->words[at + 1]];
    default: return 0;
    }
}

static void put_functions(qn_spirv *s) {
    static const uint32_t end[] = {1u << 16 | OP_RETURN, 1u << 16 | OP_FUNCTION_END};
    for (size_t i = 0; i < s->functions.n; i++) {
        const qn_spirv_function *f = &s->functions.at[i];
        if (!f->kept) continue;
        if ((int)i != s->target) {
            put(s, s->words + f->first, f->end - f->first);
            continue;
        }
        put(s, s->words + f->first, f->body - f->first);
        put(s, s->body.at, s->body.n);
        put(s, end, 2);
    }
}

const uint32_t *qn_spirv_finish(qn_spirv *s, size_t *n_words) {
    if (s->failed) return NULL;
    unsigned char *gone = qn_arena_alloc(s->arena, s->words[BOUND], 1);
    if (!gone) return NULL;
    memset(gone, 0, s->words[BOUND]);
    keep_reached(s);
    mark_gone(s, gone);
    put(s, s->words, HEADER);
    for (size_t at = HEADER; at < s->functions_at; at += length(s, at))
        if (!is_left_out(s, at, gone)) put(s, s->words + at, length(s, at));
    for (size_t i = 0; i < s->constants.n; i++) {
        const qn_spirv_constant_of *c = &s->constants.at[i];
        put(s, (const uint32_t[]){4u << 16 | OP_CONSTANT, c->type, c->id, c->bits}, 4);
    }
    put_functions(s);
    if (s->failed) return NULL;
    s->out.at[BOUND] = s->bound;
    *n_words = s->out.n;
    return s->out.at;
}
