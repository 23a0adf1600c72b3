/* Parts of quern inspect. */
#ifndef QN_APPS_INSPECT_H
#define QN_APPS_INSPECT_H

#include "model_app.h"

typedef struct inspection {
    const char *path;
    qn_file *file;
    qn_file_info info;
    const char *key_glob, *tensor_glob; /* NULL: all */
    int show_keys, show_tensors, all, hash;
    model_hash total; /* of the tensors hashed so far */
    uint64_t hashed;
} inspection;

typedef struct inspect_sum {
    uint64_t tensors, elements, bytes;
} inspect_sum;

int inspect_wants_key(const inspection *in, const char *name);
int inspect_wants_tensor(const inspection *in, const char *name);
/* Of one tensor; and the total goes on by it. */
uint64_t inspect_hash(inspection *in, const qn_file_tensor *tensor);
/* Of the tensors that are listed, by dtype; of all of them at 0, which is no dtype. */
void inspect_count(const inspection *in, inspect_sum sums[QN_DTYPE_COUNT]);

void inspect_print_json(inspection *in);

#endif
