/* The checksum of gzip, by the machine's own instructions where it has them: zlib's takes as long as the unpacking. */
#ifndef QUERN_PROF_CRC32_H
#define QUERN_PROF_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Like zlib's crc32: begin with 0, and go on with what was returned. */
uint32_t qn_prof_crc32(uint32_t crc, const void *bytes, size_t length);

#endif
