/* The safetensors reader, its index of several files, and JSON documents as keys. */
#include "format_help.h"

#include <sys/stat.h>

/* Header, then data bytes that count up. */
static void make(made *m, const char *header, size_t data) {
    m->n = 0;
    put_text(m, header);
    for (size_t i = 0; i < data; i++) put_number(m, i, 1);
}

static void refuse_header(const char *header, size_t data, qn_status status, const char *words) {
    static made m;
    make(&m, header, data);
    refuse(&m, status, words);
}

#define F32_2X3 "\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]"

static void tensors_and_metadata_are_read(void **state) {
    (void)state;
    static made m;
    void *copy;
    make(&m,
         "{\"__metadata__\":{\"format\":\"pt\",\"n\\u00f6te\":\"a\\tb \\ud83d\\ude00\"},"
         "\"w\":{" F32_2X3 "}, \"odd\":{\"data_offsets\":[24,27],\"dtype\":\"U8\",\"shape\":[3]},"
         "\"half\":{\"dtype\":\"BF16\",\"extra\":{\"x\":[1,{}]},\"shape\":[],\"data_offsets\":[27,29]},"
         "\"none\":{\"dtype\":\"F64\",\"shape\":[0,5],\"data_offsets\":[29,29]}}   ",
         29);
    qn_file *f = accept(&m, &copy);
    qn_file_info info = {.size = sizeof info};
    qn_file_value v;
    qn_file_tensor t;
    assert_int_equal(qn_file_describe(f, &info), QN_OK);
    assert_int_equal(info.format, QN_FILE_SAFETENSORS);
    assert_int_equal(info.n_tensors, 4);
    assert_int_equal(qn_file_key(f, qn_file_find(f, QN_FILE_KEYS, "n\xc3\xb6te"), &v), QN_OK);
    assert_int_equal(v.bytes, 8);
    assert_memory_equal(v.text, "a\tb \xf0\x9f\x98\x80", 8);
    assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "w"), &t), QN_OK);
    assert_int_equal(t.tensor.dtype, QN_DTYPE_F32);
    assert_int_equal(t.tensor.shape[0], 2);
    assert_int_equal(t.tensor.shape[1], 3);
    assert_memory_equal(t.tensor.data, m.at + m.n - 29, 24);
    assert_int_equal((uintptr_t)t.tensor.data % 8, 0); /* copied where the file does not align it */
    assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "half"), &t), QN_OK);
    assert_int_equal(t.tensor.rank, 1);
    assert_int_equal(t.bytes, 2);
    assert_int_equal((uintptr_t)t.tensor.data % 8, 0);
    assert_memory_equal(t.tensor.data, "\x1b\x1c", 2);
    qn_file_close(f);
    free(copy);
}

static void every_dtype_of_the_table_is_read(void **state) {
    (void)state;
    static made m;
    void *copy;
    for (int d = 1; d < QN_DTYPE_COUNT; d++) {
        const qn_dtype_info *info = qn_dtype_describe((qn_dtype)d);
        char header[200];
        qn_file_tensor t;
        if (!info->safetensors) continue;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%d]}}", info->safetensors,
                 2 * info->bytes);
        make(&m, header, 2 * (size_t)info->bytes);
        qn_file *f = accept(&m, &copy);
        assert_int_equal(qn_file_entry(f, 0, &t), QN_OK);
        assert_int_equal(t.tensor.dtype, d);
        qn_file_close(f);
        free(copy);
    }
}

