#include "base/decimal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 800 }; /* more than any double or midpoint between two has */
enum { ROOM = MOST_DIGITS + 32 };

int64_t qn_decimal_exponent(const char *at, const char *end) {
    enum { ENOUGH = 1 << 20 };
    int negative = at < end && *at == '-';
    int64_t exponent = 0;
    if (at < end && (*at == '-' || *at == '+')) at++;
    for (; at < end; at++)
        if (exponent < ENOUGH) exponent = exponent * 10 + (*at - '0');
    return negative ? -exponent : exponent;
}

/* The same number without its point, which every locale reads alike: the digits, then an exponent. */
static void without_point(const char *at, size_t n, char copy[ROOM]) {
    const char *end = at + n;
    int used = 0, cut = 0, has_point = 0;
    int64_t behind = 0; /* digits behind the point */
    if (at < end && (*at == '-' || *at == '+')) *copy++ = *at++;
    for (; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            has_point = 1;
        } else if (used == 0 && *at == '0') {
            behind += has_point;
        } else if (used < MOST_DIGITS) {
            copy[used++] = *at;
            behind += has_point;
        } else {
            cut |= *at != '0';
            behind -= !has_point;
        }
    }
    if (cut) { /* a non-zero digit beyond the last one that can matter keeps a tie from being seen */
        copy[used++] = '1';
        behind++;
    }
    if (used == 0) copy[used++] = '0';
    snprintf(copy + used, 24, "e%lld", (long long)((at < end ? qn_decimal_exponent(at + 1, end) : 0) - behind));
}

double qn_decimal_read(const char *text, size_t n) {
    char copy[ROOM];
    without_point(text, n, copy);
    return strtod(copy, NULL);
}

float qn_decimal_read_f32(const char *text, size_t n) {
    char copy[ROOM];
    without_point(text, n, copy);
    return strtof(copy, NULL);
}

/* What lies between the digits and is no sign and no exponent is the point, of however many bytes. */
int qn_decimal_print(char *text, size_t size, char form, int precision, double number) {
    int n = snprintf(text, size, form == 'f' ? "%.*f" : form == 'e' ? "%.*e" : "%.*g", precision, number);
    if (n < 0 || !isfinite(number)) return n;
    size_t length = (size_t)n < size ? (size_t)n : size ? size - 1 : 0, from = strspn(text, "0123456789-");
    size_t to = from + strcspn(text + from, "0123456789e");
    if (from >= length || text[from] == 'e' || to == from) return n;
    text[from] = '.';
    memmove(text + from + 1, text + to, length - to + 1);
    return n - (int)(to - from - 1);
}
