/* The codebook search behind the iq1, iq2 and iq3 encoders. A block is cut into sections that share one small scale, a
 * section into units of one grid entry each. For a given scale every unit's best entry is found by looking at the
 * whole grid. */
#ifndef QN_TENSOR_QUANT_IQ_SEARCH_H
#define QN_TENSOR_QUANT_IQ_SEARCH_H

#include <stdint.h>

typedef enum qn_iq_kind {
    QN_IQ_FREE,         /* each value has its own sign */
    QN_IQ_EVEN,         /* the number of minus signs in a unit of 8 is even */
    QN_IQ_EVEN_PAIR,    /* the same over two units of 4 */
    QN_IQ_SHIFT,        /* signed grid, each unit shifted by +1/8 or -1/8 */
    QN_IQ_SHIFT_SECTION /* the same, one shift per section */
} qn_iq_kind;

typedef struct qn_iq_book {
    const uint16_t *grid;
    const int8_t *values; /* of a digit */
    int entries;
    int digits; /* elements per unit: 8 of 2 bits or 4 of 3 bits */
    qn_iq_kind kind;
    int units;  /* per section */
    int levels; /* a section's scale is d * step * (2 k + 1), 0 <= k < levels */
    float step;
    float peak_value; /* largest value an element can have before the scale */
} qn_iq_book;

/* The codes of one block of 256. */
typedef struct qn_iq_codes {
    uint16_t entry[64];
    uint8_t signs[32]; /* per 8 values, bit set: negative */
    uint8_t shift[32]; /* per 8 values, 1: -1/8 */
    uint8_t level[16]; /* per section */
    uint16_t d;        /* f16 */
} qn_iq_codes;

/* What is the same for every block of a type: squared lengths of the entries, without a shift or with either one. */
typedef struct qn_iq_norms {
    float norm[2][2048];
} qn_iq_norms;

void qn_iq_prepare(const qn_iq_book *book, qn_iq_norms *norms);
/* weights: how much the squared error of each value counts; NULL: all alike. */
void qn_iq_encode_block(const qn_iq_book *book, const qn_iq_norms *norms, const float *src, const float *weights,
                        qn_iq_codes *codes);

#endif
