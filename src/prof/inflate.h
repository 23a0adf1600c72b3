/* Unpacking deflate streams (RFC 1951) into a moving window. A trace repeats itself so much that zlib spends its time copying bytes
 * one by one; this decoder copies words. It takes what zlib takes and refuses what zlib refuses. */
#ifndef QUERN_PROF_INFLATE_H
#define QUERN_PROF_INFLATE_H

#include <stddef.h>
#include <stdint.h>

enum {
    PROF_INFLATE_HISTORY = 32768, /* bytes before the output that must still be there */
    PROF_INFLATE_AHEAD = 1024,    /* input to have at hand, unless the file ends before */
    PROF_INFLATE_LITERALS = 1024 + 144 * 32,
    PROF_INFLATE_DISTANCES = 256 + 15 * 128
};

typedef enum prof_inflate_result {
    PROF_INFLATE_FULL, /* no room is left for output */
    PROF_INFLATE_MORE, /* less than AHEAD bytes of input are left, and it is not the last */
    PROF_INFLATE_CUT,  /* the input ends inside the stream */
    PROF_INFLATE_END,  /* the stream is complete; `in` stands behind it */
    PROF_INFLATE_BAD   /* `why` says what is wrong */
} prof_inflate_result;

typedef struct prof_inflate {
    const unsigned char *in, *in_end;
    int last; /* nothing follows in_end */
    const char *why;

    uint64_t bits; /* read from `in` and not used yet, lowest first */
    unsigned count;
    int state, final_block;
    uint32_t left, distance; /* bytes of a stored block, or of a match that met the end of the output */
    uint32_t literals[PROF_INFLATE_LITERALS], distances[PROF_INFLATE_DISTANCES];
} prof_inflate;

/* A new stream begins at `in`. */
void qn_prof_inflate_begin(prof_inflate *z);

/* Writes from *out on, at most to out_end, and moves *out. What was written before lies before it, from `history` on: at least the last
 * 32 KiB, or all. */
prof_inflate_result qn_prof_inflate(prof_inflate *z, const char *history, char **out, char *out_end);

#endif
