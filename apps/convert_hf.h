/* Inside the conversion of Hugging Face folders: convert_hf.c reads the config, convert_tensors.c the tensors. */
#ifndef QN_APPS_CONVERT_HF_H
#define QN_APPS_CONVERT_HF_H

#include "convert_parts.h"

enum { CONVERT_NAME_ROOM = 256 };

/* Flags of CONVERT_ARCH, and how of CONVERT_NAME: see convert_hf.def. */
enum { ROTATE = 1, NORM_ONE = 2, NO_OUTPUT = 4 };
enum { TURN = 1, JOIN = 2, Q = 4, K = 8, V = 16, EVEN = 32, ODD = 64, BLOCKS = 128, FIRST = 256, LAST = 512 };
enum { PARTS = Q | K | V | EVEN | ODD | FIRST | LAST };

struct convert_hf {
    qn_file *config, *weights;
    const char *architecture;
    unsigned flags;
    int64_t heads, kv_heads, experts, head_dim;
    uint64_t n_parts, most_parts; /* places for experts and heads in what is stacked, and tensors there can be for them */
    float **owned;                /* vectors made here */
    size_t n_owned, room;
};

/* Whether a word is in a list separated by spaces; an empty list has all. */
int convert_in_list(const char *list, const char *word);
/* n numbers that live as long as the source; NULL with the error set. */
float *convert_own(conversion *c, convert_hf *f, int64_t n);
/* A tensor of f32 to be filled in; NULL with the error set. */
float *convert_add_vector(conversion *c, convert_hf *f, const char *name, int rank, const int64_t *shape);
/* What is to be written of a tensor of the folder. */
qn_status convert_hf_tensor(conversion *c, convert_hf *f, const qn_file_tensor *from);

#endif
