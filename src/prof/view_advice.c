/* Recommendations: seven conditions on a finished analysis, in fixed order, as items of one HTML list. */
#include "prof/view_advice.h"

#include <string.h>

#include "base/decimal.h"
#include "prof/view_texts.h"
#include "prof/view_util.h"

enum { FIXED_TEXT = 400, NAME_TEXT = 64 };

typedef struct advice {
    prof_json *json;
    const prof_trace *trace;
    int given;
} advice;

static void give(advice *a, const char *text, const char *first, const char *second, const char *third) {
    const char *parts[3] = {first, second, third};
    qn_prof_json_part(a->json, "<li>");
    qn_prof_view_fill(a->json, text, a->trace->device_word, parts);
    qn_prof_json_part(a->json, "</li>");
    a->given = 1;
}

static const char *fixed1(double value, char *text) {
    qn_decimal_print(text, FIXED_TEXT, 'f', 1, value);
    return text;
}

/* The reference forms the share first and multiplies then; the other order rounds differently. */
static void share_advice(advice *a, prof_role role, double limit, const char *text) {
    char number[FIXED_TEXT];
    double share = a->trace->average[role] / a->trace->average_total;
    if (share > limit) {
        give(a, text, fixed1(share * 100, number), NULL, NULL);
    }
}

/* "major.minor" read as a decimal: 3.10 is 3.1. */
static int is_capable(const prof_prop *prop) {
    if (prop->compute_major.tag != PROF_INT || prop->compute_minor.tag != PROF_INT || prop->compute_major.i < 0 ||
        prop->compute_minor.i < 0) {
        return 0;
    }
    char text[2 * PROF_NUM_TEXT + 1];
    int n = qn_prof_int_text(prop->compute_major.i, text);
    text[n++] = '.';
    n += qn_prof_int_text(prop->compute_minor.i, text + n);
    return qn_prof_dbl_read(text, n) >= 3.5;
}

static void backend_advice(advice *a) {
    const prof_trace *trace = a->trace;
    if (!trace->use_ddp) {
        return;
    }
    if (prof_nvidia_rules(trace)) {
        for (size_t i = 0; i < trace->props.n && !(trace->libs & PROF_LIB_NCCL); i++) {
            if (is_capable(&trace->props.at[i])) {
                give(a, qn_prof_advice_nccl, NULL, NULL, NULL);
                return;
            }
        }
    } else if (!(trace->libs & PROF_LIB_CNCL) && (prof_is_b(trace) || trace->props.n)) {
        give(a, qn_prof_advice_cncl, NULL, NULL, NULL);
    }
}

/* The id of a device, which a made-up trace may write as text; at most PROF_NUM_TEXT bytes. */
static size_t id_text(const prof_trace *trace, prof_val id, char *text) {
    if (prof_is_num(id)) {
        return (size_t)(id.tag == PROF_DBL ? qn_prof_dbl_text(id.d, text) : qn_prof_int_text(id.i, text));
    }
    const prof_str *string = id.tag == PROF_LIST ? prof_list_text(trace, id) : prof_string(trace, (uint32_t)id.i);
    size_t n = string->length < PROF_NUM_TEXT ? string->length : PROF_NUM_TEXT;
    memcpy(text, string->at, n);
    return n;
}

/* The ids of idle devices as the reference joins them: "0", "0and 1", "0, 1and 2". */
static void utilisation_advice(advice *a) {
    char ids[FIXED_TEXT];
    size_t n = 0, idle = 0, done = 0;
    const prof_trace *trace = a->trace;
    for (size_t i = 0; i < trace->devices.n; i++) {
        idle += trace->devices.at[i].utilisation < 0.5;
    }
    for (size_t i = 0; i < trace->devices.n && n + PROF_NUM_TEXT + 4 < sizeof ids; i++) {
        const prof_device *device = &trace->devices.at[i];
        if (device->utilisation < 0.5) {
            const char *between = done == 0 ? "" : done + 1 == idle ? "and " : ", ";
            memcpy(ids + n, between, strlen(between));
            n += strlen(between);
            n += id_text(trace, device->id, ids + n);
            done++;
        }
    }
    ids[n] = 0;
    if (done) {
        give(a, qn_prof_advice_utilisation, ids, n == 1 ? "has" : "have", NULL);
    }
}

