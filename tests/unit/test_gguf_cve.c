/* One test for each published class of vulnerability in readers of model files, each made again from its description. The file must
 * be refused with a sentence, and refusing it must cost no memory that its few bytes do not justify. */
#include "format_help.h"

#include <sys/resource.h>

/* A limit with room for the list of files and one key, but not for a table or a name: only a reader that checks before it allocates
 * says FORMAT here. */
enum { LITTLE = 4096 };

static void refuse_without_memory(const made *m, const char *words) {
    qn_file *file;
    qn_error error;
    void *copy;
    qn_status got = open_bytes(m->at, m->n, LITTLE, &file, &copy, &error);
    if (got != QN_FORMAT || !strstr(error.text, words))
        fail_msg("expected '%s', got %s: %s", words, qn_status_name(got), error.text);
    free(copy);
    refuse(m, QN_FORMAT, words);
}

static const uint64_t huge[] = {UINT64_MAX,       UINT64_MAX / 2, 1ull << 63, 1ull << 60,
                                (1ull << 61) + 1, 1ull << 32,     1ull << 31, 100000};
#define EACH_HUGE for (size_t h = 0; h < sizeof huge / sizeof *huge; h++)

/* CVE-2024-21802, -21825, -21836, -23496, -23605: a count or length times a size wraps, and a small buffer overflows. */
static void cve_2024_21802_counts_of_keys_and_tensors(void **state) {
    (void)state;
    static made m;
    EACH_HUGE {
        put_head(&m, 3, 0, huge[h]);
        put_zeros(&m, 176);
        refuse_without_memory(&m, "keys are claimed");
        put_head(&m, 3, huge[h], 0);
        put_zeros(&m, 176);
        refuse_without_memory(&m, "tensors are claimed");
    }
}

static void cve_2024_21825_lengths_of_strings(void **state) {
    (void)state;
    static made m;
    EACH_HUGE {
        put_head(&m, 3, 0, 1);
        put_number(&m, huge[h], 8);
        put_zeros(&m, 100);
        refuse_without_memory(&m, "its name claims");
        put_head(&m, 3, 0, 1);
        put_text(&m, "k");
        put_number(&m, QN_KEY_STRING, 4);
        put_number(&m, huge[h], 8);
        put_zeros(&m, 100);
        refuse(&m, QN_FORMAT, "key 'k': a string is longer than the rest of the file");
        put_head(&m, 3, 1, 0);
        put_number(&m, huge[h], 8);
        put_zeros(&m, 100);
        refuse_without_memory(&m, "tensor 0: its name claims");
    }
}

static void cve_2024_21836_counts_of_items(void **state) {
    (void)state;
    static made m;
    for (uint32_t type = 0; type <= QN_KEY_F64; type++) EACH_HUGE {
            put_head(&m, 3, 0, 1);
            put_array_head(&m, "k", type, huge[h]);
            put_zeros(&m, 100);
            refuse(&m, QN_FORMAT, "key 'k': more items than the file has bytes for");
        }
}

/* CVE-2024-32878: an array of strings that fails in its middle left pointers nobody had set. */
static void cve_2024_32878_string_array_that_breaks_in_the_middle(void **state) {
    (void)state;
    static made m;
    put_head(&m, 3, 0, 1);
    put_array_head(&m, "k", QN_KEY_STRING, 3);
    put_text(&m, "one");
    put_number(&m, 1000, 8);
    put_text(&m, "three");
    refuse(&m, QN_FORMAT, "key 'k': a string is longer than the rest of the file (1000, at most 13)");
}

/* CVE-2024-42477: a type number from outside indexes a table. */
static void cve_2024_42477_type_out_of_its_table(void **state) {
    (void)state;
    static made m;
    static const uint32_t types[] = {255, 256, 0x7fffffff, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        put_head(&m, 3, 1, 0);
        put_tensor(&m, "t", 32, 1, types[i], 0);
        put_zeros(&m, 100);
        refuse(&m, QN_UNSUPPORTED, "is unknown or retired");
        put_head(&m, 3, 0, 1);
        put_key(&m, "k", (qn_key_type)types[i], 0, 8);
        refuse(&m, QN_FORMAT, "the value's type is unknown");
    }
}

