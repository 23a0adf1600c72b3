/* The GGUF writer, and what it writes read back; models split over several files; disks that are full. */
#include "format_help.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[300];

static int set_up(void **state) {
    (void)state;
    make_folder(folder, sizeof folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return rmdir(folder); /* fails when a test left something behind */
}

static const char *inside(const char *name) {
    static char path[2][600];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s", folder, name);
    return path[which];
}

static int files_in_folder(void) {
    int n = 0;
    DIR *d = opendir(folder);
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static qn_writer *begin(const char *path) {
    qn_writer *w;
    qn_error error;
    if (qn_writer_create(path, &w, &error) != QN_OK) fail_msg("%s", error.text);
    return w;
}

static qn_status key_number(qn_writer *w, const char *name, qn_key_type type, int64_t v) {
    qn_file_value value = {.name = name, .type = type, .integer = v, .number = (double)v};
    return qn_writer_key(w, &value);
}

static qn_tensor shaped(qn_dtype dtype, int rank, const int64_t *shape) {
    qn_tensor t;
    assert_int_equal(qn_tensor_init(&t, dtype, rank, shape, NULL, 0), QN_OK);
    return t;
}

/* ---- Reading back */

static const int64_t three[] = {2, 3, 32}, one[] = {5}, none[] = {0, 4};

static void write_sample(const char *path, size_t piece) {
    qn_writer *w = begin(path);
    qn_error error;
    float weights[192];
    uint8_t blocks[2 * 3 * 34], bytes[5] = {1, 2, 3, 4, 5};
    for (int i = 0; i < 192; i++) weights[i] = (float)i / 7;
    for (int i = 0; i < 204; i++) blocks[i] = (uint8_t)(i * 5);
    qn_tensor f = shaped(QN_DTYPE_F32, 3, three), q = shaped(QN_DTYPE_Q8_0, 3, three), b = shaped(QN_DTYPE_I8, 1, one);
    qn_tensor empty = shaped(QN_DTYPE_F16, 2, none);
    static const char packed[] = "\2\0\0\0\0\0\0\0ab\0\0\0\0\0\0\0\0";
    qn_file_value words = {.name = "words", .type = QN_KEY_ARRAY, .item = QN_KEY_STRING, .text = packed, .bytes = 18, .count = 2};
    qn_file_value text = {.name = "text", .type = QN_KEY_STRING, .text = "hello", .bytes = 5};
    qn_file_value real = {.name = "real", .type = QN_KEY_F32, .number = 0.1};
    assert_int_equal(qn_writer_key(w, &words), QN_OK);
    assert_int_equal(qn_writer_key(w, &text), QN_OK);
    assert_int_equal(qn_writer_key(w, &real), QN_OK);
    for (int type = 0; type <= QN_KEY_F64; type++) {
        char name[24];
        snprintf(name, sizeof name, "type.%d", type);
        if (type != QN_KEY_STRING && type != QN_KEY_ARRAY) assert_int_equal(key_number(w, name, (qn_key_type)type, 1), QN_OK);
    }
    assert_int_equal(qn_writer_tensor(w, "f", &f), QN_OK);
    assert_int_equal(qn_writer_tensor(w, "empty", &empty), QN_OK);
    assert_int_equal(qn_writer_tensor(w, "b", &b), QN_OK);
    assert_int_equal(qn_writer_tensor(w, "q", &q), QN_OK);
    static uint8_t all[sizeof weights + sizeof bytes + sizeof blocks];
    memcpy(all, weights, sizeof weights);
    memcpy(all + sizeof weights, bytes, sizeof bytes);
    memcpy(all + sizeof weights + sizeof bytes, blocks, sizeof blocks);
    for (size_t at = 0; at < sizeof all; at += piece)
        assert_int_equal(qn_writer_data(w, all + at, sizeof all - at < piece ? sizeof all - at : piece), QN_OK);
    if (qn_writer_finish(w, 1, &error) != QN_OK) fail_msg("%s", error.text);
}

static void what_is_written_reads_back(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 7, 1000, 4096};
    for (size_t p = 0; p < 4; p++) {
        qn_file *f;
        qn_error error;
        qn_file_value v, item;
        qn_file_tensor t;
        write_sample(inside("s.gguf"), pieces[p]);
        assert_int_equal(files_in_folder(), 1);
        if (qn_file_open(inside("s.gguf"), NULL, &f, &error) != QN_OK) fail_msg("%s", error.text);
        assert_int_equal(qn_file_key(f, 0, &v), QN_OK);
        assert_int_equal(v.count, 2);
        assert_int_equal(qn_file_item(&v, 0, &item), QN_OK);
        assert_memory_equal(item.text, "ab", 2);
        assert_int_equal(qn_file_key(f, 1, &v), QN_OK);
        assert_memory_equal(v.text, "hello", 5);
        assert_int_equal(qn_file_key(f, 2, &v), QN_OK);
        assert_true(v.number == (double)0.1f);
        for (int64_t k = 3; qn_file_key(f, k, &v) == QN_OK; k++) assert_true(v.number == 1 && v.integer == 1);
        assert_int_equal(qn_file_entry(f, 0, &t), QN_OK);
        assert_int_equal(t.tensor.rank, 3);
        for (int i = 0; i < 3; i++) assert_int_equal(t.tensor.shape[i], three[i]);
        for (int i = 0; i < 192; i++) assert_true(((const float *)t.tensor.data)[i] == (float)i / 7);
        assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "q"), &t), QN_OK);
        assert_int_equal(t.tensor.dtype, QN_DTYPE_Q8_0);
        for (int i = 0; i < 204; i++) assert_int_equal(((const uint8_t *)t.tensor.data)[i], (uint8_t)(i * 5));
        assert_int_equal(qn_file_entry(f, qn_file_find(f, QN_FILE_TENSORS, "b"), &t), QN_OK);
        assert_memory_equal(t.tensor.data, "\1\2\3\4\5", 5);
        qn_file_close(f);
        remove_file(folder, "s.gguf");
    }
}

