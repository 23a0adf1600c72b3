/* Parts of quern quantize; convert uses its types too. */
#ifndef QN_APPS_QUANTIZE_H
#define QN_APPS_QUANTIZE_H

#include "model_app.h"

typedef enum quantize_type {
#define QUANTIZE_TYPE(name, number, dtype, summary) QUANTIZE_##name,
#define QUANTIZE_ALIAS(name, mixture)
#include "quantize_types.def"
#undef QUANTIZE_TYPE
#undef QUANTIZE_ALIAS
    QUANTIZE_TYPES
} quantize_type;

/* QUANTIZE_TYPES when there is no such name; case does not matter. */
quantize_type quantize_type_find(const char *name);
int quantize_type_number(quantize_type type);
qn_dtype quantize_type_dtype(quantize_type type);
const char *quantize_type_name(int item); /* NULL behind the last */
/* All names with what they mean, for the help. */
void quantize_types_print(FILE *to);
/* A dtype by name, in any case; NONE when there is none. */
qn_dtype quantize_dtype_find(const char *name);

/* What the choice of dtypes needs to know of a model. */
typedef struct quantize_model {
    quantize_type type;
    int pure;               /* the mixture's own dtype everywhere */
    qn_dtype output, embed; /* NONE: by the mixture */
    int keep_output;
    const char *tensor_types; /* "REGEX=TYPE,...", or NULL */
    int has_matrix;
    char architecture[64];
    int64_t layers, experts, heads_per_key;
    int64_t values;  /* tensors of values there are */
    int tied_output; /* no output tensor: the embedding is both */
} quantize_model;

/* Tensors whose rows are not whole blocks of the type they should have, and which get one of smaller blocks. */
typedef struct quantize_misses {
    int64_t got[QN_DTYPE_COUNT], all;
    int64_t columns; /* of one of them, and what it should have been */
    qn_dtype wanted;
} quantize_misses;

/* Reads the facts from a GGUF file. The choices above must be set before or after; this leaves them. */
void quantize_model_read(quantize_model *model, const qn_file *file);
/* The dtype a tensor gets. `values_before`: how many tensors of values lie in lower layers. Counts in `misses` what could not have
 * its type. */
qn_dtype quantize_choose(const quantize_model *model, const char *name, const qn_tensor *tensor, int64_t values_before,
                         quantize_misses *misses);
/* One sentence about tensors that could not have their type, nothing when there is none. */
void quantize_misses_print(const char *verb, const quantize_misses *misses);
/* Takes the next "REGEX=TYPE" off a list: its regex, cut to the room there is, and its type, NULL when it has none. 0: the list ends. */
enum { QUANTIZE_ASK = 256 };
int quantize_next_ask(const char **list, char regex[QUANTIZE_ASK], const char **type);
/* Whether a name matches; -1: that is no regex, and `why` (NULL: not wanted) says why. */
int quantize_matches(const char *regex, const char *name, char why[128]);
/* Whether the tensor is one of those whose dtype is chosen at all: a matrix of weights, and none of the delicate ones. */
int quantize_may_change(const quantize_model *model, const char *name, const qn_tensor *tensor);
/* The layer in a name "blk.N.", -1 when there is none; and whether it is a tensor of values. */
int64_t quantize_layer(const char *name);
int quantize_is_values(const char *name);

/* ---- Importance: how much each column of a tensor matters */

typedef struct quantize_matrix quantize_matrix;

/* Reads a matrix in llama.cpp's GGUF form. NULL with the error set when it cannot be. */
quantize_matrix *quantize_matrix_open(const char *path, int no_map, qn_error *error);
void quantize_matrix_close(quantize_matrix *matrix);
/* Weights of a tensor: its columns, once or once for each expert (*experts). NULL when the matrix does not know the tensor; when it
 * does and the sizes do not agree, NULL with the error set. */
const float *quantize_matrix_find(quantize_matrix *matrix, const char *name, const qn_tensor *tensor, int64_t *experts,
                                  qn_error *error);
int64_t quantize_matrix_count(const quantize_matrix *matrix);
int64_t quantize_matrix_chunks(const quantize_matrix *matrix);

/* ---- Tensors on their way into a file */

/* Fills `rows` rows from row `first` on, dense and of the item's `from` dtype. */
typedef void (*model_rows_fn)(void *user, int64_t first, int64_t rows, void *out);

typedef struct model_item {
    const char *name;
    qn_tensor shape; /* as it will be in the file: its dtype is the target */
    qn_dtype from;
    const void *data;   /* dense rows of `from`; NULL: they come from `rows` */
    model_rows_fn rows; /* NULL: they lie at data */
    void *user;
    const float *importance; /* NULL, or a weight for each column, once or for each of `experts` parts of the rows */
    int64_t experts;
} model_item;

/* Writes one item's data, converted on the way. QN_CANCELLED after Ctrl-C. `done` of `total` bytes are counted for the progress
 * line. */
qn_status model_write(qn_writer *writer, qn_pool *pool, const model_item *item, uint64_t *done, uint64_t total, qn_error *error);

#endif
