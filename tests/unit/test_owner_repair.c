/* --owner=enclosing against the rule said plainly: every runtime call compared with every event, in order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_setup.h"
#include "prof/analyse.h"
#include "prof/prof_model.h"

static const char NAME[] = "/tmp/quern-test-owner-XXXXXX";

/* Writes the events to a file of their own and loads it. */
static void load(const char *events, uint32_t flags, prof_trace *trace) {
    char path[sizeof NAME];
    qn_error error;
    memcpy(path, NAME, sizeof NAME);
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    assert_non_null(file);
    fprintf(file, "{\"traceEvents\": [%s]}", events);
    assert_int_equal(fclose(file), 0);
    qn_profile_options options = qn_profile_options_default();
    options.flags = flags;
    options.dialect = QN_PROFILE_MLU_B;
    qn_status status = qn_prof_trace_load(path, &options, trace, &error);
    unlink(path);
    if (status != QN_OK) {
        fail_msg("%s", error.text);
    }
    trace->path = "";
}

/* ---- The rule ----------------------------------------------------------------------------------------------------- */

static int64_t id_number(const prof_trace *trace, const prof_event *event) {
    prof_val id = prof_event_external(event);
    return id.tag == PROF_STR ? atoll(prof_string(trace, (uint32_t)id.i)->at) : id.tag == PROF_INT ? id.i : 0;
}

static int gives(const prof_trace *trace, const prof_event *event, const prof_event *call) {
    int64_t start = event->ts.i, end = start + event->dur.i, call_start = call->ts.i, call_end = call_start + call->dur.i;
    int is_call = event->kind == PROF_KIND_RUNTIME;
    if (event->pid != call->pid || event->tid != call->tid || event->kind == PROF_KIND_KERNEL) {
        return 0;
    }
    if (is_call && event->correlation_tag == call->correlation_tag && event->correlation.i == call->correlation.i) {
        return 0;
    }
    if (start == call_start && end == call_end && is_call) {
        int both = event->correlation_tag == PROF_INT && call->correlation_tag == PROF_INT;
        int wrong = event->external_tag == event->correlation_tag && event->external.i == event->correlation.i;
        return both && event->correlation.i < call->correlation.i && !wrong;
    }
    return start <= call_start && end >= call_end && id_number(trace, event) != 0;
}

static void apply_rule(prof_trace *trace) {
    for (size_t c = 0; c < trace->events.n; c++) {
        prof_event *call = &trace->events.at[c];
        for (size_t e = 0; call->kind == PROF_KIND_RUNTIME && e < trace->events.n; e++) {
            const prof_event *event = &trace->events.at[e];
            if (gives(trace, event, call)) {
                call->external = event->external;
                call->external_tag = event->external_tag;
            }
        }
    }
}

static void assert_same_ids(const prof_trace *wanted, const prof_trace *got) {
    assert_int_equal(wanted->events.n, got->events.n);
    for (size_t i = 0; i < wanted->events.n; i++) {
        assert_int_equal(wanted->events.at[i].external_tag, got->events.at[i].external_tag);
        assert_int_equal(wanted->events.at[i].external.i, got->events.at[i].external.i);
    }
}

/* ---- Traces ------------------------------------------------------------------------------------------------------- */

static uint32_t next(uint32_t *seed, uint32_t range) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % range;
}

static void random_events(uint32_t *seed, int n, char *out, size_t room) {
    static const char *const KINDS[] = {"cpu_op", "cpu_op", "cuda_runtime", "cuda_runtime", "user_annotation", "kernel"};
    static const char *const IDS[] = {"", "\"External id\": 0", "\"External id\": %u", "\"External id\": \"%u\""};
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        char id[64], correlation[64] = "";
        snprintf(id, sizeof id, IDS[next(seed, 4)], 1 + next(seed, 6));
        if (next(seed, 5)) {
            snprintf(correlation, sizeof correlation, "%s\"correlation\": %u", *id ? ", " : "", next(seed, 6));
        }
        used += (size_t)snprintf(
            out + used, room - used,
            "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"e\", \"pid\": %u, \"tid\": %u, \"ts\": %u, \"dur\": "
            "%u, \"args\": {%s%s}}",
            i ? "," : "", KINDS[next(seed, 6)], next(seed, 2), next(seed, 2), next(seed, 30), next(seed, 12), id, correlation);
        assert_true(used < room);
    }
}

static void any_trace_follows_the_rule(void **state) {
    (void)state;
    static char events[1 << 16];
    uint32_t seed = 11;
    for (int round = 0; round < 150; round++) {
        prof_trace wanted, got;
        random_events(&seed, 5 + round, events, sizeof events);
        load(events, 0, &wanted);
        load(events, QN_PROFILE_OWNER_ENCLOSING, &got);
        apply_rule(&wanted);
        assert_same_ids(&wanted, &got);
        qn_prof_trace_free(&wanted);
        qn_prof_trace_free(&got);
    }
}

/* The case the rule is for: ids that equal correlations, so that no operator owns its launch. */
static void kernels_come_back_to_their_operator(void **state) {
    (void)state;
    static const char EVENTS[] =
        "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, \"ts\": 0, \"dur\": 100, \"args\": "
        "{\"External id\": 5}},"
        "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"launch\", \"pid\": 1, \"tid\": 1, \"ts\": 10, \"dur\": 5, "
        "\"args\": "
        "{\"External id\": 77, \"correlation\": 77}},"
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 0, \"tid\": 7, \"ts\": 20, \"dur\": 30, \"args\": "
        "{\"External id\": 77, \"correlation\": 77, \"device\": 0}}";
    prof_trace trace;
    load(EVENTS, 0, &trace);
    assert_int_equal(trace.op_groups[PROF_BY_NAME].at[0].device_total.i, 0);
    qn_prof_trace_free(&trace);
    load(EVENTS, QN_PROFILE_OWNER_ENCLOSING, &trace);
    assert_int_equal(trace.op_groups[PROF_BY_NAME].at[0].device_total.i, 30);
    qn_prof_trace_free(&trace);
}

static void owners_are_one_or_the_other(void **state) {
    (void)state;
    qn_profile *profile;
    qn_error error;
    qn_profile_options options = qn_profile_options_default();
    options.flags = QN_PROFILE_OWNER_TIME | QN_PROFILE_OWNER_ENCLOSING;
    assert_int_equal(qn_profile_open(".", &options, &profile, &error), QN_ARGUMENT);
    assert_non_null(strstr(error.text, "not both"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_trace_follows_the_rule),
        cmocka_unit_test(kernels_come_back_to_their_operator),
        cmocka_unit_test(owners_are_one_or_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
