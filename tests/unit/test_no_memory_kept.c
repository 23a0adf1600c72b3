/* What is there when memory has ended: the cells of a session whose file could not be loaded, the outputs of a plan whose run could
 * not be begun. */
#include <stdio.h>

#include "failing.h"
#include "folder_help.h"

/* ---- Sequences from files */

/* A session of two sequences that hold different texts, which are kept in two files. */
typedef struct two {
    qn_model *m;
    qn_session *s;
    char file[2][200];
} two;

enum { VOCAB = 8192 };
static const int32_t TEXT[2][4] = {{1, 2, 3, 1}, {3, 1, 2, 0}};

static void begin_two(two *t, const char *folder) {
    qn_session_options o = {.size = sizeof o, .context = 16, .sequences = 2, .batch = 4};
    qn_error error;
    if (!t->m) assert_int_equal(qn_model_open("models/stories.gguf", NULL, &t->m, &error), QN_OK);
    assert_int_equal(qn_session_create(t->m, &o, &t->s, &error), QN_OK);
    for (int i = 0; i < 2; i++) snprintf(t->file[i], sizeof t->file[i], "%s/kept%d", folder, i);
}

static void end_two(two *t) {
    qn_session_destroy(t->s);
    qn_model_close(t->m);
}

/* What the model says behind a token more, which is forgotten again. */
static void look_ahead(two *t, int32_t sequence, float *logits) {
    const qn_session_part part = {sequence, 1, TEXT[0], 0};
    qn_model_info info = {.size = sizeof info};
    int64_t length = qn_session_length(t->s, sequence);
    qn_model_describe(t->m, &info);
    assert_true(info.n_vocab <= VOCAB);
    assert_int_equal(qn_session_run(t->s, &part, 1, NULL), QN_OK);
    memcpy(logits, qn_session_result(t->s, 0, -1), (size_t)info.n_vocab * sizeof *logits);
    assert_int_equal(qn_session_cut(t->s, sequence, length, NULL), QN_OK);
}

/* Both sequences, run and saved, and what the model says behind each. */
static void save_two(two *t, void *state, float want[2][VOCAB]) {
    begin_two(t, state);
    const qn_session_part parts[2] = {{0, 4, TEXT[0], 0}, {1, 4, TEXT[1], 0}};
    assert_int_equal(qn_session_run(t->s, parts, 2, NULL), QN_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(qn_session_save(t->s, i, t->file[i], NULL), QN_OK);
        look_ahead(t, i, want[i]);
    }
}

static void a_sequence_is_loaded_whole_or_not_at_all(void **state) {
    two t = {0};
    static float want[2][VOCAB] = {{0}}, got[VOCAB] = {0};
    save_two(&t, *state, want);
    assert_memory_not_equal(want[0], want[1], sizeof got);
    for (long at = 0, done = 0; !done; at++) { /* over the second, the first; memory ends at each request in turn */
        failing.is_on = 1;
        failing.at = at;
        failing.asked = 0;
        qn_status status = qn_session_load(t.s, 1, t.file[0], NULL, 0, NULL);
        failing.is_on = 0;
        done = failing.asked <= at;
        assert_int_equal(status, done ? QN_OK : QN_NO_MEMORY);
        look_ahead(&t, 1, got);
        assert_memory_equal(got, want[!done], sizeof got);
        look_ahead(&t, 0, got);
        assert_memory_equal(got, want[0], sizeof got);
    }
    end_two(&t);
}

static void loaded_sequences_leave_each_other_alone(void **state) {
    two t = {0};
    static float want[2][VOCAB] = {{0}}, got[VOCAB] = {0};
    save_two(&t, *state, want);
    qn_session_destroy(t.s);
    begin_two(&t, *state);
    for (int i = 0; i < 2; i++) assert_int_equal(qn_session_load(t.s, i, t.file[i], NULL, 0, NULL), QN_OK); /* nothing has run */
    assert_int_equal(qn_session_save(t.s, 0, t.file[0], NULL), QN_OK);
    for (int i = 0; i < 2; i++) {
        look_ahead(&t, i, got);
        assert_memory_equal(got, want[i], sizeof got);
    }
    end_two(&t);
}

