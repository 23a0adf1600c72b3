/* Elements from one place to another: rows that lie side by side, and whole tensors in any layout. */
#ifndef QN_CPU_K_COPY_H
#define QN_CPU_K_COPY_H

#include "cpu/k_lanes.h"
#include "cpu/k_typed.h"

/* n neighbouring elements of one dtype become those of another: equal dtypes, all plain ones but complex numbers in any direction, and
 * block types to and from f32, f16 and bf16, n a whole number of blocks. */
#define qn_copy_row QN_K(copy_row)
void qn_copy_row(uint32_t from, const char *src, uint32_t to, char *dst, int64_t n);
/* Whether it can. */
static inline int qn_copy_can(uint32_t from, uint32_t to) {
    if (from == to || (qn_typed_can(from) && qn_typed_can(to))) return 1;
    if (!qn_lanes_float(from) && !qn_is_block(from)) return 0;
    if (!qn_lanes_float(to) && !qn_is_block(to)) return 0;
    return !(qn_is_block(from) && qn_is_block(to)) && qn_can_convert((qn_dtype)from, (qn_dtype)to);
}

/* A copy as loops: axes from the outermost, byte steps on both sides; blocks of one type count as elements. */
typedef struct qn_copy_loops {
    int n; /* at least 1 */
    int64_t extent[QN_MAX_RANK], from_step[QN_MAX_RANK], to_step[QN_MAX_RANK];
    const char *src;
    char *dst;
    uint32_t from, to;
    int64_t size;                  /* bytes of an element of the source, when both are of one dtype */
    int past;                      /* what is written is too large for any cache, and is not what is read */
    int far;                       /* what is written is at least too large for the first cache */
    int asks;                      /* a loop that asks ahead copies such faster here than the C library does */
    int square;                    /* the two innermost axes change places */
    int64_t pieces, across, units; /* a row, or what is turned, is cut into so many, or so many by so many */
} qn_copy_loops;

/* 0: not a copy that has a kernel. Shapes may differ where one side is dense. */
#define qn_copy_plan QN_K(copy_plan)
int qn_copy_plan(const qn_cpu_step *s, const qn_tensor *dst, const qn_tensor *src, qn_copy_loops *l);
#define qn_copy_units QN_K(copy_units)
void qn_copy_units(const qn_copy_loops *l, int64_t first, int64_t end);

/* Of a copy whose innermost axes change places: most rows that a unit takes, and most neighbours of one: more where memory is read and
 * written, so that few pages are in use at a time. And the unit that begins with neighbour x of row y. */
enum { QN_TURN_HIGH = 64 };
static inline int64_t qn_turn_wide(const qn_copy_loops *l) { return l->past ? 1024 : 64; }
#define qn_copy_turned QN_K(copy_turned)
void qn_copy_turned(const qn_copy_loops *l, const char *src, char *dst, int64_t x, int64_t y);

#endif
