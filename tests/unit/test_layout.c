/* Views against their buffers: what lies inside, what overlaps, what shares bytes with itself. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "tensor/layout.h"

static char buffer[4096];

static qn_tensor view(qn_dtype dtype, int64_t offset, int rank, const int64_t *shape, const int64_t *stride) {
    qn_tensor t;
    memset(&t, 0, sizeof t);
    t.data = buffer;
    t.size = sizeof buffer;
    t.dtype = dtype;
    t.rank = rank;
    t.offset = offset;
    memcpy(t.shape, shape, sizeof *shape * (size_t)rank);
    memcpy(t.stride, stride, sizeof *stride * (size_t)rank);
    return t;
}

static qn_reason fault_of(const qn_tensor *t) {
    qn_span span;
    qn_layout_fault f = {QN_REASON_NONE, -1, 0, 0};
    return qn_layout_check(t, 1, &span, &f) == QN_OK ? QN_REASON_NONE : f.reason;
}

static void view_that_fits_to_the_byte_is_accepted(void **state) {
    (void)state;
    qn_tensor t = view(QN_DTYPE_F32, 4096 - 24, 2, (int64_t[]){2, 3}, (int64_t[]){12, 4});
    assert_int_equal(fault_of(&t), QN_REASON_NONE);
    t.size--;
    assert_int_equal(fault_of(&t), QN_REASON_OUT_OF_BUFFER_HIGH);
}

static void negative_stride_must_not_leave_the_front(void **state) {
    (void)state;
    qn_tensor t = view(QN_DTYPE_F32, 8, 1, (int64_t[]){3}, (int64_t[]){-4});
    assert_int_equal(fault_of(&t), QN_REASON_NONE);
    t.offset = 4;
    assert_int_equal(fault_of(&t), QN_REASON_OUT_OF_BUFFER_LOW);
}

/* The end of a buffer must be an address, however little of it the view uses: kernels compute with it. */
static void a_buffer_past_the_last_address_is_refused(void **state) {
    (void)state;
    qn_tensor t = view(QN_DTYPE_F32, 0, 1, (int64_t[]){2}, (int64_t[]){4});
    t.size = UINT64_MAX;
    assert_int_equal(fault_of(&t), QN_REASON_BUFFER_END);
    t.size = UINTPTR_MAX - (uintptr_t)buffer;
    assert_int_equal(fault_of(&t), QN_REASON_NONE);
    t.size++;
    assert_int_equal(fault_of(&t), QN_REASON_BUFFER_END);
    t = view(QN_DTYPE_F32, 0, 1, (int64_t[]){200}, (int64_t[]){4});
    t.data = (void *)(UINTPTR_MAX - 7); /* the elements themselves go round */
    t.size = 1000;
    assert_int_equal(fault_of(&t), QN_REASON_BUFFER_END);
    t.shape[0] = 0;
    assert_int_equal(fault_of(&t), QN_REASON_BUFFER_END);
    t = view(QN_DTYPE_Q8_0, 34, 2, (int64_t[]){1, 32}, (int64_t[]){-34, 34}); /* what is not looked at in one walk */
    t.size = UINT64_MAX - 1;
    assert_int_equal(fault_of(&t), QN_REASON_BUFFER_END);
}

static void hostile_numbers_are_named_not_computed_with(void **state) {
    (void)state;
    qn_tensor t = view(QN_DTYPE_F32, 0, 2, (int64_t[]){INT64_MAX, 2}, (int64_t[]){8, 4});
    assert_int_equal(fault_of(&t), QN_REASON_SIZE_OVERFLOW);
    t = view(QN_DTYPE_F32, 0, 2, (int64_t[]){3, 2}, (int64_t[]){INT64_MAX - 3, 4});
    assert_int_equal(fault_of(&t), QN_REASON_ADDRESS_OVERFLOW);
    t = view(QN_DTYPE_F32, 0, 2, (int64_t[]){3, 2}, (int64_t[]){INT64_MIN, 4});
    assert_int_equal(fault_of(&t), QN_REASON_ADDRESS_OVERFLOW);
    t = view(QN_DTYPE_F32, INT64_MAX - 3, 1, (int64_t[]){1}, (int64_t[]){4});
    assert_int_equal(fault_of(&t), QN_REASON_ADDRESS_OVERFLOW);
    t = view(QN_DTYPE_F32, 0, 1, (int64_t[]){-1}, (int64_t[]){4});
    assert_int_equal(fault_of(&t), QN_REASON_NEGATIVE_EXTENT);
    t = view(QN_DTYPE_F32, 2, 1, (int64_t[]){1}, (int64_t[]){4});
    assert_int_equal(fault_of(&t), QN_REASON_OFFSET_UNIT);
    t = view(QN_DTYPE_F32, 0, 1, (int64_t[]){2}, (int64_t[]){6});
    assert_int_equal(fault_of(&t), QN_REASON_STRIDE_UNIT);
    t = view(QN_DTYPE_Q4_0, 0, 1, (int64_t[]){33}, (int64_t[]){18});
    assert_int_equal(fault_of(&t), QN_REASON_PARTIAL_BLOCK);
    t = view(QN_DTYPE_Q4_0, 0, 1, (int64_t[]){64}, (int64_t[]){20});
    assert_int_equal(fault_of(&t), QN_REASON_STRIDE_BLOCK);
}