/* ---- Outputs of a plan */

static qn_status set_rows(qn_plan *p, int64_t rows, qn_error *error) {
    float data[64];
    const int64_t shape[2] = {rows, 4};
    qn_tensor t;
    for (int64_t i = 0; i < rows * 4; i++) data[i] = (float)(rows * 100 + i);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, 2, shape, data, sizeof data), QN_OK);
    return qn_plan_set(p, "x", &t, error);
}

/* y = x * x: the output of so many rows, or none. */
static void assert_shows(qn_plan *p, int64_t rows) {
    qn_error error = {QN_OK, ""};
    qn_tensor y;
    float some[1];
    qn_status status = qn_plan_output(p, "y", &y, &error);
    if (!rows) {
        assert_int_equal(status, QN_INVALID);
        assert_non_null(strstr(error.text, "has not run yet with these extents"));
        assert_int_equal(qn_plan_read(p, "y", 0, some, sizeof some, &error), QN_INVALID);
        return;
    }
    assert_int_equal(status, QN_OK);
    assert_int_equal(y.shape[0], rows);
    for (int64_t i = 0; i < rows * 4; i++) {
        float x = (float)(rows * 100 + i);
        assert_true(((const float *)y.data)[i] == x * x);
    }
    assert_int_equal(qn_plan_read(p, "y", 0, some, sizeof some, &error), QN_OK);
    assert_true(some[0] == (float)(rows * 100) * (float)(rows * 100));
}

/* A run with other extents that gets no memory, at each of its requests: outputs are those of the last run that went well, or are not
 * shown, as what they lay in is gone or belongs to other extents; and the plan goes on. */
static void outputs_of_another_run_are_not_shown(void **state) {
    qn_graph *g;
    qn_error error;
    (void)state;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    const int64_t shape[2] = {qn_graph_symbol(g, "n", 1, 16, 1), 4};
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, shape);
    qn_graph_output(g, qn_graph_op(g, QN_OP_mul, 0, 2, (qn_val[]){x, x}, NULL), "y");
    assert_int_equal(qn_graph_error(g, &error), QN_OK);
    int hidden = 0, kept = 0;
    for (long at = 0, done = 0; !done; at++) {
        const int64_t few[1] = {2};
        qn_plan_options o = {.size = sizeof o, .symbols = few};
        qn_plan *p;
        assert_int_equal(qn_plan_create(g, &o, &p, &error), QN_OK);
        assert_shows(p, 0);
        assert_int_equal(set_rows(p, 2, &error), QN_OK);
        assert_int_equal(qn_plan_run(p, NULL, &error), QN_OK);
        assert_shows(p, 2);
        assert_int_equal(set_rows(p, 16, &error), QN_OK);
        failing.is_on = 1;
        failing.at = at;
        failing.asked = 0;
        qn_status status = qn_plan_run(p, NULL, &error);
        failing.is_on = 0;
        done = failing.asked <= at;
        qn_tensor y;
        if (status == QN_OK) {
            assert_shows(p, 16);
        } else {
            assert_int_equal(status, QN_NO_MEMORY);
            int shown = qn_plan_output(p, "y", &y, &error) == QN_OK;
            assert_shows(p, shown ? 2 : 0);
            kept += shown;
            hidden += !shown;
        }
        assert_int_equal(qn_plan_run(p, NULL, &error), QN_OK);
        assert_shows(p, 16);
        qn_plan_destroy(p);
    }
    assert_true(kept > 0 && hidden > 0); /* before the other extents were planned, and after */
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(a_sequence_is_loaded_whole_or_not_at_all),
                                       IN_FOLDER(loaded_sequences_leave_each_other_alone),
                                       cmocka_unit_test(outputs_of_another_run_are_not_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