static void amp_advice(advice *a) {
    const prof_trace *trace = a->trace;
    char number[PROF_NUM_TEXT + 1];
    if (!prof_nvidia_rules(trace) || trace->props.n == 0 || !prof_is_num(trace->props.at[0].compute_major) ||
        prof_lt(trace->props.at[0].compute_major, prof_int(7))) {
        return;
    }
    if (trace->tc_kernel_share == 0 && trace->tc_eligible_share > 0) {
        prof_num percent = qn_prof_round0(prof_dbl(trace->tc_eligible_share * 100));
        int n = percent.tag == PROF_DBL ? qn_prof_dbl_text(percent.d, number) : qn_prof_int_text(percent.i, number);
        number[n] = 0;
        give(a, qn_prof_advice_amp, number, NULL, NULL);
    }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

/* The device a record's id addresses: negative ids count from the end of the list, as the CPU's -1 does. */
static const prof_prop *device_of(const prof_trace *trace, const prof_mem *record) {
    int64_t id = record->device_id.i, n = (int64_t)trace->props.n;
    if (record->device_id.tag != PROF_INT || id < -n || id >= n) {
        return NULL;
    }
    return &trace->props.at[id < 0 ? id + n : id];
}

/* The most allocated at once, per device in first-seen order. No machine has more devices than this; the rest of a made-up
 * trace is not looked at, so that its cost stays linear. */
enum { DEVICES = 128 };
typedef struct peaks {
    const prof_mem *device[DEVICES];
    prof_num peak[DEVICES];
    size_t n;
} peaks;

static void find_peaks(const prof_trace *trace, peaks *found) {
    size_t at;
    found->n = 0;
    for (size_t i = 0; i < trace->mems.n; i++) {
        const prof_mem *record = &trace->mems.at[i];
        for (at = 0; at < found->n; at++) {
            if (prof_same(found->device[at]->device_type, record->device_type) &&
                prof_same(found->device[at]->device_id, record->device_id)) {
                break;
            }
        }
        if (at == DEVICES) {
            continue;
        }
        if (at == found->n) {
            found->device[at] = record;
            found->peak[at] = prof_int(0);
            found->n++;
        }
        if (prof_is_num(record->allocated)) {
            found->peak[at] = prof_max(found->peak[at], record->allocated);
        }
    }
}

static void give_memory(advice *a, const prof_mem *device, prof_num peak, prof_num bytes) {
    char percent[FIXED_TEXT], gib[FIXED_TEXT], name[NAME_TEXT];
    size_t n = strlen(a->trace->device_word);
    memcpy(name, a->trace->device_word, n);
    n += (size_t)qn_prof_int_text(device->device_id.i, name + n);
    name[n] = 0;
    fixed1(prof_div(peak, bytes) * 100, percent);
    fixed1(prof_to_dbl(bytes) / 1024 / 1024 / 1024, gib);
    give(a, qn_prof_advice_memory, percent, gib, name);
}

static void memory_advice(advice *a) {
    const prof_trace *trace = a->trace;
    peaks found;
    if (trace->props.n == 0) {
        return;
    }
    find_peaks(trace, &found);
    for (size_t i = 0; i < found.n; i++) {
        const prof_prop *prop = device_of(trace, found.device[i]);
        prof_num bytes = prop ? qn_prof_view_device_bytes(trace, prop) : prof_absent();
        if (prof_is_num(bytes) && prof_to_dbl(bytes) > 0 && prof_gt(found.peak[i], prof_dbl(0.9 * prof_to_dbl(bytes)))) {
            give_memory(a, found.device[i], found.peak[i], bytes);
            return;
        }
    }
}

void qn_prof_view_advice(prof_json *json, const prof_trace *trace) {
    advice a = {json, trace, 0};
    qn_prof_json_string_begin(json);
    qn_prof_json_part(json, "<ul>");
    if (trace->average_total != 0) { /* shares of nothing say nothing */
        share_advice(&a, PROF_ROLE_DATALOADER, 0.05, qn_prof_advice_loader);
        if (trace->use_dp && trace->used_pids.n > 1) {
            give(&a, qn_prof_advice_dp, prof_is_b(trace) ? "card" : trace->device_word, NULL, NULL);
        }
        backend_advice(&a);
        share_advice(&a, PROF_ROLE_COMMUNICATION, 0.1, qn_prof_advice_communication);
        utilisation_advice(&a);
        amp_advice(&a);
        memory_advice(&a);
    }
    qn_prof_json_part(json, a.given ? "</ul>" : "<li>N/A</li></ul>");
    qn_prof_json_string_end(json);
}
