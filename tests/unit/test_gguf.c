/* The GGUF reader: every kind of value, tensors of every type, and each thing that can be wrong with its own sentence. */
#include "format_help.h"

#include <math.h>

static uint64_t bits_f64(double v) {
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static uint64_t bits_f32(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static qn_file_value value_of(const qn_file *file, const char *name) {
    qn_file_value v;
    assert_int_equal(qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, name), &v), QN_OK);
    assert_string_equal(v.name, name);
    return v;
}

/* ---- What is right */

static void put_all_kinds(made *m) {
    put_key(m, "u8", QN_KEY_U8, 250, 1);
    put_key(m, "i8", QN_KEY_I8, (uint8_t)-5, 1);
    put_key(m, "u16", QN_KEY_U16, 65000, 2);
    put_key(m, "i16", QN_KEY_I16, (uint16_t)-300, 2);
    put_key(m, "u32", QN_KEY_U32, 4000000000u, 4);
    put_key(m, "i32", QN_KEY_I32, (uint32_t)-70000, 4);
    put_key(m, "f32", QN_KEY_F32, bits_f32(1.5f), 4);
    put_key(m, "bool", QN_KEY_BOOL, 1, 1);
    put_key(m, "u64", QN_KEY_U64, UINT64_MAX, 8);
    put_key(m, "i64", QN_KEY_I64, (uint64_t)INT64_MIN, 8);
    put_key(m, "f64", QN_KEY_F64, bits_f64(-1e300), 8);
    put_string_key(m, "string", "two\nwords");
}

static void keys_of_every_kind_have_their_values(void **state) {
    (void)state;
    static made m;
    void *copy;
    put_head(&m, 3, 0, 12);
    put_all_kinds(&m);
    qn_file *f = accept(&m, &copy);
    static const struct {
        const char *name;
        qn_key_type type;
        int64_t integer;
        double number;
    } want[] = {{"u8", QN_KEY_U8, 250, 250},
                {"i8", QN_KEY_I8, -5, -5},
                {"u16", QN_KEY_U16, 65000, 65000},
                {"i16", QN_KEY_I16, -300, -300},
                {"u32", QN_KEY_U32, 4000000000, 4e9},
                {"i32", QN_KEY_I32, -70000, -70000},
                {"f32", QN_KEY_F32, 1, 1.5},
                {"bool", QN_KEY_BOOL, 1, 1},
                {"u64", QN_KEY_U64, -1, 18446744073709551615.0},
                {"i64", QN_KEY_I64, INT64_MIN, -9223372036854775808.0},
                {"f64", QN_KEY_F64, INT64_MIN, -1e300}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        qn_file_value v = value_of(f, want[i].name);
        assert_int_equal(v.type, want[i].type);
        assert_true(v.integer == want[i].integer);
        assert_true(v.number == want[i].number);
        qn_file_value same;
        assert_int_equal(qn_file_key(f, (int64_t)i, &same), QN_OK); /* numbers are the order of the file */
        assert_string_equal(same.name, want[i].name);
    }
    qn_file_value text = value_of(f, "string");
    assert_int_equal(text.type, QN_KEY_STRING);
    assert_int_equal(text.bytes, 9);
    assert_memory_equal(text.text, "two\nwords", 9);
    qn_file_value none;
    assert_int_equal(qn_file_find(f, QN_FILE_KEYS, "nothing"), -1);
    assert_int_equal(qn_file_key(f, -1, &none), QN_ARGUMENT);
    assert_int_equal(qn_file_key(f, 12, &none), QN_ARGUMENT);
    qn_file_close(f);
    free(copy);
}

static void put_arrays(made *m) {
    put_head(m, 2, 0, 4);
    put_array_head(m, "numbers", QN_KEY_I16, 3);
    for (int i = 0; i < 3; i++) put_number(m, (uint16_t)(i - 1), 2);
    put_array_head(m, "words", QN_KEY_STRING, 4);
    put_text(m, "a");
    put_text(m, "");
    put_text(m, "ccc");
    put_text(m, "dd");
    put_array_head(m, "nested", QN_KEY_ARRAY, 2);
    put_number(m, QN_KEY_STRING, 4);
    put_number(m, 2, 8);
    put_text(m, "x");
    put_text(m, "yy");
    put_number(m, QN_KEY_U8, 4);
    put_number(m, 0, 8);
    put_array_head(m, "empty", QN_KEY_F32, 0);
}

