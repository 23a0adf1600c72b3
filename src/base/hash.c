/* The key of this process's hashes; see hash.h. The library keeps nothing outside of what its callers hold, so the key is made each time
 * from what the process has had since it began. */
#include "base/hash.h"

#ifdef __linux__
#include <sys/auxv.h>
#endif

#include "base/rand.h"

qn_hash_key qn_hash_process_key(void) {
    static const char here = 0;
    uint64_t drawn[2] = {(uint64_t)(uintptr_t)&here,
                         (uint64_t)(uintptr_t)&qn_rand_next}; /* where it was loaded differs as well */
#ifdef __linux__
    const void *bytes = (const void *)getauxval(AT_RANDOM); /* sixteen that the kernel drew */
    if (bytes) memcpy(drawn, bytes, sizeof drawn);
#endif
    qn_rand first = {drawn[0]}, second = {drawn[1]}; /* mixed, as others draw on the same bytes */
    return (qn_hash_key){qn_rand_next(&first), qn_rand_next(&second) | 1};
}
