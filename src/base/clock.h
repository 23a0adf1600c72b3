/* The two clocks: one that only goes forward, for durations, and the calendar's, for names. Nanoseconds. */
#ifndef QN_BASE_CLOCK_H
#define QN_BASE_CLOCK_H

#include <stdint.h>

uint64_t qn_clock_now(void);
uint64_t qn_clock_wall(void);

#endif