static void arrays_give_their_items_in_any_order(void **state) {
    (void)state;
    static made m;
    void *copy;
    static const char *const words[] = {"a", "", "ccc", "dd"};
    static const int order[] = {0, 1, 2, 3, 1, 0, 3, 2, 2};
    put_arrays(&m);
    qn_file *f = accept(&m, &copy);
    qn_file_value a = value_of(f, "numbers"), item;
    assert_int_equal(a.count, 3);
    assert_int_equal(a.item, QN_KEY_I16);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(qn_file_item(&a, (uint64_t)i, &item), QN_OK);
        assert_int_equal(item.integer, i - 1);
    }
    assert_int_equal(qn_file_item(&a, 3, &item), QN_ARGUMENT);
    a = value_of(f, "words");
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        assert_int_equal(qn_file_item(&a, (uint64_t)order[i], &item), QN_OK);
        assert_int_equal(item.bytes, strlen(words[order[i]]));
        assert_memory_equal(item.text, words[order[i]], item.bytes);
        assert_memory_equal(m.at + item.offset + 8, item.text, item.bytes); /* the offset is the file's */
    }
    a = value_of(f, "nested");
    qn_file_value inner;
    assert_int_equal(qn_file_item(&a, 0, &inner), QN_OK);
    assert_int_equal(inner.count, 2);
    assert_int_equal(qn_file_item(&inner, 1, &item), QN_OK);
    assert_memory_equal(item.text, "yy", 2);
    assert_int_equal(qn_file_item(&a, 1, &inner), QN_OK);
    assert_int_equal(inner.count, 0);
    assert_int_equal(qn_file_item(&inner, 0, &item), QN_ARGUMENT);
    assert_int_equal(value_of(f, "empty").count, 0);
    qn_file_close(f);
    free(copy);
}

static void tensors_have_reversed_dims_and_their_bytes(void **state) {
    (void)state;
    static made m;
    void *copy;
    put_head(&m, 3, 4, 1);
    put_key(&m, "general.alignment", QN_KEY_U32, 64, 4);
    put_tensor(&m, "later", 4, 2, 0, 64);
    put_tensor(&m, "first", 32, 3, 2, 0); /* q4_0: 54 bytes */
    put_tensor(&m, "none", 0, 7, 0, 0);
    put_text(&m, "scalar");
    put_number(&m, 0, 4);
    put_number(&m, 24, 4); /* i8 */
    put_number(&m, 128, 8);
    pad_to(&m, 64);
    size_t data = m.n;
    for (int i = 0; i < 129; i++) put_number(&m, (uint64_t)i, 1);
    qn_file *f = accept(&m, &copy);
    qn_file_tensor t;
    qn_file_info info = {.size = sizeof info};
    assert_int_equal(qn_file_describe(f, &info), QN_OK);
    assert_int_equal(info.alignment, 64);
    assert_int_equal(info.n_tensors, 4);
    assert_int_equal(info.tensor_bytes, 32 + 54 + 1);
    assert_int_equal(info.bytes, m.n);
    assert_int_equal(qn_file_entry(f, 0, &t), QN_OK);
    assert_string_equal(t.name, "later");
    assert_int_equal(t.tensor.rank, 2);
    assert_int_equal(t.tensor.shape[0], 2);
    assert_int_equal(t.tensor.shape[1], 4);
    assert_int_equal(t.tensor.dtype, QN_DTYPE_F32);
    assert_true(t.tensor.flags & QN_TENSOR_CONST);
    assert_int_equal(t.offset, data + 64);
    assert_memory_equal(t.tensor.data, m.at + data + 64, 32);
    assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "first"), &t), QN_OK);
    assert_int_equal(t.tensor.dtype, QN_DTYPE_Q4_0);
    assert_int_equal(t.bytes, 54);
    assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "none"), &t), QN_OK);
    assert_int_equal(t.bytes, 0);
    assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "scalar"), &t), QN_OK);
    assert_int_equal(t.tensor.rank, 1);
    assert_int_equal(t.tensor.shape[0], 1);
    assert_int_equal(*(int8_t *)t.tensor.data, -128);
    assert_int_equal(qn_file_entry(f, 4, &t), QN_ARGUMENT);
    qn_file_close(f);
    free(copy);
}

