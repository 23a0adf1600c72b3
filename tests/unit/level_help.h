/* A check through every level of this machine: a context of references beside one of a single level, and numbers to draw. */
#ifndef QN_TESTS_LEVEL_HELP_H
#define QN_TESTS_LEVEL_HELP_H

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "run/context.h"

static uint64_t draw_state;
static qn_context *reference, *level;

static inline uint64_t draw_bits(void) {
    draw_state ^= draw_state << 13;
    draw_state ^= draw_state >> 7;
    return draw_state ^= draw_state << 17;
}

static inline void each_level(void (*check)(void)) {
    qn_context_options plain = {.size = sizeof plain, .flags = QN_CONTEXT_REFERENCE};
    assert_int_equal(qn_context_create(&plain, &reference), QN_OK);
    assert_int_equal(qn_context_create(NULL, &level), QN_OK);
    uint32_t have = qn_cpu_levels();
    for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++) {
        level->cpu_levels = have & 1u << l;
        draw_state = 88172645463325252u; /* the same numbers for each, whatever other levels a machine has */
        if (level->cpu_levels) check();
    }
    qn_context_destroy(level);
    qn_context_destroy(reference);
}

#endif
