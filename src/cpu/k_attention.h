/* Softmax attention behind flash_attn_ext and attention: blocks of keys are scored, weighed and summed one after the other.
 *
 * The rule that makes a query's result independent of threads, of the other queries of the call and of keys that are masked behind
 * it: keys are cut into blocks and spans that depend on nothing but their number; a score is one chain of multiply-adds over the
 * head, a weighted sum one chain over the keys of a block; spans are summed up on their own and merged in their order. A key that
 * has no score adds nothing, to the bit. */
#ifndef QN_CPU_K_ATTENTION_H
#define QN_CPU_K_ATTENTION_H

#include "cpu/kernel.h"
#include "cpu/simd/simd_math.h"

enum { QN_ATTEND_KEYS = 64, QN_ATTEND_SPAN = 512, QN_ATTEND_ROWS = 96 }; /* keys of a block and of a span, most rows of a tile */

typedef enum qn_attend_mask { QN_ATTEND_ALL, QN_ATTEND_BIAS, QN_ATTEND_CHOICE, QN_ATTEND_BAND } qn_attend_mask;

/* One of q, k, v, y: byte strides by batch, by head, and by place in the sequence. The elements of a row lie side by side. */
typedef struct qn_attend_side {
    char *data;
    int64_t batch, head, place;
    uint32_t dtype;
} qn_attend_side;

/* A tensor by the axes, counted from the last, that are its batches, heads and places. An axis of extent 1 may have any stride, and steps are reckoned
 * ahead of what is read; in a mask it stands for all. */
static inline qn_attend_side qn_attend_side_by(const qn_tensor *t, int batch, int head, int place) {
    const int axes[3] = {batch, head, place};
    int64_t step[3];
    for (int i = 0; i < 3; i++) step[i] = qn_ne(t, axes[i]) == 1 ? 0 : qn_nb(t, axes[i]);
    return (qn_attend_side){t->data ? qn_at(t, 0) : NULL, step[0], step[1], step[2], t->dtype};
}

/* How rows become f32 when their dtype does not say it: n of them from place j on, `pitch` floats apart, zero from `deep` on. */
typedef struct qn_attend_decoder {
    void (*decode)(const void *context, const qn_attend_side *side, int64_t batch, int64_t head, int64_t j, int n, int64_t deep,
                   float *to, int64_t pitch);
    const void *context;
} qn_attend_decoder;

typedef struct qn_attend {
    qn_attend_side q, k, v, y;
    qn_attend_decoder k_codes, v_codes;           /* of keys and values that are no floats; decode NULL: by their dtype */
    int64_t batches, heads, group, queries, keys; /* group: query heads to a key head */
    int64_t deep, wide;                           /* length of a row of q and k, of a row of v and y */
    float scale, cap;                             /* cap 0: none */
    double max_bias;
    qn_attend_mask kind;
    qn_attend_side mask;              /* BIAS is added; CHOICE: a key stays where it is at least a half */
    int64_t mask_heads, mask_batches; /* a mask is tiled over both */
    int64_t offset, window;           /* BAND: query i sees the keys [i + offset - window, i + offset] */
    const char *sinks;                /* f32, one a head, or NULL */
    int64_t sink_step;
    char *lse; /* f32: ln of the sum of each query, or NULL */
    int64_t lse_batch, lse_head, lse_place;
} qn_attend;

/* How the work is cut, from the shape alone. Where few queries are to be answered and memory takes the time, several key heads, a bundle, go
 * through the keys together: their rows lie side by side in the caches of language models. */
typedef struct qn_attend_cut {
    int64_t tile, tiles, spans, units; /* rows of a tile, tiles of a key head, spans of keys; units of the first phase */
    int split;                         /* units are single spans, and a second phase merges them */
    int64_t parts[2];
    int64_t slot, partial, workspace; /* floats of a part's scratch, of one span's sums; all of it in bytes */
    int64_t bundle;                   /* heads of one */
} qn_attend_cut;