/* Every type of the table, one row of two blocks each. */
static void tensors_of_every_type_are_read(void **state) {
    (void)state;
    static made m;
    void *copy;
    uint64_t offset = 0, count = 0;
    for (int d = 1; d < QN_DTYPE_COUNT; d++) count += qn_dtype_describe((qn_dtype)d)->gguf >= 0;
    put_head(&m, 3, count, 0);
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *info = qn_dtype_describe((qn_dtype)d);
        if (info->gguf < 0) continue;
        put_tensor(&m, info->name, 2 * (uint64_t)info->block, 1, (uint32_t)info->gguf, offset);
        offset += (2 * (uint64_t)info->bytes + 31) / 32 * 32;
    }
    pad_to(&m, 32);
    put_zeros(&m, offset);
    qn_file *f = accept(&m, &copy);
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *info = qn_dtype_describe((qn_dtype)d);
        qn_file_tensor t;
        if (info->gguf < 0) continue;
        assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, info->name), &t), QN_OK);
        assert_int_equal(t.tensor.dtype, d);
        assert_int_equal(t.bytes, 2 * info->bytes);
    }
    qn_file_close(f);
    free(copy);
}

/* ---- What is wrong, each with its own sentence */

static void heads_that_are_wrong_are_named(void **state) {
    (void)state;
    static made m;
    put_head(&m, 3, 0, 0);
    memcpy(m.at, "GGML", 4);
    refuse(&m, QN_FORMAT, "begins with the bytes 47 47 4d 4c");
    memcpy(m.at, "tjgg", 4);
    refuse(&m, QN_UNSUPPORTED, "GGJT");
    put_head(&m, 1, 0, 0);
    refuse(&m, QN_UNSUPPORTED, "GGUF version 1");
    put_head(&m, 4, 0, 0);
    refuse(&m, QN_UNSUPPORTED, "GGUF version 4");
    put_head(&m, 0x03000000, 0, 0);
    refuse(&m, QN_UNSUPPORTED, "big-endian");
    put_head(&m, 3, 0, 0);
    m.n = 23;
    refuse(&m, QN_FORMAT, "byte 0: header: the file ends here; 1 bytes more");
    m.n = 0;
    refuse(&m, QN_FORMAT, "empty");
    put_bytes(&m, "version https://git-lfs.github.com/spec/v1\n", 43);
    refuse(&m, QN_UNSUPPORTED, "Git LFS");
}

static void keys_that_are_wrong_are_named(void **state) {
    (void)state;
    static made m;
    put_head(&m, 3, 0, 2);
    put_key(&m, "twice", QN_KEY_U8, 1, 1);
    put_key(&m, "twice", QN_KEY_U8, 2, 1);
    refuse(&m, QN_FORMAT, "key 'twice' is there twice");
    put_head(&m, 3, 0, 1);
    put_key(&m, "flag", QN_KEY_BOOL, 7, 1);
    refuse(&m, QN_FORMAT, "byte 40: key 'flag': a bool is neither 0 nor 1 (7");
    put_head(&m, 3, 0, 1);
    put_key(&m, "odd", (qn_key_type)13, 7, 4);
    refuse(&m, QN_FORMAT, "key 'odd': the value's type is unknown (13");
    put_head(&m, 3, 0, 1);
    put_array_head(&m, "odd", 77, 1);
    put_zeros(&m, 8);
    refuse(&m, QN_FORMAT, "key 'odd': the items' type is unknown (77");
    put_head(&m, 3, 0, 1);
    put_key(&m, "", QN_KEY_U8, 1, 1);
    put_zeros(&m, 8);
    refuse(&m, QN_FORMAT, "the name is empty");
    put_head(&m, 3, 0, 1);
    put_number(&m, 3, 8);
    put_bytes(&m, "a\0b", 3);
    put_number(&m, QN_KEY_U8, 4);
    put_number(&m, 1, 1);
    refuse(&m, QN_FORMAT, "zero byte");
    put_head(&m, 3, 0, 1);
    put_string_key(&m, "text", "abc");
    m.n -= 1;
    refuse(&m, QN_FORMAT, "a string is longer than the rest of the file (3, at most 2)");
    put_head(&m, 3, 0, 1);
    put_key(&m, "\033[2J", QN_KEY_BOOL, 7, 1); /* and no name may write to the reader's terminal */
    refuse(&m, QN_FORMAT, "key '?[2J'");
}

