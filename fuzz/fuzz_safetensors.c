/* libFuzzer: any bytes as safetensors or as a JSON document. It is opened, or refused with a sentence; what was opened is walked to its
 * last item and its last byte, and has cost no more memory than its size justifies. */
#include "fuzz_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    qn_file *file;
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) return 0; /* has a fuzzer of its own */
    char *exact = copy_exact(data, size);
    qn_status status = open_memory(exact, size, &file);
    PROMISE(status == QN_OK || status == QN_FORMAT || status == QN_UNSUPPORTED || status == QN_NO_MEMORY);
    if (status == QN_OK) {
        walk(file, size);
        qn_file_close(file);
    }
    free(exact);
    return 0;
}
