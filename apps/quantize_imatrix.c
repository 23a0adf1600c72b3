/* Importance matrices as llama.cpp writes them: a GGUF file in which NAME.in_sum2 holds, for each column of the tensor NAME, the sum of
 * the squares of what went into it, and NAME.counts how many were summed (for each expert). */
#include <math.h>

#include "quantize.h"

struct quantize_matrix {
    qn_file *file;
    int64_t count;
    float *weights; /* of the tensor last asked for */
    size_t room;
};

static int has_text(const qn_file *file, const char *key, const char *text) {
    qn_file_value v;
    return qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, key), &v) == QN_OK && v.type == QN_KEY_STRING &&
           v.bytes == strlen(text) && memcmp(v.text, text, v.bytes) == 0;
}

quantize_matrix *quantize_matrix_open(const char *path, int no_map, qn_error *error) {
    quantize_matrix *m = calloc(1, sizeof *m);
    qn_file_tensor t;
    if (!m) {
        qn_error_set(error, QN_NO_MEMORY, "%s: no memory", path);
        return NULL;
    }
    if (model_open_file(path, no_map, &m->file, error) != QN_OK) {
        quantize_matrix_close(m);
        return NULL;
    }
    for (int64_t i = 0; qn_file_entry(m->file, i, &t) == QN_OK; i++) {
        size_t n = strlen(t.name);
        m->count += n > 8 && strcmp(t.name + n - 8, ".in_sum2") == 0;
    }
    if (has_text(m->file, "general.type", "imatrix") && m->count) return m;
    qn_error_set(error, QN_FORMAT,
                 "%s: this is no importance matrix: its general.type is not 'imatrix', or it has no .in_sum2 tensors", path);
    quantize_matrix_close(m);
    return NULL;
}

void quantize_matrix_close(quantize_matrix *m) {
    if (!m) return;
    qn_file_close(m->file);
    free(m->weights);
    free(m);
}

int64_t quantize_matrix_count(const quantize_matrix *m) { return m->count; }

int64_t quantize_matrix_chunks(const quantize_matrix *m) {
    qn_file_value v;
    return qn_file_key(m->file, qn_file_find(m->file, QN_FILE_KEYS, "imatrix.chunk_count"), &v) == QN_OK ? v.integer : 0;
}

static int find_part(const quantize_matrix *m, const char *name, const char *part, qn_file_tensor *t) {
    char full[1024];
    if (snprintf(full, sizeof full, "%s%s", name, part) >= (int)sizeof full) return 0;
    return qn_file_entry(m->file, qn_file_find(m->file, QN_FILE_TENSORS, full), t) == QN_OK && t->tensor.dtype == QN_DTYPE_F32;
}

/* Means of squares; an expert that nothing went into counts everywhere alike. */
static void fill(float *to, const float *sums, const float *counts, int64_t columns, int64_t experts) {
    for (int64_t e = 0; e < experts; e++)
        for (int64_t c = 0; c < columns; c++) to[e * columns + c] = counts[e] > 0 ? sums[e * columns + c] / counts[e] : 1.0f;
}

const float *quantize_matrix_find(quantize_matrix *m, const char *name, const qn_tensor *tensor, int64_t *experts,
                                  qn_error *error) {
    qn_file_tensor sums, counts;
    int64_t columns = tensor->shape[tensor->rank - 1], parts = tensor->rank > 2 ? tensor->shape[tensor->rank - 3] : 1;
    if (!find_part(m, name, ".in_sum2", &sums) || !find_part(m, name, ".counts", &counts)) return NULL;
    int64_t n = qn_tensor_count(&sums.tensor);
    *experts = qn_tensor_count(&counts.tensor);
    if ((*experts != 1 && *experts != parts) || n != columns * *experts) {
        qn_error_set(error, QN_FORMAT,
                     "the importance matrix has %lld weights in %lld parts for tensor '%s', which has %lld columns in %lld",
                     (long long)n, (long long)*experts, name, (long long)columns, (long long)parts);
        return NULL;
    }
    if ((size_t)n > m->room) {
        free(m->weights);
        m->weights = malloc((size_t)n * sizeof *m->weights);
        m->room = m->weights ? (size_t)n : 0;
    }
    if (!m->weights) {
        qn_error_set(error, QN_NO_MEMORY, "no memory for the importance of tensor '%s'", name);
        return NULL;
    }
    fill(m->weights, sums.tensor.data, counts.tensor.data, columns, *experts);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(m->weights[i]) || m->weights[i] < 0) {
            qn_error_set(error, QN_FORMAT, "the importance of tensor '%s' has a weight that is negative or no number", name);
            return NULL;
        }
    return m->weights;
}