static void nested_arrays_are_bounded(void **state) {
    (void)state;
    static made m;
    void *copy;
    for (int depth = 7; depth < 10; depth++) { /* arrays inside the first */
        put_head(&m, 3, 0, 1);
        put_array_head(&m, "deep", QN_KEY_ARRAY, 1);
        for (int i = 0; i < depth; i++) {
            put_number(&m, i + 1 == depth ? QN_KEY_U8 : QN_KEY_ARRAY, 4);
            put_number(&m, 1, 8);
        }
        put_number(&m, 5, 1);
        if (depth > 7) {
            refuse(&m, QN_FORMAT, "nested too deep");
        } else {
            qn_file *f = accept(&m, &copy);
            qn_file_close(f);
            free(copy);
        }
    }
}

static void alignments_that_are_wrong_are_named(void **state) {
    (void)state;
    static made m;
    static const uint64_t wrong[] = {0, 1, 4, 12, 33, 1u << 22, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_head(&m, 3, 0, 1);
        put_key(&m, "general.alignment", QN_KEY_U32, wrong[i], 4);
        refuse(&m, QN_FORMAT, "is not a power of two from 8 to 2097152");
    }
    put_head(&m, 3, 0, 1);
    put_key(&m, "general.alignment", QN_KEY_U64, 32, 8);
    refuse(&m, QN_FORMAT, "key 'general.alignment': its type is 10, not u32");
}

static void tensors_that_are_wrong_are_named(void **state) {
    (void)state;
    static made m;
    put_head(&m, 3, 1, 0);
    put_tensor(&m, "t", 8, 2, 0, 32);
    pad_to(&m, 32);
    put_zeros(&m, 95);
    refuse(&m, QN_FORMAT, "tensor 't': the file is cut short: 64 bytes from byte 96 + 32 on");
    put_head(&m, 3, 1, 0);
    put_tensor(&m, "t", 8, 2, 0, 16);
    put_zeros(&m, 200);
    refuse(&m, QN_FORMAT, "tensor 't': its offset 16 is not a multiple of the alignment 32");
    put_head(&m, 3, 1, 0);
    put_tensor(&m, "t", 33, 2, 2, 0);
    put_zeros(&m, 200);
    refuse(&m, QN_FORMAT, "a row of 33 elements is not a whole number of q4_0 blocks, which have 32");
    static const uint32_t retired[] = {4, 5, 31, 33, 36, 37, 38, 43, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof retired / sizeof *retired; i++) {
        char words[64];
        put_head(&m, 3, 1, 0);
        put_tensor(&m, "t", 32, 2, retired[i], 0);
        put_zeros(&m, 200);
        snprintf(words, sizeof words, "tensor 't': its type %u is unknown or retired", retired[i]);
        refuse(&m, QN_UNSUPPORTED, words);
    }
    put_head(&m, 3, 2, 0);
    put_tensor(&m, "t", 8, 1, 0, 0);
    put_tensor(&m, "t", 8, 1, 0, 32);
    pad_to(&m, 32);
    put_zeros(&m, 64);
    refuse(&m, QN_FORMAT, "tensor 't' is there twice");
    put_head(&m, 3, 3, 0);
    put_tensor(&m, "a", 8, 1, 0, 64);
    put_tensor(&m, "b", 9, 1, 0, 0);
    put_tensor(&m, "c", 8, 1, 0, 32);
    pad_to(&m, 32);
    put_zeros(&m, 96);
    refuse(&m, QN_FORMAT, "tensor 'c' overlaps tensor 'b'");
}

/* Every prefix of a good file is refused or, behind its last byte of data, is the file. No byte changed may do harm. */
static void cut_and_changed_files_do_no_harm(void **state) {
    (void)state;
    static made m;
    qn_file *f;
    qn_error error;
    void *copy;
    put_head(&m, 3, 2, 16);
    put_all_kinds(&m);
    size_t from = m.n;
    static made arrays;
    put_arrays(&arrays);
    put_bytes(&m, arrays.at + 24, arrays.n - 24);
    assert_true(m.n > from);
    put_tensor(&m, "a", 8, 2, 0, 0);
    put_tensor(&m, "b", 32, 2, 8, 64);
    pad_to(&m, 32);
    put_zeros(&m, 64 + 68);
    for (size_t n = 0; n < m.n; n++) {
        assert_int_not_equal(open_bytes(m.at, n, 0, &f, &copy, &error), QN_OK);
        assert_true(strlen(error.text) > 8);
        free(copy);
    }
    for (size_t i = 0; i < m.n; i++)
        for (int change = 0; change < 4; change++) {
            static const uint8_t flip[] = {0xff, 0x80, 0x01, 0x10};
            made other = m;
            other.at[i] ^= flip[change];
            if (open_bytes(other.at, other.n, 0, &f, &copy, &error) == QN_OK) qn_file_close(f);
            free(copy);
        }
}

