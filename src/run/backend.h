/* The backends by name and number. The reference is always there; others add a row when they have kernels. */
#ifndef QN_RUN_BACKEND_H
#define QN_RUN_BACKEND_H

enum { QN_BACKEND_REFERENCE = 0, QN_BACKEND_COUNT };

#endif
