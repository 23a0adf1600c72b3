/* Numbers in text, exactly: what is written is read back to the same bits, in the fewest digits, whatever the locale. */
#ifndef QN_IR_NUMBER_H
#define QN_IR_NUMBER_H

#include <quern/quern.h>

enum { QN_NUMBER_ROOM = 48 };

/* One element of a plain dtype as text of fewer than QN_NUMBER_ROOM bytes; 0 when no number means these bits (a NaN with a message, a
 * bool of 7). */
int qn_ir_number_format(qn_dtype dtype, const void *element, char *text);
/* The element that n bytes of text mean; 0 when they are no number, or one the dtype cannot hold. */
int qn_ir_number_parse(qn_dtype dtype, const char *text, size_t n, void *element);
/* Whether elements of the dtype are numbers at all. */
int qn_ir_number_is(qn_dtype dtype);

#endif
