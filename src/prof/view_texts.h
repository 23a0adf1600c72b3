/* The fixed sentences of the views: tooltips and advice, word for word as the reference's readers know them, slips included
 * ("does not using", "chidren"). Bytes 1 to 4 in a text are places to fill in: see qn_prof_view_fill. */
#ifndef QUERN_PROF_VIEW_TEXTS_H
#define QUERN_PROF_VIEW_TEXTS_H

#include "prof/prof_json.h"

/* Writes a text as part of a JSON string, replacing byte 1 by the device word and bytes 2, 3, 4 by the given parts. */
void qn_prof_view_fill(prof_json *json, const char *text, const char *word, const char *const part[3]);

/* Device metrics of the overview; concatenated in this order. */
extern const char qn_prof_text_metrics[], qn_prof_text_utilisation[], qn_prof_text_efficiency[], qn_prof_text_occupancy[],
    qn_prof_text_tc_share[], qn_prof_text_tc_share_a[];

/* Advice in order of section 11; 2: number, 3: second number, 4: device name. */
extern const char qn_prof_advice_loader[], qn_prof_advice_dp[], qn_prof_advice_nccl[], qn_prof_advice_cncl[],
    qn_prof_advice_communication[], qn_prof_advice_utilisation[], qn_prof_advice_amp[], qn_prof_advice_memory[];

/* Operator tables. */
extern const char qn_prof_text_op_eligible[], qn_prof_text_op_tc_self[], qn_prof_text_op_tc_total[];

/* Kernel tables. */
extern const char qn_prof_text_kernel_tc[], qn_prof_text_kernel_tc_a[], qn_prof_text_kernel_op_eligible[],
    qn_prof_text_kernel_blocks[], qn_prof_text_kernel_occupancy[];

/* Memory views. */
extern const char qn_prof_text_mem_calls[], qn_prof_text_mem_increase[], qn_prof_text_mem_self_increase[],
    qn_prof_text_mem_count[], qn_prof_text_mem_self_count[], qn_prof_text_mem_size[], qn_prof_text_mem_self_size[],
    qn_prof_text_curve_time[], qn_prof_text_curve_allocated[], qn_prof_text_curve_reserved[];

#endif
