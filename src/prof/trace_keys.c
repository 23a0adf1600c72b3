/* Names to fields, and the seams between values. */
#include "prof/trace_keys.h"

#include <string.h>

#include "prof/prof_text.h"

static const char *const NAMES[PROF_FIELDS] = {"ph",
                                               "cat",
                                               "name",
                                               "pid",
                                               "tid",
                                               "ts",
                                               "dur",
                                               "id",
                                               "args",
                                               "external id",
                                               "External id",
                                               "correlation",
                                               "Input Dims",
                                               "Input dims",
                                               "Input type",
                                               "Call stack",
                                               "device",
                                               "grid",
                                               "block",
                                               "registers per thread",
                                               "shared memory",
                                               "blocks per SM",
                                               "est. achieved occupancy %",
                                               "kernel type",
                                               "dim",
                                               "dimx",
                                               "dimy",
                                               "dimz",
                                               "tasktopo",
                                               "tasktopo_node",
                                               "Addr",
                                               "Bytes",
                                               "Device Type",
                                               "Device Id",
                                               "Total Allocated",
                                               "Total Reserved",
                                               "Python id",
                                               "Python parent id",
                                               "Python module id",
                                               "flops",
                                               "bytes",
                                               "origin"};

static unsigned name_hash(const char *name, size_t length) {
    return ((unsigned)length * 21u + (unsigned char)name[0] * 5u + (unsigned char)name[length - 1] * 59u) & 255u;
}

static void forget_seams(prof_keys *keys) {
    memset(keys->seams, 0, sizeof keys->seams);
    memset(keys->seam_table, 0, sizeof keys->seam_table);
    keys->seams[PROF_SEAM_ARGS].in_args = keys->seams[PROF_SEAM_IN_ARGS].in_args = 1;
    keys->n_seams = PROF_SEAM_LEARNED;
}

void qn_prof_keys_init(prof_keys *keys) {
    memset(keys, 0, sizeof *keys);
    for (int field = PROF_F_ARGS + 1; field < PROF_FIELDS; field++) {
        unsigned at = name_hash(NAMES[field], strlen(NAMES[field]));
        while (keys->arg_table[at]) {
            at = (at + 1) & 255u;
        }
        keys->arg_table[at] = (uint8_t)field;
    }
    forget_seams(keys);
}

/* ---- Names -------------------------------------------------------------------------------------------------------- */

static int same_name(const char *name, size_t length, int field) { return memcmp(name, NAMES[field], length) == 0; }

static int event_field(const char *name, size_t length) {
    if (length == 2) {
        return same_name(name, 2, PROF_F_PH)   ? PROF_F_PH
               : same_name(name, 2, PROF_F_TS) ? PROF_F_TS
               : same_name(name, 2, PROF_F_ID) ? PROF_F_ID
                                               : PROF_KEY_OTHER;
    }
    if (length == 3) {
        return same_name(name, 3, PROF_F_CAT)   ? PROF_F_CAT
               : same_name(name, 3, PROF_F_PID) ? PROF_F_PID
               : same_name(name, 3, PROF_F_TID) ? PROF_F_TID
               : same_name(name, 3, PROF_F_DUR) ? PROF_F_DUR
                                                : PROF_KEY_OTHER;
    }
    if (length == 4) {
        return same_name(name, 4, PROF_F_NAME) ? PROF_F_NAME : same_name(name, 4, PROF_F_ARGS) ? PROF_F_ARGS : PROF_KEY_OTHER;
    }
    return PROF_KEY_OTHER;
}

static int arg_field(const prof_keys *keys, const char *name, size_t length) {
    if (length == 0) {
        return PROF_KEY_OTHER;
    }
    for (unsigned at = name_hash(name, length); keys->arg_table[at]; at = (at + 1) & 255u) {
        int field = keys->arg_table[at];
        if (strlen(NAMES[field]) == length && same_name(name, length, field)) {
            return field;
        }
    }
    return PROF_KEY_OTHER;
}

/* The field a key names; a key written with escapes is resolved first. */
static int key_field(const prof_keys *keys, const prof_scan *scan, const prof_tok *key, int in_args) {
    const char *name = scan->base + key->at;
    size_t length = key->length;
    char plain[3 * 64];
    if (key->escaped) {
        if (length > 64) {
            return PROF_KEY_OTHER;
        }
        length = qn_prof_unescape(name, length, plain);
        name = plain;
    }
    return in_args ? arg_field(keys, name, length) : event_field(name, length);
}