/* Keys of a file passed on as they are, of every kind the reader knows. */
static void keys_pass_from_file_to_file(void **state) {
    (void)state;
    qn_file *from, *to;
    qn_error error;
    qn_file_value v, w;
    write_sample(inside("a.gguf"), 512);
    assert_int_equal(qn_file_open(inside("a.gguf"), NULL, &from, &error), QN_OK);
    qn_writer *out = begin(inside("b.gguf"));
    int64_t n = 0;
    for (; qn_file_key(from, n, &v) == QN_OK; n++) assert_int_equal(qn_writer_key(out, &v), QN_OK);
    assert_int_equal(qn_writer_finish(out, 1, &error), QN_OK);
    assert_int_equal(qn_file_open(inside("b.gguf"), NULL, &to, &error), QN_OK);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(qn_file_key(from, i, &v), QN_OK);
        assert_int_equal(qn_file_key(to, i, &w), QN_OK);
        assert_string_equal(v.name, w.name);
        assert_true(v.type == w.type && v.item == w.item && v.integer == w.integer && v.count == w.count && v.bytes == w.bytes);
        if (v.bytes) assert_memory_equal(v.text, w.text, v.bytes);
    }
    qn_file_close(from);
    qn_file_close(to);
    remove_file(folder, "a.gguf");
    remove_file(folder, "b.gguf");
}

/* ---- What is wrong */

static void expect_end(qn_writer *w, qn_status status, const char *words) {
    qn_error error;
    assert_int_equal(qn_writer_finish(w, 1, &error), status);
    assert_int_equal(error.status, status);
    if (!strstr(error.text, words)) fail_msg("expected '%s', got: %s", words, error.text);
    assert_int_equal(files_in_folder(), 0);
}

static void wrong_use_is_named_and_leaves_nothing(void **state) {
    (void)state;
    qn_tensor f = shaped(QN_DTYPE_F32, 1, one), bad = f;
    qn_writer *w = begin(inside("x.gguf"));
    qn_writer_tensor(w, "t", &f);
    qn_writer_data(w, "12345", 5);
    expect_end(w, QN_ARGUMENT, "tensor 't' lacks 15 of its 20 bytes");
    w = begin(inside("x.gguf"));
    assert_int_equal(qn_writer_data(w, "1", 1), QN_ARGUMENT);
    expect_end(w, QN_ARGUMENT, "1 bytes of data behind the last tensor");
    w = begin(inside("x.gguf"));
    qn_writer_tensor(w, "t", &f);
    qn_writer_tensor(w, "t", &f);
    expect_end(w, QN_ARGUMENT, "tensor 't' is there twice");
    w = begin(inside("x.gguf"));
    key_number(w, "k", QN_KEY_U8, 1);
    key_number(w, "k", QN_KEY_U8, 1);
    expect_end(w, QN_ARGUMENT, "key 'k' is there twice");
    w = begin(inside("x.gguf"));
    bad.dtype = QN_DTYPE_C64;
    assert_int_equal(qn_writer_tensor(w, "t", &bad), QN_UNSUPPORTED);
    assert_int_equal(qn_writer_tensor(w, "u", &f), QN_UNSUPPORTED); /* the first error sticks */
    expect_end(w, QN_UNSUPPORTED, "GGUF has no type for c64");
    w = begin(inside("x.gguf"));
    bad = f;
    bad.dtype = QN_DTYPE_Q4_0;
    qn_writer_tensor(w, "t", &bad);
    expect_end(w, QN_ARGUMENT, "not a whole number of blocks");
    w = begin(inside("x.gguf"));
    qn_file_value broken = {
        .name = "k", .type = QN_KEY_ARRAY, .item = QN_KEY_STRING, .text = "\5\0\0\0\0\0\0\0ab", .bytes = 10, .count = 1};
    qn_writer_key(w, &broken);
    expect_end(w, QN_ARGUMENT, "key 'k': a string is longer");
    w = begin(inside("x.gguf"));
    key_number(w, "general.alignment", QN_KEY_U32, 48);
    expect_end(w, QN_ARGUMENT, "general.alignment");
    w = begin(inside("x.gguf"));
    qn_writer_data(w, NULL, 0);
    key_number(w, "k", QN_KEY_U8, 1);
    expect_end(w, QN_ARGUMENT, "a key after the first data");
    assert_int_equal(qn_writer_finish(NULL, 1, NULL), QN_OK);
}