static void slices_of_one_tensor_are_told_apart(void **state) {
    (void)state;
    qn_tensor left = view(QN_DTYPE_F32, 0, 2, (int64_t[]){4, 3}, (int64_t[]){32, 4});
    qn_tensor right = view(QN_DTYPE_F32, 12, 2, (int64_t[]){4, 5}, (int64_t[]){32, 4});
    assert_false(qn_layout_overlap(&left, &right));
    right.offset = 8;
    assert_true(qn_layout_overlap(&left, &right));
    /* two columns starting in the gap behind two columns, running into the next row */
    left = view(QN_DTYPE_F32, 0, 2, (int64_t[]){2, 2}, (int64_t[]){16, 4});
    right = view(QN_DTYPE_F32, 12, 2, (int64_t[]){2, 2}, (int64_t[]){16, 4});
    assert_true(qn_layout_overlap(&left, &right));
}

/* The exact answer must agree with counting bytes, on every pair of small slices. */
static void overlap_agrees_with_brute_force(void **state) {
    (void)state;
    for (int64_t off = 0; off <= 64; off += 4)
        for (int64_t ra = 1; ra <= 3; ra++)
            for (int64_t ca = 1; ca <= 4; ca++)
                for (int64_t cb = 1; cb <= 4; cb++) {
                    qn_tensor a = view(QN_DTYPE_F32, 32, 2, (int64_t[]){ra, ca}, (int64_t[]){16, 4});
                    qn_tensor b = view(QN_DTYPE_F32, off, 2, (int64_t[]){2, cb}, (int64_t[]){16, 4});
                    int shared = 0;
                    for (int64_t i = 0; i < ra * ca; i++)
                        for (int64_t k = 0; k < 2 * cb; k++)
                            shared |= 32 + i / ca * 16 + i % ca * 4 == off + k / cb * 16 + k % cb * 4;
                    assert_int_equal(qn_layout_overlap(&a, &b), shared);
                }
}

static void self_overlap_is_seen(void **state) {
    (void)state;
    qn_layout_fault f;
    qn_tensor t = view(QN_DTYPE_F32, 0, 2, (int64_t[]){3, 3}, (int64_t[]){4, 4});
    assert_int_equal(qn_layout_check_distinct(&t, &f), QN_INVALID);
    t = view(QN_DTYPE_F32, 0, 2, (int64_t[]){3, 3}, (int64_t[]){4, 12});
    assert_int_equal(qn_layout_check_distinct(&t, &f), QN_OK);
    t = view(QN_DTYPE_F32, 0, 2, (int64_t[]){3, 1}, (int64_t[]){0, 4});
    assert_int_equal(qn_layout_check_distinct(&t, &f), QN_INVALID);
    t = view(QN_DTYPE_F32, 0, 2, (int64_t[]){0, 3}, (int64_t[]){0, 0});
    assert_int_equal(qn_layout_check_distinct(&t, &f), QN_OK);
}

static void dense_tensor_needs_its_bytes(void **state) {
    (void)state;
    qn_tensor t;
    uint64_t bytes;
    int64_t shape[2] = {3, 64};
    assert_int_equal(qn_tensor_bytes(QN_DTYPE_Q4_0, 2, shape, &bytes), QN_OK);
    assert_int_equal(bytes, 3 * 2 * 18);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_Q4_0, 2, shape, buffer, 3 * 2 * 18 - 1), QN_INVALID);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_Q4_0, 2, shape, buffer, 3 * 2 * 18), QN_OK);
    assert_true(qn_tensor_is_contiguous(&t));
    shape[1] = 65;
    assert_int_equal(qn_tensor_bytes(QN_DTYPE_Q4_0, 2, shape, &bytes), QN_INVALID);
    int64_t huge[3] = {INT64_MAX, INT64_MAX, 2};
    assert_int_equal(qn_tensor_bytes(QN_DTYPE_F32, 3, huge, &bytes), QN_INVALID);
    assert_int_equal(qn_tensor_bytes(QN_DTYPE_F32, 9, shape, &bytes), QN_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(view_that_fits_to_the_byte_is_accepted),
        cmocka_unit_test(negative_stride_must_not_leave_the_front),
        cmocka_unit_test(a_buffer_past_the_last_address_is_refused),
        cmocka_unit_test(hostile_numbers_are_named_not_computed_with),
        cmocka_unit_test(slices_of_one_tensor_are_told_apart),
        cmocka_unit_test(overlap_agrees_with_brute_force),
        cmocka_unit_test(self_overlap_is_seen),
        cmocka_unit_test(dense_tensor_needs_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