static void headers_that_are_wrong_are_named(void **state) {
    (void)state;
    static made m;
    make(&m, "{}", 0);
    m.at[0] = 3; /* the header claims a byte more than there is */
    refuse(&m, QN_FORMAT, "the header claims 3 bytes, 2 are left");
    m.at[5] = 1; /* and a terabyte: then it is no safetensors at all */
    refuse(&m, QN_FORMAT, "neither GGUF nor safetensors");
    refuse_header("{\"t\":{" F32_2X3 "}", 24, QN_FORMAT, "the text ends too early");
    refuse_header("{} x", 0, QN_FORMAT, "text behind the end");
    refuse_header("{\"__metadata__\":{\"a\":1}}", 0, QN_FORMAT, "'a': metadata must be a string");
    refuse_header("{\"__metadata__\":{},\"__metadata__\":{}}", 0, QN_FORMAT, "'__metadata__': it is there twice");
    refuse_header("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, QN_FORMAT, "key 'a' is there twice");
    refuse_header("{\"a\":{" F32_2X3 "},\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[24,24]}}", 24, QN_FORMAT,
                  "tensor 'a' is there twice");
    refuse_header("{\"\":{" F32_2X3 "}}", 24, QN_FORMAT, "the name is empty");
    refuse_header("{\"a\\u0000b\":{" F32_2X3 "}}", 24, QN_FORMAT, "zero byte");
    refuse_header("{\"a\\ud800\":{" F32_2X3 "}}", 24, QN_FORMAT, "broken escape");
    refuse_header("{\"a\xff\":{" F32_2X3 "}}", 24, QN_FORMAT, "not in UTF-8");
}

static void tensors_that_are_wrong_are_named(void **state) {
    (void)state;
    refuse_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,20]}}", 24, QN_FORMAT,
                  "it has 20 bytes, its dtype and shape take 24");
    refuse_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]}}", 24, QN_FORMAT,
                  "bytes 4 to 28 are not in the file");
    refuse_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24,0]}}", 24, QN_FORMAT, "bytes 24 to 0 are not");
    refuse_header("{\"t\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, QN_UNSUPPORTED,
                  "its dtype 'F8_E4M3' is unknown");
    refuse_header("{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, QN_FORMAT, "must have dtype, shape and data_offsets");
    refuse_header("{\"t\":{\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1, QN_FORMAT, "'shape' is there twice");
    refuse_header("{\"t\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, QN_FORMAT, "not negative");
    refuse_header("{\"t\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", 1, QN_FORMAT, "whole number");
    refuse_header("{\"t\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, QN_FORMAT, "more than 8");
    refuse_header("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, QN_FORMAT, "must be two numbers");
    refuse_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,2],\"data_offsets\":[0,0]}}", 0, QN_FORMAT,
                  "overflows");
    refuse_header("{\"t\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]}}", 0, QN_FORMAT,
                  "whole number");
    refuse_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[3],"
                  "\"data_offsets\":[2,5]}}",
                  5, QN_FORMAT, "tensor 'b' overlaps tensor 'a'");
    refuse_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],"
                  "\"data_offsets\":[4,5]}}",
                  5, QN_FORMAT, "1 bytes in front of tensor 'b' belong to no tensor");
    refuse_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}", 5, QN_FORMAT,
                  "2 bytes behind the last tensor");
}

static void cut_and_changed_files_do_no_harm(void **state) {
    (void)state;
    static made m;
    qn_file *f;
    qn_error error;
    void *copy;
    make(&m,
         "{\"__metadata__\":{\"k\":\"v\\n\"},\"t\":{" F32_2X3
         "},\"u\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[24,27]}}",
         27);
    for (size_t n = 0; n < m.n; n++) {
        assert_int_not_equal(open_bytes(m.at, n, 0, &f, &copy, &error), QN_OK);
        free(copy);
    }
    for (size_t i = 0; i < m.n; i++)
        for (int change = 1; change < 256; change <<= 1) {
            made other = m;
            other.at[i] ^= (uint8_t)change;
            if (open_bytes(other.at, other.n, 0, &f, &copy, &error) == QN_OK) qn_file_close(f);
            free(copy);
        }
}

/* Many tensors that all claim the same misaligned bytes are found to overlap before anything is copied for them. */
static void overlapping_tensors_are_not_copied(void **state) {
    (void)state;
    static made m;
    char header[MADE_ROOM / 2] = "{", one[120];
    for (int i = 0; i < 300; i++) {
        snprintf(one, sizeof one, "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[20000],\"data_offsets\":[0,20000]}", i ? "," : "", i);
        strcat(header, one);
    }
    strcat(header, strlen(header) % 8 ? "}" : " }");
    make(&m, header, 20000);
    refuse(&m, QN_FORMAT, "overlaps tensor");
}

/* ---- Several files */

static char folder[300];

