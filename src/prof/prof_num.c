/* Numbers to text and back, exactly and whatever the locale: the C library is asked only in the rare cases that 128-bit integer
 * arithmetic does not settle. */
#include "prof/prof_num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/decimal.h"

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 i128;

static const double POW10[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                               1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static uint64_t pow10_int(int exponent) { /* 0 to 19 */
    uint64_t power = 1;
    while (exponent-- > 0) {
        power *= 10;
    }
    return power;
}

/* ---- Arithmetic that leaves 64 bits or mixes kinds ---------------------------------------------------------------- */

static i128 wide(prof_num v) {
    int64_t high = (int64_t)(v.tag >> 8) - (v.tag >> 31 ? 1 << 24 : 0);
    return prof_is_big(v) ? (i128)high * ((i128)1 << 64) + (uint64_t)v.i : (i128)v.i;
}

static prof_num narrow(i128 value) {
    if (value >= INT64_MIN && value <= INT64_MAX) {
        return prof_int((int64_t)value);
    }
    i128 high = value >> 64;
    if (high < -(1 << 23) || high >= 1 << 23) {
        return prof_dbl((double)value);
    }
    prof_num big = {{(int64_t)(uint64_t)value}, PROF_BIG | (uint32_t)(int32_t)high << 8};
    return big;
}

static int integers(prof_num a, prof_num b) { return a.tag != PROF_DBL && b.tag != PROF_DBL; }

double qn_prof_big_to_dbl(prof_num v) { return (double)wide(v); }

prof_num qn_prof_add_any(prof_num a, prof_num b) {
    return integers(a, b) ? narrow(wide(a) + wide(b)) : prof_dbl(prof_to_dbl(a) + prof_to_dbl(b));
}

prof_num qn_prof_sub_any(prof_num a, prof_num b) {
    return integers(a, b) ? narrow(wide(a) - wide(b)) : prof_dbl(prof_to_dbl(a) - prof_to_dbl(b));
}

prof_num qn_prof_mul_any(prof_num a, prof_num b) {
    i128 product;
    if (integers(a, b) && !__builtin_mul_overflow(wide(a), wide(b), &product)) {
        return narrow(product);
    }
    return prof_dbl(prof_to_dbl(a) * prof_to_dbl(b));
}

/* Integer against double without rounding the integer. */
static int cmp_int_dbl(i128 i, double d) {
    if (d != d) {
        return 2;
    }
    if (d >= 1e38 || d <= -1e38) {
        return d > 0 ? -1 : 1;
    }
    i128 whole = (i128)d;
    if (i != whole) {
        return i < whole ? -1 : 1;
    }
    double rest = d - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

int qn_prof_cmp_any(prof_num a, prof_num b) {
    if (integers(a, b)) {
        i128 x = wide(a), y = wide(b);
        return x < y ? -1 : x > y;
    }
    if (a.tag != PROF_DBL) {
        return cmp_int_dbl(wide(a), b.d);
    }
    int reversed = b.tag == PROF_DBL ? prof_cmp(b, a) : cmp_int_dbl(wide(b), a.d);
    return reversed == 2 ? 2 : -reversed;
}

/* ---- Reading ------------------------------------------------------------------------------------------------------ */

/* bits * 2^exponent, rounded to nearest even; `sticky` says that a positive remainder below was cut off. */
static double scale_bits(u128 bits, int sticky, int exponent) {
    uint64_t high = (uint64_t)(bits >> 64);
    int top = high ? 127 - __builtin_clzll(high) : 63 - __builtin_clzll((uint64_t)bits);
    int drop = top - 52;
    if (drop <= 0) {
        return ldexp((double)(uint64_t)bits, exponent);
    }
    uint64_t kept = (uint64_t)(bits >> drop);
    u128 rest = bits & ((((u128)1) << drop) - 1), half = ((u128)1) << (drop - 1);
    if (rest > half || (rest == half && (sticky || (kept & 1)))) {
        kept++;
    }
    return ldexp((double)kept, exponent + drop);
}

/* digits * 10^exponent for -19 <= exponent <= 19, correctly rounded; the result is always a normal double. */
static double scale_decimal(uint64_t digits, int exponent) {
    if (exponent >= 0) {
        return scale_bits((u128)digits * pow10_int(exponent), 0, 0);
    }
    uint64_t divisor = pow10_int(-exponent);
    int shift = __builtin_clzll(digits), divisor_shift = __builtin_clzll(divisor);
    u128 numerator = (u128)(digits << shift) << 64;
    u128 quotient = numerator / (divisor << divisor_shift), rest = numerator % (divisor << divisor_shift);
    return scale_bits(quotient, rest != 0, divisor_shift - shift - 64);
}

double qn_prof_dbl_read(const char *text, int64_t length) {
    uint64_t digits = 0;
    int significant = 0, point = 0;
    int64_t shift = 0, written = 0, at = 0;
    for (; at < length && text[at] != 'e' && text[at] != 'E'; at++) {
        if (text[at] == '.') {
            point = 1;
            continue;
        }
        if (significant < 19) {
            digits = digits * 10 + (uint64_t)(text[at] - '0');
            significant += digits != 0;
            shift -= point;
        } else {
            written = 1; /* too many digits for the fast ways */
        }
    }
    int64_t exponent = at < length ? qn_decimal_exponent(text + at + 1, text + length) : 0;
    if (!written && digits == 0) {
        return 0.0;
    }
    int64_t power = exponent + shift;
    if (!written && digits < (1ull << 53) && power >= -22 && power <= 22) {
        return power < 0 ? (double)digits / POW10[-power] : (double)digits * POW10[power];
    }
    if (!written && power >= -19 && power <= 19) {
        return scale_decimal(digits, (int)power);
    }
    return qn_decimal_read(text, (size_t)length);
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

int qn_prof_int_text(int64_t value, char *text) {
    static const char
        PAIRS[] = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849"
                  "5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";
    char backward[24], *end = backward + sizeof backward, *at = end;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    for (; rest >= 10; rest /= 100) {
        memcpy(at -= 2, PAIRS + rest % 100 * 2, 2);
    }
    if (rest || at == end) {
        *--at = (char)('0' + rest);
    }
    if (value < 0) {
        *--at = '-';
    }
    memcpy(text, at, (size_t)(end - at));
    return (int)(end - at);
}

static int big_text(prof_num value, char *text) {
    i128 whole = wide(value);
    u128 rest = whole < 0 ? 0 - (u128)whole : (u128)whole;
    const uint64_t part = 1000000000000000000ull;
    int length = 0;
    if (whole < 0) {
        text[length++] = '-';
    }
    length += qn_prof_int_text((int64_t)(rest / part), text + length);
    char low[PROF_NUM_TEXT];
    int n = qn_prof_int_text((int64_t)(rest % part), low);
    memset(text + length, '0', (size_t)(18 - n));
    memcpy(text + length + 18 - n, low, (size_t)n);
    return length + 18;
}

int qn_prof_num_text(prof_num value, char *text) {
    switch (value.tag & 255) {
    case PROF_INT: return qn_prof_int_text(value.i, text);
    case PROF_DBL: return qn_prof_dbl_text(value.d, text);
    case PROF_BIG: return big_text(value, text);
    default: memcpy(text, "None", 4); return 4;
    }
}

/* Decimal digits of a positive double and the place of its point: value = 0.d1d2d3... * 10^point. At most 17 digits. */
static int reads_back(const char *digits, int n, int exponent, double value) {
    char plain[40];
    int length = snprintf(plain, sizeof plain, "%.*se%d", n, digits, exponent - (n - 1));
    return qn_prof_dbl_read(plain, length) == value;
}

/* Adds one in the last place; 0 when that would need one digit more. */
static int step_up(char *digits, int n) {
    while (n > 0 && digits[n - 1] == '9') {
        digits[--n] = '0';
    }
    if (n > 0) {
        digits[n - 1]++;
    }
    return n > 0;
}

static int shortest_slow(double value, char *digits, int *point) {
    int ignored, power_of_two = frexp(value, &ignored) == 0.5;
    /* Fifteen digits, sixteen, seventeen: the last always reads back. The least doubles have fewer significant bits. */
    for (int precision = value < 2.3e-308 ? 0 : 14;; precision++) {
        char text[40];
        snprintf(text, sizeof text, "%.*e", precision, value);
        int n = 0;
        const char *at = text;
        for (; *at && *at != 'e'; at++) {
            if (*at >= '0' && *at <= '9') {
                digits[n++] = *at;
            }
        }
        int exponent = (int)strtol(at + 1, NULL, 10);
        *point = exponent + 1;
        /* Above a power of two doubles lie twice as far apart, so a decimal further up may serve where the nearest does not. */
        if (precision == 16 || reads_back(digits, n, exponent, value) ||
            (power_of_two && step_up(digits, n) && reads_back(digits, n, exponent, value))) {
            return n;
        }
    }
}

static int shortest(double value, char *digits, int *point) {
    int n;
    int exponent;
    frexp(value, &exponent);
    int decimal = (int)floor((exponent - 1) * 0.30102999566398120); /* floor(log10) or one less */
    if (decimal >= -8 && decimal + 1 < 23 && value >= POW10[decimal + 1 > 0 ? decimal + 1 : 0] && decimal + 1 >= 0) {
        decimal++;
    }
    int places = 14 - decimal;
    if (value < 9007199254740992.0 && value == floor(value)) {
        n = qn_prof_int_text((int64_t)value, digits);
        *point = n;
    } else if (places >= 0 && places <= 22 && (double)llround(value * POW10[places]) / POW10[places] == value) {
        /* Fifteen digits, or sixteen where the guess of log10 was one short: still below 2^53, so the division is exact. */
        n = qn_prof_int_text((int64_t)llround(value * POW10[places]), digits);
        *point = n - places;
    } else {
        n = shortest_slow(value, digits, point);
    }
    while (n > 1 && digits[n - 1] == '0') {
        n--;
    }
    return n;
}

static int exponent_text(const char *digits, int n, int point, char *text) {
    int length = 0;
    text[length++] = digits[0];
    if (n > 1) {
        text[length++] = '.';
        memcpy(text + length, digits + 1, (size_t)n - 1);
        length += n - 1;
    }
    int exponent = point - 1;
    text[length++] = 'e';
    text[length++] = exponent < 0 ? '-' : '+';
    exponent = exponent < 0 ? -exponent : exponent;
    if (exponent < 10) {
        text[length++] = '0';
    }
    return length + qn_prof_int_text(exponent, text + length);
}

static int plain_text(const char *digits, int n, int point, char *text) {
    int length = 0;
    if (point <= 0) {
        text[length++] = '0';
        text[length++] = '.';
        memset(text + length, '0', (size_t)-point);
        length += -point;
        memcpy(text + length, digits, (size_t)n);
        return length + n;
    }
    for (int i = 0; i < point; i++) {
        text[length++] = i < n ? digits[i] : '0';
    }
    text[length++] = '.';
    if (n <= point) {
        text[length++] = '0';
        return length;
    }
    memcpy(text + length, digits + point, (size_t)(n - point));
    return length + n - point;
}

int qn_prof_dbl_text(double value, char *text) {
    if (value != value) {
        memcpy(text, "NaN", 3);
        return 3;
    }
    int sign = signbit(value) != 0;
    if (sign) {
        *text++ = '-';
        value = -value;
    }
    if (value > 1.7976931348623157e308) {
        memcpy(text, "Infinity", 8);
        return 8 + sign;
    }
    if (value == 0) {
        memcpy(text, "0.0", 3);
        return 3 + sign;
    }
    char digits[40];
    int point;
    int n = shortest(value, digits, &point);
    int plain = point > -4 && point <= 16;
    return sign + (plain ? plain_text(digits, n, point, text) : exponent_text(digits, n, point, text));
}

/* ---- Rounding ----------------------------------------------------------------------------------------------------- */

prof_num qn_prof_round0(prof_num value) {
    if (value.tag != PROF_DBL || !(fabs(value.d) < 1e26)) {
        return value;
    }
    return narrow((i128)rint(value.d));
}

double qn_prof_round_places(double value, int places) {
    char text[400];
    if (!(fabs(value) < 1e300)) {
        return value;
    }
    int n = qn_decimal_print(text, sizeof text, 'f', places, value);
    return qn_decimal_read(text, (size_t)n);
}

prof_num qn_prof_round2(prof_num value) {
    if (value.tag != PROF_DBL) {
        return value;
    }
    double size = fabs(value.d);
    if (!(size < 1e12)) {
        return prof_dbl(size < 4.5e15 ? qn_prof_round_places(value.d, 2) : value.d);
    }
    /* hundredths = product + error exactly; product is below 2^52, so its fraction and the distance to one half are exact. */
    double product = size * 100.0, error = fma(size, 100.0, -product);
    double whole = floor(product), distance = product - whole - 0.5;
    int up = distance > 0 || (distance == 0 && (error > 0 || (error == 0 && fmod(whole, 2.0) != 0)));
    double rounded = (whole + up) / 100.0;
    return prof_dbl(signbit(value.d) ? -rounded : rounded);
}