/* What a block whose scores have no highest goes on with. Those that are -Inf are no scores, and then there is nothing to go on with; one
 * that is no number has no place in an order, but must not be taken for none: weighed by any top it makes its row no number. */
static inline float qn_attend_without_top(const float *scores, int n) {
    for (int p = 0; p < n; p++)
        if (scores[p] != -INFINITY) return 0;
    return -INFINITY;
}

static inline int64_t qn_attend_lanes(int64_t n) { return (n + VF_N - 1) / VF_N * VF_N; }

/* 0: too large, or of a dtype that has no kernel. */
#define qn_attend_plan QN_K(attend_plan)
int qn_attend_plan(const qn_attend *a, qn_attend_cut *cut);
#define qn_attend_part QN_K(attend_part)
void qn_attend_part(const qn_attend *a, const qn_attend_cut *cut, void *workspace, int phase, int64_t part);

static inline int qn_attend_step(qn_cpu_step *s, const qn_attend_cut *cut, qn_cpu_run_fn run) {
    s->run = run;
    s->name = cut->split ? "attention split over keys" : "attention";
    s->n_phases = cut->split ? 2 : 1;
    s->parts[0] = cut->parts[0];
    s->parts[1] = cut->parts[1];
    s->workspace = (size_t)cut->workspace;
    return 1;
}

/* What attention and attention_back have in common; y and lse are left out. mask may be NULL. */
#define qn_attend_describe QN_K(attend_describe)
qn_attend qn_attend_describe(const qn_call *c, const qn_tensor *mask);
/* One of their tensors by their attributes' layout. */
#define qn_attend_side_of QN_K(attend_side_of)
qn_attend_side qn_attend_side_of(const qn_tensor *t, int layout);

/* Where a tile is: the rows from `first` on of key head `head` of a batch. Row r of them is a query of one head. */
typedef struct qn_attend_place {
    int64_t batch, head, first;
    int rows;
} qn_attend_place;

static inline int64_t qn_attend_query(const qn_attend *a, const qn_attend_place *at, int r) { return (at->first + r) / a->group; }
static inline int64_t qn_attend_head(const qn_attend *a, const qn_attend_place *at, int r) {
    return at->head * a->group + (at->first + r) % a->group;
}
static inline const char *qn_attend_row(const qn_attend_side *side, int64_t batch, int64_t head, int64_t i) {
    return side->data + batch * side->batch + head * side->head + i * side->place;
}
/* What the mask adds to the n keys from j on for the rows of a tile, QN_ATTEND_KEYS each; 0 when no row sees any of them. */
#define qn_attend_bias QN_K(attend_bias)
int qn_attend_bias(const qn_attend *a, const qn_attend_place *at, float *bias, int64_t j, int n);

/* ---- The products of a tile (k_attention_tile.c) */

/* Rows to be asked for, `bytes` of each. */
typedef struct qn_attend_rows {
    const char *row;
    int64_t step, bytes;
    int left;
} qn_attend_rows;

/* The next block, keys and then values, asked for while this one is computed. An even pace matters more than anything else: asked for all at
 * once, lines wait for each other. So every loop over the block asks for a share of them, by the time it takes. */
typedef struct qn_attend_ahead {
    qn_attend_rows keys, values;
    int third; /* of all rows */
} qn_attend_ahead;

/* A loop of so many turns that asks for one or two thirds. a may be NULL. */
typedef struct qn_attend_pace {
    qn_attend_ahead *a;
    int64_t turns, rows, at;
} qn_attend_pace;
static inline qn_attend_pace qn_attend_paced(qn_attend_ahead *a, int64_t turns, int thirds) {
    return (qn_attend_pace){a, turns, a ? thirds * a->third : 0, 0};
}
static inline void qn_attend_ask_row(qn_attend_ahead *a) {
    qn_attend_rows *r = a->keys.left ? &a->keys : &a->values;
    if (!r->left) return;
    for (const char *line = r->row - (uintptr_t)r->row % 64; line < r->row + r->bytes; line += 64) __builtin_prefetch(line, 0, 2);
    r->row += r->step;
    r->left--;
}
/* In every turn. */
static inline void qn_attend_ask(qn_attend_pace *p) {
    for (p->at += p->rows; p->at >= p->turns; p->at -= p->turns) qn_attend_ask_row(p->a);
}

