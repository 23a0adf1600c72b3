/* Values in and out of any dtype. Floats round to nearest even, once, straight from double; integers truncate toward zero and
 * saturate, NaN gives 0; bool is 0 or 1; block types decode and encode through their codecs. c64 holds a real part only when
 * it is written from a double, and is read as its real part; ops on complex numbers use their own access. */
#ifndef QN_TENSOR_CONVERT_H
#define QN_TENSOR_CONVERT_H

#include <quern/quern.h>

double qn_load_one(qn_dtype dtype, const void *p);    /* plain dtypes */
void qn_store_one(qn_dtype dtype, void *p, double v); /* plain dtypes */
int64_t qn_load_index(qn_dtype dtype, const void *p); /* integer dtypes */

/* n elements from `first` of a row; stride is the byte step of one element, or of one block for block types. Any `first`. */
void qn_load_run(qn_dtype dtype, const char *row, int64_t stride, int64_t first, int64_t n, double *out);
/* For block types first and n are whole blocks. */
void qn_store_run(qn_dtype dtype, char *row, int64_t stride, int64_t first, int64_t n, const double *in);

/* n elements of one row into another; equal dtypes copy bits, integers stay exact. Blocks: whole blocks only. */
void qn_convert_run(qn_dtype from, const char *src, int64_t src_stride, qn_dtype to, char *dst, int64_t dst_stride,
                    int64_t first_src, int64_t first_dst, int64_t n);

/* Whether values of one dtype can become the other at run time; every plain pair can, blocks need their codecs. */
int qn_can_convert(qn_dtype from, qn_dtype to);

/* Convert n values between any two dtypes; rows are dense. Rounds to nearest even into floats, saturates into integers (NaN
 * gives 0); into a block type with the encoder that has the least error. UNSUPPORTED where there is no conversion, INVALID when
 * n is not a whole number of blocks. Pointers are aligned to their element. */
qn_status qn_convert(qn_dtype from, const void *src, qn_dtype to, void *dst, int64_t n);

#endif
