/* cmocka wants these four headers in front of it. */
#ifndef QN_TESTS_CMOCKA_SETUP_H
#define QN_TESTS_CMOCKA_SETUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
