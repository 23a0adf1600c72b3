/* Keys of 16 bits as columns, still of 16 bits: half as many lines, and half as many steps, as columns of floats. They become floats when
 * they are multiplied, which with few rows of queries happens once. */
#define QN_NARROW 1 /* eight words of a row are turned at a time: vectors of SVE, which know no parts, would be of no use */
#include "cpu/k_attention.h"
#include "cpu/simd/simd_words.h"

enum { KEYS = QN_ATTEND_KEYS };

int qn_attend_turns_words(int n, int64_t deep) { return n == KEYS && deep % VW_LONG == 0; }

void qn_attend_turn_words(const char *rows, int64_t step, int64_t deep, uint16_t *to, qn_attend_ahead *ahead) {
    qn_attend_pace pace = qn_attend_paced(ahead, KEYS / VW_ROWS * (deep / VW_LONG), 1);
    for (int j = 0; j < KEYS; j += VW_ROWS, rows += VW_ROWS * step)
        for (int64_t p = 0; p < deep; p += VW_LONG) {
            vw r[8];
            qn_attend_ask(&pace);
            QN_UNROLL
            for (int i = 0; i < 8; i++) r[i] = vw_rows(rows + i * step + p * 2, rows + (i + 8) * step + p * 2);
            vw_turn(r);
            QN_UNROLL
            for (int i = 0; i < 8; i++) vw_put(r[i], to + (p + i) * KEYS + j, to + (p + i + 8) * KEYS + j);
        }
}
