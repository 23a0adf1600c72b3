/* How many bytes before they are read, a stream out of memory is asked for: into the second cache long before, since the first can wait for
 * a dozen lines and no more, and into the first one soon before; and how long a page is, and the beginning of one, for who asks for those
 * alone. Kernels and the loops that measure a machine's limits share these, or percentages would not mean much. */
#ifndef QN_CPU_AHEAD_H
#define QN_CPU_AHEAD_H

enum { QN_AHEAD_SOON = 1024, QN_AHEAD_LATER = 8192, QN_AHEAD_PAGE = 4096, QN_AHEAD_START = 512 };

#endif
