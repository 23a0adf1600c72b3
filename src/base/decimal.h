/* Decimal numbers in texts, with a point. The C library reads and writes what the program's locale has in its place, which is a comma in
 * half of Europe and several bytes elsewhere; the locale is the program's own business. */
#ifndef QN_BASE_DECIMAL_H
#define QN_BASE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>

/* A sign or none, digits with at most one point among them, an exponent or none; whoever asks has checked it. Rounded once, however many
 * digits there are; infinite beyond the largest. */
double qn_decimal_read(const char *text, size_t n);
float qn_decimal_read_f32(const char *text, size_t n);
/* What stands behind the e, from `at` on; held where it is beyond all numbers anyway. */
int64_t qn_decimal_exponent(const char *at, const char *end);

/* As printf writes a number by `form`, which is e, f or g, with a precision. Returns how long the whole would be, as snprintf does. */
int qn_decimal_print(char *text, size_t size, char form, int precision, double number);

#endif
