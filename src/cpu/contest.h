/* Which of two ways to do the same, with the same bits, is the faster one here. Machines differ in how they fetch what is asked for, and no
 * register tells: so a piece of work goes half by either while this is open, and who wins pieces leads. Once a lead is long enough, a
 * piece is contested now and then, in case something changed. */
#ifndef QN_CPU_CONTEST_H
#define QN_CPU_CONTEST_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct qn_contest {
    atomic_int lead;    /* pieces that way 1 won, less those that way 0 won; no further than ENOUGH from zero */
    atomic_uint pieces; /* so far */
} qn_contest;

enum { QN_CONTEST_ENOUGH = 32, QN_CONTEST_EACH = 32 };

/* The way that leads. */
static inline int qn_contest_leader(qn_contest *c) { return atomic_load_explicit(&c->lead, memory_order_relaxed) > 0; }

/* Whether the next piece is contested; *first: the way of its first half. */
static inline int qn_contest_next(qn_contest *c, int *first) {
    unsigned piece = atomic_fetch_add_explicit(&c->pieces, 1, memory_order_relaxed);
    int lead = atomic_load_explicit(&c->lead, memory_order_relaxed);
    *first = (int)((piece ^ piece / QN_CONTEST_EACH) & 1);
    return (lead < QN_CONTEST_ENOUGH && lead > -QN_CONTEST_ENOUGH) || piece % QN_CONTEST_EACH == 0;
}

/* A piece that two threads tell at once may count as one. */
static inline void qn_contest_won(qn_contest *c, int way) {
    int lead = atomic_load_explicit(&c->lead, memory_order_relaxed) + (way ? 1 : -1);
    if (lead <= QN_CONTEST_ENOUGH && lead >= -QN_CONTEST_ENOUGH) atomic_store_explicit(&c->lead, lead, memory_order_relaxed);
}

#endif
