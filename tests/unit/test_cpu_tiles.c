/* Products by AMX's tiles leave the shapes of the registers as the host has them: another library in its thread may count on those. And
 * who masks the tiles keeps signal stacks as small as they were. */
#define _DEFAULT_SOURCE /* syscall */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/graph.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/simd/simd_tile.h"

#define GRAPH(w, x, more, call) "quern graph 1\ninput %w " w "\ninput %x " x "\n" more "%y = " call "\noutput %y \"y\"\n"
#define MULT "input %m f32[1]\n"
static const char *const graphs[] = {
    GRAPH("q8_0[64, 256]", "f32[32, 256]", "", "mul_mat %w %x"),
    GRAPH("bf16[64, 256]", "f32[32, 256]", "", "mul_mat %w %x"),
    GRAPH("i8[256, 64]", "i8[32, 256]", MULT, "quant_matmul %x %w %m"),
    GRAPH("i8[32, 32, 3, 3]", "i8[1, 32, 16, 16]", MULT, "quant_conv %x %w %m"),
};

static void set_zero(qn_plan *plan, const qn_graph *g) {
    qn_error error;
    for (int32_t v = 0; v < 3; v++) {
        qn_value_info info = {.size = sizeof info};
        qn_tensor t;
        if (qn_graph_value(g, v, &info) != QN_OK || !info.name) continue;
        assert_int_equal(qn_tensor_init(&t, (qn_dtype)info.dtype, info.rank, info.shape, NULL, 0), QN_OK);
        assert_int_equal(qn_plan_set(plan, info.name, &t, &error), QN_OK);
    }
}

static void run(const char *text) {
    qn_graph *g = NULL;
    qn_plan *plan = NULL;
    qn_error error;
    qn_plan_step_info step = {.size = sizeof step};
    assert_int_equal(qn_graph_parse(text, strlen(text), 0, &g, &error), QN_OK);
    assert_int_equal(qn_plan_create(g, &(qn_plan_options){.size = sizeof(qn_plan_options)}, &plan, &error), QN_OK);
    assert_int_equal(qn_plan_step_describe(plan, 0, &step), QN_OK);
    assert_string_equal(step.level, "amx");
    set_zero(plan, g);
    assert_int_equal(qn_plan_run(plan, NULL, &error), QN_OK);
    qn_plan_destroy(plan);
    qn_graph_destroy(g);
}

static void the_host_keeps_its_shapes(void **state) {
    (void)state;
    if (!(qn_cpu_levels() >> QN_CPU_LEVEL_amx & 1) || !qn_cpu_has_kernel_at(QN_CPU_LEVEL_amx, QN_OP_mul_mat)) {
        print_message("no AMX here\n");
        return;
    }
    tile_shapes host = {.palette = 1}, none = {.palette = 0};
    for (int i = 0; i < 8; i++) host.bytes[i] = (uint16_t)(4 + 4 * i), host.rows[i] = (uint8_t)(i + 1);
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        tile_begin(&host);
        run(graphs[i]);
        tile_shapes after = tile_before();
        tile_end(&none);
        assert_memory_equal(&after, &host, sizeof host);
        run(graphs[i]);
        after = tile_before();
        assert_memory_equal(&after, &none, sizeof none);
    }
}

/* Runs first: what the process was once allowed stays so. */
static void masked_tiles_are_not_asked_for(void **state) {
    (void)state;
    enum { PERMITTED = 0x1022, TILE_DATA = 18 };
    uint64_t before = 0, after = 0;
    if (getenv("QUERN_CPU") || syscall(SYS_arch_prctl, PERMITTED, &before) != 0) {
        print_message("a mask is set already, or this system does not say what it allows\n");
        return;
    }
    setenv("QUERN_CPU", "avx2,avx512", 1);
    assert_int_equal(qn_cpu_levels() >> QN_CPU_LEVEL_amx & 1, 0);
    unsetenv("QUERN_CPU");
    assert_int_equal(syscall(SYS_arch_prctl, PERMITTED, &after), 0);
    assert_int_equal(before >> TILE_DATA & 1, 0);
    assert_int_equal(after >> TILE_DATA & 1, 0);
}
#else
static void no_tiles_here(void **state) {
    (void)state;
    print_message("no tiles on this architecture\n");
}
#define the_host_keeps_its_shapes no_tiles_here
#define masked_tiles_are_not_asked_for no_tiles_here
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_tiles_are_not_asked_for),
        cmocka_unit_test(the_host_keeps_its_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
