/* Which keys of an event matter, and finding them fast.
 *
 * A program that writes a trace writes the same few kinds of events over and over, so what stands between one value and the next
 * (`,\n    "tid": `) is nearly always what stood there last time. Each such stretch is learned as a seam, with the key it holds
 * and the seams that followed it; where a learned one stands again, one comparison takes the place of scanning the text and
 * looking the key up. What is not known goes the slow way and is learned. Seams never change what is read, only how fast. */
#ifndef QUERN_PROF_TRACE_KEYS_H
#define QUERN_PROF_TRACE_KEYS_H

#include "prof/json_scan.h"

/* Fields of an event and its arguments that are looked at, in the order of trace_keys.c's name table. */
typedef enum prof_field {
    PROF_KEY_CLOSED = -2, /* no key: the object ends here */
    PROF_KEY_OTHER = -1,  /* a key that nobody asks for */
    PROF_F_PH = 0,
    PROF_F_CAT,
    PROF_F_NAME,
    PROF_F_PID,
    PROF_F_TID,
    PROF_F_TS,
    PROF_F_DUR,
    PROF_F_ID,
    PROF_F_ARGS, /* never stored itself; arguments follow */
    PROF_F_EXTERNAL_LOWER,
    PROF_F_EXTERNAL,
    PROF_F_CORRELATION,
    PROF_F_DIMS,
    PROF_F_DIMS_LOWER,
    PROF_F_TYPES,
    PROF_F_STACK,
    PROF_F_DEVICE,
    PROF_F_GRID,
    PROF_F_BLOCK,
    PROF_F_REGISTERS,
    PROF_F_SHARED,
    PROF_F_BLOCKS_PER_SM,
    PROF_F_OCCUPANCY,
    PROF_F_KERNEL_TYPE,
    PROF_F_DIM,
    PROF_F_DIMX,
    PROF_F_DIMY,
    PROF_F_DIMZ,
    PROF_F_TOPO,
    PROF_F_TOPO_NODE,
    PROF_F_ADDR,
    PROF_F_BYTES,
    PROF_F_DEVICE_TYPE,
    PROF_F_DEVICE_ID,
    PROF_F_ALLOCATED,
    PROF_F_RESERVED,
    PROF_F_PY_ID,
    PROF_F_PY_PARENT,
    PROF_F_PY_MODULE,
    PROF_F_FLOPS,
    PROF_F_TRAFFIC, /* "bytes" of an operator; memory records have "Bytes" */
    PROF_F_ORIGIN,
    PROF_FIELDS
} prof_field;

enum { PROF_SEAM_WORDS = 6, PROF_SEAM_BYTES = PROF_SEAM_WORDS * 8, PROF_SEAMS = 128 };

typedef struct prof_seam {
    uint64_t text[PROF_SEAM_WORDS]; /* from behind one value up to the next one or past the closing bracket; rest 0 */
    uint64_t mask[PROF_SEAM_WORDS]; /* which bytes of it count */
    uint8_t length, in_args;
    int8_t field;    /* prof_field */
    uint8_t next[2]; /* the two seams that followed last, latest first; 0: none */
} prof_seam;

/* The first four are no text: behind the opening bracket of an event, and of its arguments; somewhere in either, behind a seam that
 * was too long to learn. */
enum { PROF_SEAM_EVENT, PROF_SEAM_ARGS, PROF_SEAM_IN_EVENT, PROF_SEAM_IN_ARGS, PROF_SEAM_LEARNED };

typedef struct prof_keys {
    uint8_t arg_table[256]; /* hash of an argument's name to its field, 0 free */
    prof_seam seams[PROF_SEAMS];
    unsigned n_seams;
    uint8_t seam_table[256]; /* hash of a seam's text to its index, 0 free */
} prof_keys;

void qn_prof_keys_init(prof_keys *keys);

/* The next member of an event (begin with *seam PROF_SEAM_EVENT and *p behind its `{`) or of its arguments (PROF_SEAM_ARGS). On OK
 * *field says which, *p stands at the first byte of its value or behind `}`, and *seam is to be given back for the next one. */
prof_scan_result qn_prof_keys_next(prof_keys *keys, prof_scan *scan, const char **p, unsigned *seam, int *field);

#endif
