/* How fast multiply-adds of f32 can go at best: one loop per instruction set, chosen at run time. */
#ifndef QN_PROF_ROOFLINE_FMA_H
#define QN_PROF_ROOFLINE_FMA_H

typedef struct qn_fma_loop {
    const char *isa;
    double flops;             /* of one turn */
    float (*run)(long turns); /* the result only keeps the loop alive */
} qn_fma_loop;

qn_fma_loop qn_fma_best(void);

#endif