static void places_that_cannot_be_written_are_named(void **state) {
    (void)state;
    qn_writer *w;
    qn_error error;
    assert_int_equal(qn_writer_create("/no/such/folder/x.gguf", &w, &error), QN_IO);
    assert_null(w);
    assert_int_equal(qn_writer_create("/dev/null", &w, &error), QN_IO); /* or root would replace it */
    assert_non_null(strstr(error.text, "not a regular file"));
    assert_int_equal(qn_writer_create(folder, &w, &error), QN_IO);
}

/* What was there stays until the new file is whole; then it is replaced in one step. */
static void an_old_file_stays_until_the_new_is_whole(void **state) {
    (void)state;
    qn_file *f;
    qn_error error;
    qn_file_value v;
    qn_writer *w = begin(inside("m.gguf"));
    key_number(w, "round", QN_KEY_U8, 1);
    assert_int_equal(qn_writer_finish(w, 1, &error), QN_OK);
    w = begin(inside("m.gguf"));
    key_number(w, "round", QN_KEY_U8, 2);
    qn_writer_data(w, NULL, 0);
    assert_int_equal(qn_writer_finish(w, 0, &error), QN_OK); /* thrown away */
    for (int round = 1; round < 3; round++) {
        assert_int_equal(qn_file_open(inside("m.gguf"), NULL, &f, &error), QN_OK);
        assert_int_equal(qn_file_key(f, 0, &v), QN_OK);
        assert_int_equal(v.integer, round);
        qn_file_close(f);
        w = begin(inside("m.gguf"));
        key_number(w, "round", QN_KEY_U8, round + 1);
        assert_int_equal(qn_writer_finish(w, 1, &error), QN_OK);
    }
    assert_int_equal(files_in_folder(), 1);
    remove_file(folder, "m.gguf");
}

/* A limit on file sizes stands in for a full disk: the system refuses the same calls. */
static void a_full_disk_is_named_and_leaves_nothing(void **state) {
    (void)state;
    struct rlimit was, little = {.rlim_cur = 4096, .rlim_max = 0};
    static const int64_t large[] = {100000};
    qn_tensor t = shaped(QN_DTYPE_F32, 1, large);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    little.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    qn_writer *w = begin(inside("x.gguf"));
    qn_writer_tensor(w, "t", &t);
    assert_int_equal(qn_writer_data(w, "1234", 4), QN_IO);
    expect_end(w, QN_IO, "no room for its 400");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_DFL);
}

/* ---- Models in several files */

static void write_part(const char *name, int no, int count, int total, const char *tensor) {
    qn_writer *w = begin(inside(name));
    qn_error error;
    qn_tensor t = shaped(QN_DTYPE_I8, 1, one);
    char data[6];
    key_number(w, "split.no", QN_KEY_U16, no);
    key_number(w, "split.count", QN_KEY_U16, count);
    key_number(w, "split.tensors.count", QN_KEY_I32, total);
    if (no == 0) key_number(w, "only.first", QN_KEY_U8, 9);
    qn_writer_tensor(w, tensor, &t);
    snprintf(data, sizeof data, "data%d", no);
    qn_writer_data(w, data, 5);
    if (qn_writer_finish(w, 1, &error) != QN_OK) fail_msg("%s", error.text);
}

static const char *const parts[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};

static void write_split(void) {
    write_part(parts[0], 0, 3, 3, "a");
    write_part(parts[1], 1, 3, 3, "b");
    write_part(parts[2], 2, 3, 3, "c");
}

