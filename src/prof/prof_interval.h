/* Interval algebra of section 9: lists of half-open ranges sorted by start. The cursors follow the rules case by case, because
 * overlapping or empty ranges in hand-made traces make other, equally sensible, algorithms give other answers. */
#ifndef QUERN_PROF_INTERVAL_H
#define QUERN_PROF_INTERVAL_H

#include <quern/quern.h>

#include "base/arena.h"
#include "prof/prof_num.h"

typedef struct prof_range {
    prof_num start, end;
} prof_range;

typedef QN_VEC(prof_range) prof_ranges;

/* A range with a weight, for the estimated SM efficiency. */
typedef struct prof_piece {
    prof_num start, end;
    prof_num value;
} prof_piece;

typedef QN_VEC(prof_piece) prof_pieces;

/* All of these return QN_OK or QN_NO_MEMORY. `out` must be empty or zeroed and must not be an input. */
qn_status qn_prof_range_push(qn_arena *arena, prof_ranges *list, prof_num start, prof_num end);
/* Adds a range to a merged list, to the same effect as merging the whole; it must not start before the one added last. */
qn_status qn_prof_range_merge(qn_arena *arena, prof_ranges *list, prof_num start, prof_num end);
qn_status qn_prof_ranges_merge(qn_arena *arena, const prof_ranges *in, prof_ranges *out);
qn_status qn_prof_ranges_meet(qn_arena *arena, const prof_ranges *a, const prof_ranges *b, prof_ranges *out);  /* A and B */
qn_status qn_prof_ranges_minus(qn_arena *arena, const prof_ranges *a, const prof_ranges *b, prof_ranges *out); /* A without B */
/* A with values, cut to [start, end]. */
qn_status qn_prof_pieces_clip(qn_arena *arena, const prof_pieces *a, prof_num start, prof_num end, prof_pieces *out);

/* Sum of lengths, from integer 0, in order. */
prof_num qn_prof_ranges_sum(const prof_ranges *list);
/* How many ranges of a list, merged like B below, lie in [start, end) at least in part: what a sum over them takes. */
size_t qn_prof_ranges_in(prof_num start, prof_num end, const prof_ranges *b);
/* sum([start, end] with B) without building the list; B must be merged or a part of merged lists (ends ascending). */
prof_num qn_prof_ranges_sum_in(prof_num start, prof_num end, const prof_ranges *b);

#endif