static const char *inside(const char *name) {
    static char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_index(const char *text) { write_file(folder, "model.safetensors.index.json", text, strlen(text)); }

static void refuse_index(const char *text, qn_status status, const char *words) {
    qn_file *f;
    qn_error error;
    write_index(text);
    qn_status got = qn_file_open(inside("model.safetensors.index.json"), NULL, &f, &error);
    if (got != status || !strstr(error.text, words))
        fail_msg("expected '%s', got %s: %s", words, qn_status_name(got), error.text);
}

static void an_index_opens_all_its_files_and_no_other(void **state) {
    (void)state;
    static made m;
    qn_file *f;
    qn_error error;
    qn_file_tensor t;
    qn_file_info info = {.size = sizeof info};
    make_folder(folder, sizeof folder);
    make(&m, "{\"__metadata__\":{\"format\":\"pt\"},\"a.w\":{" F32_2X3 "}}", 24);
    write_file(folder, "one.safetensors", m.at, m.n);
    make(&m, "{\"__metadata__\":{\"format\":\"pt\"},\"b.w\":{" F32_2X3 "}}", 24);
    write_file(folder, "two.safetensors", m.at, m.n);
    write_index("{\"metadata\":{\"total_size\":48},\"weight_map\":{\"b.w\":\"two.safetensors\",\"a.w\":\"one.safetensors\"}}");
    for (int way = 0; way < 2; way++) { /* the index, and the folder it is in */
        if (qn_file_open(way ? folder : inside("model.safetensors.index.json"), NULL, &f, &error) != QN_OK)
            fail_msg("%s", error.text);
        assert_int_equal(qn_file_describe(f, &info), QN_OK);
        assert_int_equal(info.shards, 2);
        assert_int_equal(info.n_tensors, 2);
        assert_int_equal(info.n_keys, 1);
        assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "b.w"), &t), QN_OK);
        assert_int_equal(t.shard, 1);
        qn_file_close(f);
    }
    /* CVE-2022-25882 and its kin: names that lead out of the folder */
    refuse_index("{\"weight_map\":{\"a.w\":\"../one.safetensors\"}}", QN_FORMAT, "not a plain name");
    refuse_index("{\"weight_map\":{\"a.w\":\"/etc/passwd\"}}", QN_FORMAT, "not a plain name");
    refuse_index("{\"weight_map\":{\"a.w\":\"x/../../one.safetensors\"}}", QN_FORMAT, "not a plain name");
    refuse_index("{\"weight_map\":{\"a.w\":\"..\"}}", QN_FORMAT, "not a plain name");
    refuse_index("{\"weight_map\":{\"a.w\":\"one.safetensors\\u0000x\"}}", QN_FORMAT, "not a plain name");
    refuse_index("{\"weight_map\":{\"a.w\":\"two.safetensors\"}}", QN_FORMAT, "tensor 'a.w' is not in the file");
    refuse_index("{\"weight_map\":{\"a.w\":\"none.safetensors\"}}", QN_IO, "none.safetensors: No such file");
    refuse_index("{\"weight_map\":{}}", QN_FORMAT, "maps tensors to 0 files");
    refuse_index("{\"weight_map\":{\"a.w\":\"model.safetensors.index.json\"}}", QN_FORMAT, "its format is not that");
    remove_file(folder, "one.safetensors");
    remove_file(folder, "two.safetensors");
    remove_file(folder, "model.safetensors.index.json");
    assert_int_equal(rmdir(folder), 0);
}

/* ---- JSON documents */

static qn_file *json(const char *text, void **copy) {
    static made m;
    m.n = 0;
    put_bytes(&m, text, strlen(text));
    return accept(&m, copy);
}

/* A tensor that had to be copied is not in the map: whoever drops its pages after packing it would find zeros there. */
static void copies_are_not_said_to_be_mapped(void **state) {
    (void)state;
    static made m;
    qn_file *f;
    qn_error error;
    qn_file_tensor t;
    make(&m,
         "{\"odd\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
         "\"copied\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[3,11]}}      ",
         11);
    assert_int_equal((m.n - 11) % 8, 0);
    make_folder(folder, sizeof folder);
    write_file(folder, "one.safetensors", m.at, m.n);
    if (qn_file_open(inside("one.safetensors"), NULL, &f, &error) != QN_OK) fail_msg("%s", error.text);
    assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "odd"), &t), QN_OK);
    assert_true(t.tensor.flags & QN_TENSOR_MAPPED);
    assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "copied"), &t), QN_OK);
    assert_int_equal((uintptr_t)t.tensor.data % 8, 0);
    assert_false(t.tensor.flags & QN_TENSOR_MAPPED);
    assert_true(t.tensor.flags & QN_TENSOR_CONST);
    qn_file_close(f);
    remove_file(folder, "one.safetensors");
    assert_int_equal(rmdir(folder), 0);
}