/* CVE-2025-49847 and -52566: a length cut to 32 signed bits. A token longer than the file is no token. */
static void cve_2025_49847_token_longer_than_31_bits(void **state) {
    (void)state;
    static made m;
    put_head(&m, 3, 0, 1);
    put_array_head(&m, "tokenizer.ggml.tokens", QN_KEY_STRING, 1);
    put_number(&m, (1ull << 32) + 3, 8); /* 3, to whoever looks at 32 bits */
    put_bytes(&m, "abc", 3);
    refuse(&m, QN_FORMAT, "key 'tokenizer.ggml.tokens': a string is longer than the rest of the file (4294967299, at most 3)");
}

/* CVE-2025-53630 and its bypass CVE-2026-27940: sizes whose sum, or whose sum with padding, wraps. */
static void cve_2025_53630_sizes_whose_sum_wraps(void **state) {
    (void)state;
    static made m;
    static const uint64_t extents[][2] = {{1ull << 61, 1}, {(1ull << 61) - 8, 1}, {1ull << 31, 1ull << 30}, {INT64_MAX / 4, 1}};
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        put_head(&m, 3, 2, 0);
        put_tensor(&m, "a", extents[i][0], extents[i][1], 0, 0);
        put_tensor(&m, "b", extents[i][0], extents[i][1], 0, UINT64_MAX - 31);
        put_zeros(&m, 100);
        refuse(&m, QN_FORMAT, "tensor 'a': the ");
    }
    static const uint64_t offsets[] = {UINT64_MAX - 31, 1ull << 63, INT64_MAX - 31, (UINT64_MAX - 31) - 96, 1ull << 40};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        put_head(&m, 3, 1, 0);
        put_tensor(&m, "a", 8, 1, 0, offsets[i] & ~31ull);
        put_zeros(&m, 100);
        refuse(&m, QN_FORMAT, "tensor 'a': the file is cut short");
    }
}

/* CVE-2026-33298: the byte size of a quantised tensor wraps where its number of elements does not, or the other way round. */
static void cve_2026_33298_quantised_size_that_wraps(void **state) {
    (void)state;
    static made m;
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *info = qn_dtype_describe((qn_dtype)d);
        if (info->gguf < 0) continue;
        uint64_t block = (uint64_t)info->block;
        static const uint64_t rows[] = {1ull << 58, 1ull << 56, 1ull << 50, (1ull << 62) - 1};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            put_head(&m, 3, 1, 0);
            put_tensor(&m, "t", block, rows[i], (uint32_t)info->gguf, 0);
            put_zeros(&m, 200);
            refuse(&m, QN_FORMAT, "tensor 't': the ");
            put_head(&m, 3, 1, 0);
            put_tensor(&m, "t", block << 20, rows[i] >> 4, (uint32_t)info->gguf, 0);
            put_zeros(&m, 200);
            refuse(&m, QN_FORMAT, "tensor 't': the ");
        }
    }
}

/* llama.cpp#24997, #26318: an alignment without upper bound, so that rounding up wraps. */
static void alignment_that_makes_padding_wrap(void **state) {
    (void)state;
    static made m;
    static const uint32_t wrong[] = {1u << 31, 1u << 30, UINT32_MAX, 0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_head(&m, 3, 1, 1);
        put_key(&m, "general.alignment", QN_KEY_U32, wrong[i], 4);
        put_tensor(&m, "t", 8, 1, 0, 0);
        put_zeros(&m, 100);
        refuse(&m, QN_FORMAT, "key 'general.alignment'");
    }
    put_head(&m, 3, 1, 1); /* the largest that is allowed puts the data far behind the end */
    put_key(&m, "general.alignment", QN_KEY_U32, 1u << 21, 4);
    put_tensor(&m, "t", 8, 1, 0, 0);
    put_zeros(&m, 100);
    refuse(&m, QN_FORMAT, "the file is cut short");
}

/* CVE-2026-7482: a tensor that reaches past the end of the file, read out of whatever lies there. */
static void cve_2026_7482_tensor_past_the_end(void **state) {
    (void)state;
    static made m;
    for (size_t missing = 1; missing < 33; missing++) {
        put_head(&m, 3, 1, 0);
        put_tensor(&m, "t", 8, 1, 0, 0);
        pad_to(&m, 32);
        put_zeros(&m, 32 - missing);
        refuse(&m, QN_FORMAT, "tensor 't': the file is cut short");
    }
}