static void refuse_split(const char *path, qn_status status, const char *words) {
    qn_file *f;
    qn_error error;
    qn_status got = qn_file_open(path, NULL, &f, &error);
    if (got != status || !strstr(error.text, words))
        fail_msg("expected %s with '%s', got %s: %s", qn_status_name(status), words, qn_status_name(got), error.text);
}

/* The file that a link leads to is replaced, and the link stays one. */
static void a_link_stays(void **state) {
    (void)state;
    char link[600];
    struct stat s;
    qn_error error;
    snprintf(link, sizeof link, "%s/link.gguf", folder);
    assert_int_equal(qn_writer_finish(begin(inside("behind.gguf")), 1, &error), QN_OK);
    assert_int_equal(stat(inside("behind.gguf"), &s), 0);
    ino_t before = s.st_ino;
    assert_int_equal(symlink("behind.gguf", link), 0);
    assert_int_equal(qn_writer_finish(begin(link), 1, &error), QN_OK);
    assert_int_equal(lstat(link, &s), 0);
    assert_true(S_ISLNK(s.st_mode));
    assert_int_equal(stat(inside("behind.gguf"), &s), 0);
    assert_true(s.st_ino != before);
    assert_int_equal(files_in_folder(), 2);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(inside("behind.gguf")), 0);
}

static void any_part_opens_the_whole_model(void **state) {
    (void)state;
    write_split();
    for (int way = 0; way < 6; way++) {
        qn_file_options options = qn_file_options_default();
        qn_file_info info = {.size = sizeof info};
        qn_file *f;
        qn_error error;
        qn_file_tensor t;
        options.flags = way > 2 ? QN_FILE_NO_MAP : 0;
        if (qn_file_open(inside(parts[way % 3]), &options, &f, &error) != QN_OK) fail_msg("%s", error.text);
        assert_int_equal(qn_file_describe(f, &info), QN_OK);
        assert_int_equal(info.shards, 3);
        assert_int_equal(info.n_tensors, 3);
        assert_true(qn_file_find(f, QN_FILE_KEYS, "only.first") >= 0);
        for (uint32_t i = 0; i < 3; i++) {
            char data[6];
            snprintf(data, sizeof data, "data%u", i);
            assert_int_equal(qn_file_entry(f, (int64_t)i, &t), QN_OK);
            assert_int_equal(t.shard, i);
            assert_memory_equal(t.tensor.data, data, 5);
        }
        qn_file_close(f);
        options.flags |= QN_FILE_ONE_SHARD;
        assert_int_equal(qn_file_open(inside(parts[way % 3]), &options, &f, &error), QN_OK);
        assert_int_equal(qn_file_describe(f, &info), QN_OK);
        assert_int_equal(info.n_tensors, 1);
        qn_file_close(f);
    }
    for (int i = 0; i < 3; i++) remove_file(folder, parts[i]);
}

static void parts_that_do_not_fit_are_named(void **state) {
    (void)state;
    write_split();
    remove_file(folder, parts[1]);
    refuse_split(inside(parts[2]), QN_IO, "m-00002-of-00003.gguf: No such file");
    write_part(parts[1], 2, 3, 3, "b");
    refuse_split(inside(parts[0]), QN_FORMAT, "file 2 of 3 says that it is file 3 of 3");
    write_part(parts[1], 1, 3, 3, "a");
    refuse_split(inside(parts[0]), QN_FORMAT, "tensor 'a' is there twice");
    write_part(parts[1], 1, 3, 3, "b");
    write_part(parts[0], 0, 3, 4, "a");
    refuse_split(inside(parts[0]), QN_FORMAT, "split.tensors.count says 4");
    write_part("other.gguf", 0, 3, 3, "a");
    refuse_split(inside("other.gguf"), QN_FORMAT, "its name does not end in -00001-of-00003.gguf");
    write_part("other.gguf", 5, 3, 3, "a");
    refuse_split(inside("other.gguf"), QN_FORMAT, "file 6 of 3 is no part");
    write_file(folder, parts[1], "{}", 2);
    write_part(parts[0], 0, 3, 3, "a");
    refuse_split(inside(parts[0]), QN_FORMAT, "its format is not that of the other files");
    remove_file(folder, "other.gguf");
    for (int i = 0; i < 3; i++) remove_file(folder, parts[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_reads_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(keys_pass_from_file_to_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrong_use_is_named_and_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(places_that_cannot_be_written_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_old_file_stays_until_the_new_is_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_is_named_and_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_part_opens_the_whole_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts_that_do_not_fit_are_named, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