/* Rows of c, `wide` floats each: c[i] = factor[i] c[i] + the sum over p < depth of a[i][p] b[p], or from nothing without factors.
 * b's rows are ldb bytes apart; the other distances count floats. wide is a whole number of vectors. A tile in which a sum is not finite is
 * left as it is and computed again without those p where a[i][p] is zero.
 *
 * b is f32, f16, bf16, or blocks of q8_0 or q4_0 with their scales. */
typedef struct qn_attend_sum {
    int rows, depth;
    int64_t wide;
    const float *a;
    int64_t lda;
    const char *b;
    int64_t ldb;
    uint32_t dtype;
    const float *scales; /* of blocks */
    float *c;
    int64_t ldc;
    const float *factor;
    qn_attend_ahead *ahead; /* or NULL */
} qn_attend_sum;
#define qn_attend_product QN_K(attend_product)
void qn_attend_product(const qn_attend_sum *s);
/* Key rows of f32, f16 or bf16 become columns: to[p][j], QN_ATTEND_KEYS apart, zero from n to the end of its vector. ahead may be NULL. */
#define qn_attend_turn QN_K(attend_turn)
void qn_attend_turn(const char *rows, int64_t step, uint32_t dtype, int n, int64_t deep, float *to, qn_attend_ahead *ahead);
/* The same for whole blocks of rows of 16 bits, whose columns stay so (k_attention_words.c); and whether they can be turned. */
#define qn_attend_turn_words QN_K(attend_turn_words)
void qn_attend_turn_words(const char *rows, int64_t step, int64_t deep, uint16_t *to, qn_attend_ahead *ahead);
#define qn_attend_turns_words QN_K(attend_turns_words)
int qn_attend_turns_words(int n, int64_t deep);
/* Rows of any dtype as f32, `pitch` floats apart, zero from deep on; block types are decoded. */
#define qn_attend_widen QN_K(attend_widen)
void qn_attend_widen(const char *rows, int64_t step, uint32_t dtype, int n, int64_t deep, float *to, int64_t pitch);

/* ---- Few rows and blocks (k_attention_codes.c) */

/* Blocks whose codes are not decoded but where they are multiplied. */
enum { QN_ATTEND_BLOCK = 32 };
#ifdef QN_SIMD_PLAIN /* bytes become floats in too many steps for that to be done more than once */
static inline int qn_attend_has_codes(uint32_t dtype) { return (void)dtype, 0; }
#else
static inline int qn_attend_has_codes(uint32_t dtype) { return dtype == QN_DTYPE_Q8_0 || dtype == QN_DTYPE_Q4_0; }
#endif
static inline int64_t qn_attend_block_bytes(uint32_t dtype) {
    return 2 + (dtype == QN_DTYPE_Q8_0 ? QN_ATTEND_BLOCK : QN_ATTEND_BLOCK / 2);
}

/* Rows of q, side by side, against QN_ATTEND_KEYS keys of such blocks as they lie. */
typedef struct qn_attend_score {
    int rows;
    int64_t deep;
    const float *q;
    const char *keys;
    int64_t step;
    uint32_t dtype;
    float *scores; /* QN_ATTEND_KEYS a row */
    float *scales; /* room for those of all keys, half as many floats again, and a vector */
    qn_attend_ahead *ahead;
} qn_attend_score;
#define qn_attend_scores QN_K(attend_scores)
void qn_attend_scores(const qn_attend_score *s);
/* The scales of n rows of blocks, as they lie. to has the same room. */
#define qn_attend_scales QN_K(attend_scales)
void qn_attend_scales(const char *rows, int64_t step, uint32_t dtype, int n, int64_t wide, float *to);

#endif
