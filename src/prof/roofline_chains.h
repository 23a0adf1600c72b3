/* Independent chains of one instruction, written out, so that each has a register: a file defines BEGIN(i), STEP(i) and JOIN(i), the
 * declaration, the step and the sum of chain i, for each function that runs them. */
#ifndef QN_PROF_ROOFLINE_CHAINS_H
#define QN_PROF_ROOFLINE_CHAINS_H

#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define SIXTEEN(X) TWELVE(X) X(12) X(13) X(14) X(15)

/* `turns` steps of all of them; then `sum`, which begins as `zero`. EACH is one of the two above. */
#define RUN_CHAINS(EACH, turns, type, zero)       \
    EACH(BEGIN)                                   \
    for (long turn = 0; turn < (turns); turn++) { \
        EACH(STEP)                                \
    }                                             \
    type sum = zero;                              \
    EACH(JOIN)

#endif
