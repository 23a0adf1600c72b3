/* A caller's wish to stop: a plain int, which another thread or the handler of a signal sets while it is looked at. */
#ifndef QN_BASE_CANCEL_H
#define QN_BASE_CANCEL_H

static inline int qn_cancel_wanted(const volatile int *cancel) { return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED); }

#endif