static void documents_become_keys(void **state) {
    (void)state;
    void *copy;
    qn_file_value v, item;
    qn_file *f = json(
        " {\"size\": 4096, \"eps\": 1e-05, \"tie\": false, \"no\": null, \"rope\": {\"type\": \"yarn\", \"f\": [1, 2.5]},\n"
        "\"ids\": [1, -2, 3], \"words\": [\"a b\", \"\\u00e9\"], \"mixed\": [1, \"x\", [true, false], {\"k\": []}], \"e\": {}}",
        &copy);
    static const struct {
        const char *name;
        qn_key_type type, item;
        uint64_t count;
        double number;
    } want[] = {
        {"size", QN_KEY_I64, 0, 0, 4096},
        {"eps", QN_KEY_F64, 0, 0, 1e-5},
        {"tie", QN_KEY_BOOL, 0, 0, 0},
        {"rope.type", QN_KEY_STRING, 0, 0, 0},
        {"rope.f", QN_KEY_ARRAY, QN_KEY_F64, 2, 0},
        {"ids", QN_KEY_ARRAY, QN_KEY_I64, 3, 0},
        {"words", QN_KEY_ARRAY, QN_KEY_STRING, 2, 0},
        {"mixed.0", QN_KEY_I64, 0, 0, 1},
        {"mixed.1", QN_KEY_STRING, 0, 0, 0},
        {"mixed.2", QN_KEY_ARRAY, QN_KEY_BOOL, 2, 0},
        {"mixed.3.k", QN_KEY_ARRAY, QN_KEY_I64, 0, 0},
    };
    qn_file_info info = {.size = sizeof info};
    assert_int_equal(qn_file_describe(f, &info), QN_OK);
    assert_int_equal(info.n_keys, sizeof want / sizeof *want);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(qn_file_key(f, (int64_t)i, &v), QN_OK);
        assert_string_equal(v.name, want[i].name);
        assert_int_equal(v.type, want[i].type);
        assert_true(v.number == want[i].number && v.count == want[i].count);
        if (v.type == QN_KEY_ARRAY) assert_int_equal(v.item, want[i].item);
    }
    assert_int_equal(qn_file_key(f, qn_file_find(f, QN_FILE_KEYS, "words"), &v), QN_OK);
    assert_int_equal(qn_file_item(&v, 1, &item), QN_OK);
    assert_memory_equal(item.text, "\xc3\xa9", 2);
    assert_int_equal(qn_file_key(f, qn_file_find(f, QN_FILE_KEYS, "rope.f"), &v), QN_OK);
    assert_int_equal(qn_file_item(&v, 0, &item), QN_OK);
    assert_true(item.number == 1.0);
    qn_file_close(f);
    free(copy);
}

static void broken_documents_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"{", "ends too early"},
        {"{\"a\":1,}", "a name in quotes"},
        {"[1,]", "a value was expected"},
        {"{\"a\" 1}", "a colon"},
        {"{\"a\":01}", "zero in front"},
        {"{\"a\":1.}", "behind its point"},
        {"{\"a\":1e}", "exponent"},
        {"{\"a\":nul}", "a value was expected"},
        {"{\"a\":\"\x01\"}", "control character"},
        {"{\"a\":\"\\x\"}", "broken escape"},
        {"{\"a\":\"x", "inside a string"},
        {"{\"a\":1]", "a comma or the end"},
        {"{\"a\":1,\"a\":2}", "key 'a' is there twice"},
        {"{\"a\":1e999}", "beyond what a double"},
        {"{\"a\":[1,1e999]}", "beyond what a double"},
        {"{} {}", "behind the end"},
    };
    static made m;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m.n = 0;
        put_bytes(&m, wrong[i].text, strlen(wrong[i].text));
        refuse(&m, QN_FORMAT, wrong[i].words);
    }
    m.n = 0;
    for (int i = 0; i < 65; i++) put_bytes(&m, "[", 1);
    refuse(&m, QN_FORMAT, "nested more than 64 deep");
    m.n = 0;
    for (int i = 0; i < 30; i++) put_bytes(&m, "{\"a long name that is put in front of all that is inside\":", 58);
    refuse(&m, QN_FORMAT, "longer than 1024 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_and_metadata_are_read),
        cmocka_unit_test(every_dtype_of_the_table_is_read),
        cmocka_unit_test(headers_that_are_wrong_are_named),
        cmocka_unit_test(tensors_that_are_wrong_are_named),
        cmocka_unit_test(cut_and_changed_files_do_no_harm),
        cmocka_unit_test(overlapping_tensors_are_not_copied),
        cmocka_unit_test(an_index_opens_all_its_files_and_no_other),
        cmocka_unit_test(copies_are_not_said_to_be_mapped),
        cmocka_unit_test(documents_become_keys),
        cmocka_unit_test(broken_documents_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