/* ---- Seams -------------------------------------------------------------------------------------------------------- */

/* How two words of the text differ from what stands at p; 0: not at all. */
static uint64_t two_differ(const prof_seam *seam, const char *p, int at) {
    uint64_t word[2];
    memcpy(word, p + 8 * at, sizeof word);
    return ((word[0] ^ seam->text[at]) & seam->mask[at]) | ((word[1] ^ seam->text[at + 1]) & seam->mask[at + 1]);
}

__attribute__((always_inline)) static inline int stands_at(const prof_seam *seam, const char *p) {
    uint64_t differ = two_differ(seam, p, 0);
    if (seam->length > 16) {
        differ |= two_differ(seam, p, 2);
    }
    if (seam->length > 32) {
        differ |= two_differ(seam, p, 4);
    }
    return differ == 0;
}

/* The seam of that text, made if it is new. There must be room for one. */
static unsigned learn(prof_keys *keys, const char *text, size_t length, int in_args, int field) {
    prof_seam fresh;
    memset(&fresh, 0, sizeof fresh);
    memcpy(fresh.text, text, length);
    memset(fresh.mask, 255, length);
    fresh.length = (uint8_t)length;
    fresh.in_args = (uint8_t)in_args;
    fresh.field = (int8_t)field;
    unsigned at = qn_prof_hash_bytes(qn_hash_process_key(), text, length) & 255u;
    for (unsigned i; (i = keys->seam_table[at]) != 0; at = (at + 1) & 255u) {
        const prof_seam *known = &keys->seams[i];
        if (known->length == length && known->in_args == in_args && memcmp(known->text, fresh.text, sizeof fresh.text) == 0) {
            return i;
        }
    }
    keys->seams[keys->n_seams] = fresh;
    keys->seam_table[at] = (uint8_t)keys->n_seams;
    return keys->n_seams++;
}

/* Apart, so that the quick way need not save what this one uses. */
__attribute__((noinline)) static prof_scan_result next_slowly(prof_keys *keys, prof_scan *scan, const char **p, unsigned *seam,
                                                              int *field) {
    const char *start = *p;
    prof_tok key = {0};
    int closed, first = *seam < PROF_SEAM_IN_EVENT, in_args = keys->seams[*seam].in_args;
    prof_scan_result result = qn_prof_scan_member(scan, p, first, &key, &closed);
    if (result != PROF_SCAN_OK) {
        return result;
    }
    *field = closed ? PROF_KEY_CLOSED : key_field(keys, scan, &key, in_args);
    size_t length = (size_t)(*p - start);
    unsigned here = PROF_SEAM_IN_EVENT + (unsigned)in_args;
    if (length <= PROF_SEAM_BYTES && !key.escaped) {
        if (keys->n_seams == PROF_SEAMS) { /* a file that begins unlike the rest must not fill the table for good */
            forget_seams(keys);
            *seam = first ? (unsigned)in_args : here;
        }
        here = learn(keys, start, length, in_args, *field);
        prof_seam *from = &keys->seams[*seam];
        if (from->next[0] != here) {
            from->next[1] = from->next[0];
            from->next[0] = (uint8_t)here;
        }
    }
    *seam = here;
    return PROF_SCAN_OK;
}

prof_scan_result qn_prof_keys_next(prof_keys *keys, prof_scan *scan, const char **p, unsigned *seam, int *field) {
    prof_seam *from = &keys->seams[*seam];
    unsigned next = from->next[0];
    if (scan->end - *p <= PROF_SEAM_BYTES) { /* a value, or at least a byte of it, must follow in the window */
        return next_slowly(keys, scan, p, seam, field);
    }
    if (!next || !stands_at(&keys->seams[next], *p)) {
        next = from->next[1];
        if (!next || !stands_at(&keys->seams[next], *p)) {
            return next_slowly(keys, scan, p, seam, field);
        }
        from->next[1] = from->next[0];
        from->next[0] = (uint8_t)next;
    }
    *p += keys->seams[next].length;
    *seam = next;
    *field = keys->seams[next].field;
    return PROF_SCAN_OK;
}
