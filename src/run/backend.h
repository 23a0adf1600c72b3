/* The backends by name and number. */
#ifndef QN_RUN_BACKEND_H
#define QN_RUN_BACKEND_H

enum { QN_BACKEND_REFERENCE = 0, QN_BACKEND_CPU, QN_BACKEND_VULKAN, QN_BACKEND_COUNT };

#endif
