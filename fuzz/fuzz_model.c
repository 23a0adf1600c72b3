/* libFuzzer: any bytes as a model. It is opened, or refused with a sentence; the graph of what was opened is built, or refused as
 * well. Nothing is run: a graph that was built has passed the guards of all its ops. */
#include <stdio.h>
#include <stdlib.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROMISE(condition)                                                      \
    do {                                                                        \
        if (!(condition)) fprintf(stderr, "broken: %s\n", #condition), abort(); \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    qn_error error;
    qn_model *model;
    qn_graph *graph;
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) return 0;
    char *exact = malloc(size);
    PROMISE(exact);
    memcpy(exact, data, size);
    qn_file_options options = qn_file_options_default();
    options.data = exact;
    options.bytes = size;
    if (qn_model_open("memory", &options, &model, &error) == QN_OK) {
        const qn_tokenizer *tokenizer;
        qn_model_shape shape = {32, 32, 2, 4, QN_DTYPE_F32, QN_DTYPE_F16};
        qn_model_tokenizer(model, &tokenizer, &error);
        if (qn_model_build(model, &shape, &graph, &error) == QN_OK) qn_graph_destroy(graph);
        else PROMISE(error.text[0]);
        qn_model_close(model);
    } else {
        PROMISE(error.text[0]);
    }
    free(exact);
    return 0;
}