/* CVE-2025-66960, ollama#17042, candle#3533: memory without bound from a tiny file. */
static void cve_2025_66960_memory_from_a_tiny_file(void **state) {
    (void)state;
    static made m;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int round = 0; round < 100; round++) EACH_HUGE {
            qn_file *file;
            qn_error error;
            void *copy;
            put_head(&m, 3, huge[h], huge[h]);
            put_array_head(&m, "k", QN_KEY_STRING, huge[h]);
            put_zeros(&m, 200 - m.n);
            assert_int_equal(open_bytes(m.at, m.n, 0, &file, &copy, &error), QN_FORMAT);
            free(copy);
        }
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024); /* KiB */
    put_head(&m, 3, 0, 1);
    put_array_head(&m, "k", QN_KEY_ARRAY, 14); /* as many empty arrays as fit: what they cost is bounded by the file */
    for (int i = 0; i < 14; i++) {
        put_number(&m, QN_KEY_U8, 4);
        put_number(&m, 0, 8);
    }
    void *copy;
    qn_file *file = accept(&m, &copy);
    qn_file_info info = {.size = sizeof info};
    assert_int_equal(qn_file_describe(file, &info), QN_OK);
    assert_true(info.memory <= 256 * 1024 + 24 * info.bytes);
    qn_file_close(file);
    free(copy);
}

/* candle#3713 and #3876: dims of zero divide by zero; a product of dims overflows. */
static void zero_and_endless_dims(void **state) {
    (void)state;
    static made m;
    static const uint64_t dims[][4] = {{0, 0, 0, 0}, {0, 1ull << 62, 1ull << 62, 4}, {32, 0, 1ull << 40, 1ull << 40}};
    void *copy;
    for (int d = 1; d < QN_DTYPE_COUNT; d++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            qn_error error;
            qn_file *file;
            if (qn_dtype_describe((qn_dtype)d)->gguf < 0) continue;
            put_head(&m, 3, 1, 0);
            put_text(&m, "t");
            put_number(&m, 4, 4);
            for (int k = 0; k < 4; k++) put_number(&m, dims[i][k], 8);
            put_number(&m, (uint64_t)qn_dtype_describe((qn_dtype)d)->gguf, 4);
            put_number(&m, 0, 8);
            if (open_bytes(m.at, m.n, 0, &file, &copy, &error) == QN_OK) {
                qn_file_tensor t;
                assert_int_equal(qn_file_entry(file, 0, &t), QN_OK);
                assert_int_equal(t.bytes, 0);
                qn_file_close(file);
            } else {
                assert_int_equal(error.status, QN_FORMAT);
            }
            free(copy);
        }
}

/* ncnn's blob counts: negative numbers that a cast turns into large ones. */
static void negative_dims(void **state) {
    (void)state;
    static made m;
    put_head(&m, 3, 1, 0);
    put_tensor(&m, "t", (uint64_t)-32, (uint64_t)-1, 0, 0);
    put_zeros(&m, 100);
    refuse(&m, QN_FORMAT, "tensor 't': dim 0 is 18446744073709551584, past 63 bits");
}

/* antirez/gguf-tools#25: more dims than the record has room for, guarded by an assert that a release build drops. */
static void more_dims_than_there_is_room(void **state) {
    (void)state;
    static made m;
    static const uint32_t ranks[] = {9, 16, 255, 0x80000000u, UINT32_MAX};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        put_head(&m, 3, 1, 0);
        put_text(&m, "t");
        put_number(&m, ranks[i], 4);
        put_zeros(&m, 300);
        refuse(&m, QN_FORMAT, "at most 8 are possible");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cve_2024_21802_counts_of_keys_and_tensors),
        cmocka_unit_test(cve_2024_21825_lengths_of_strings),
        cmocka_unit_test(cve_2024_21836_counts_of_items),
        cmocka_unit_test(cve_2024_32878_string_array_that_breaks_in_the_middle),
        cmocka_unit_test(cve_2024_42477_type_out_of_its_table),
        cmocka_unit_test(cve_2025_49847_token_longer_than_31_bits),
        cmocka_unit_test(cve_2025_53630_sizes_whose_sum_wraps),
        cmocka_unit_test(cve_2026_33298_quantised_size_that_wraps),
        cmocka_unit_test(alignment_that_makes_padding_wrap),
        cmocka_unit_test(cve_2026_7482_tensor_past_the_end),
        cmocka_unit_test(cve_2025_66960_memory_from_a_tiny_file),
        cmocka_unit_test(zero_and_endless_dims),
        cmocka_unit_test(negative_dims),
        cmocka_unit_test(more_dims_than_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