static void calls_that_are_wrong_are_refused(void **state) {
    (void)state;
    qn_file *f = (qn_file *)state;
    qn_error error;
    qn_file_info info = {.size = 1};
    qn_file_options options = {.size = 4};
    assert_int_equal(qn_file_open(NULL, NULL, &f, &error), QN_ARGUMENT);
    assert_int_equal(qn_file_open("x", &options, &f, &error), QN_ARGUMENT);
    assert_int_equal(qn_file_open("/no/such/file", NULL, &f, NULL), QN_IO);
    assert_null(f);
    assert_int_equal(qn_file_open("/dev/null", NULL, &f, &error), QN_IO);
    assert_non_null(strstr(error.text, "/dev/null: this is not a regular file"));
    assert_int_equal(qn_file_open("/", NULL, &f, &error), QN_IO);
    assert_non_null(strstr(error.text, "holds neither"));
    assert_int_equal(qn_file_describe(NULL, &info), QN_ARGUMENT);
    assert_int_equal(qn_file_find(NULL, QN_FILE_KEYS, "x"), -1);
    qn_file_close(NULL);
}

/* The same file mapped, read and in memory. */
static void all_ways_in_give_the_same(void **state) {
    (void)state;
    static made m;
    char folder[300], path[600];
    void *copy = NULL;
    put_head(&m, 3, 1, 1);
    put_string_key(&m, "k", "v");
    put_tensor(&m, "t", 8, 1, 0, 0);
    pad_to(&m, 32);
    for (int i = 0; i < 32; i++) put_number(&m, (uint64_t)i * 7, 1);
    write_file(make_folder(folder, sizeof folder), "m.gguf", m.at, m.n);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    for (int way = 0; way < 3; way++) {
        qn_file_options options = qn_file_options_default();
        qn_file_info info = {.size = sizeof info};
        qn_file_tensor t;
        qn_file *f;
        qn_error error;
        volatile int stop = 1;
        options.flags = way == 1 ? QN_FILE_NO_MAP : 0;
        if (way < 2) assert_int_equal(qn_file_open(path, &options, &f, &error), QN_OK);
        else f = accept(&m, &copy);
        assert_int_equal(qn_file_describe(f, &info), QN_OK);
        assert_int_equal(info.mapped, way == 0);
        assert_int_equal(qn_file_entry(f, 0, &t), QN_OK);
        assert_memory_equal(t.tensor.data, m.at + m.n - 32, 32);
        assert_int_equal((uintptr_t)t.tensor.data % 8, 0);
        qn_file_close(f);
        options.cancel = &stop;
        if (way == 1) assert_int_equal(qn_file_open(path, &options, &f, &error), QN_CANCELLED);
    }
    free(copy);
    unlink(path);
    rmdir(folder);
}

/* Files nobody here wrote. */
static void given_files_open(void **state) {
    (void)state;
    static const char *const given[] = {"lm/stories260K/stories260K-q5_1.gguf", "vocab/ggml-vocab-falcon.gguf",
                                        "zoo/gpt-oss-moe.gguf"};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        char path[300];
        qn_file *f;
        qn_error error;
        snprintf(path, sizeof path, "../shared/data/%s", given[i]);
        if (access(path, R_OK) != 0) {
            print_message("skipped: no %s beside this checkout\n", path);
            continue;
        }
        if (qn_file_open(path, NULL, &f, &error) != QN_OK) fail_msg("%s", error.text);
        assert_true(qn_file_find(f, QN_FILE_KEYS, "general.architecture") >= 0);
        qn_file_close(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_every_kind_have_their_values),
        cmocka_unit_test(arrays_give_their_items_in_any_order),
        cmocka_unit_test(tensors_have_reversed_dims_and_their_bytes),
        cmocka_unit_test(tensors_of_every_type_are_read),
        cmocka_unit_test(heads_that_are_wrong_are_named),
        cmocka_unit_test(keys_that_are_wrong_are_named),
        cmocka_unit_test(nested_arrays_are_bounded),
        cmocka_unit_test(alignments_that_are_wrong_are_named),
        cmocka_unit_test(tensors_that_are_wrong_are_named),
        cmocka_unit_test(cut_and_changed_files_do_no_harm),
        cmocka_unit_test(calls_that_are_wrong_are_refused),
        cmocka_unit_test(all_ways_in_give_the_same),
        cmocka_unit_test(given_files_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
