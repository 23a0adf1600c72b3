/* The sentences themselves, as section 11 and the expected views give them. */
#include "prof/view_texts.h"

#include <string.h>

#define WORD "\1"
#define FIRST "\2"
#define SECOND "\3"
#define DEVICE "\4"
#define LINK(url, label) "<a href=\"" url "\" target=\"_blank\">" label "</a>"

void qn_prof_view_fill(prof_json *json, const char *text, const char *word, const char *const part[3]) {
    while (*text) {
        size_t plain = strcspn(text, WORD FIRST SECOND DEVICE);
        qn_prof_json_part_bytes(json, text, plain);
        text += plain;
        if (*text) {
            const char *filling = *text == 1 ? word : part ? part[*text - 2] : "";
            qn_prof_json_part(json, filling ? filling : "");
            text++;
        }
    }
}

/* ---- Device metrics ----------------------------------------------------------------------------------------------- */

#define OCCUPANCY                                                                                                              \
    "Est. Achieved Occupancy:\nFor most cases such as memory bandwidth bounded kernels, the higher the better. Occupancy is "  \
    "the ratio of active warps on an SM to the maximum number of active warps supported by the SM. The theoretical occupancy " \
    "of a kernel is upper limit occupancy of this kernel, limited by multiple factors such as kernel shape, kernel used "      \
    "resource, and the GPU compute capability.\nEst. Achieved Occupancy of a kernel, OCC_K = min(threads of the kernel / SM "  \
    "number / max threads per SM, theoretical occupancy of the kernel). "

const char qn_prof_text_metrics[] = "The " WORD " usage metrics:\n";
const char qn_prof_text_utilisation
    [] = "\n" WORD " Utilization:\n" WORD " busy time / All steps time. The higher, the better. " WORD
         " busy time is the time during which there is at least one " WORD
         " kernel running on it. All steps time is the total time of all profiler steps(or called as iterations).\n";
const char qn_prof_text_efficiency
    [] = "\nEst. SM Efficiency:\nEstimated Stream Multiprocessor Efficiency. The higher, the better. This metric of a kernel, "
         "SM_Eff_K = min(blocks of this kernel / SM number of this GPU, 100%). This overall number is the sum of all kernels' "
         "SM_Eff_K weighted by kernel's execution duration, divided by all steps time.\n";
const char qn_prof_text_occupancy
    [] = "\n" OCCUPANCY "This overall number is the weighted average of all kernels' OCC_K using kernel's execution duration as "
         "weight. It shows fine-grained low-level GPU utilization.\n";
#define TC_SHARE \
    "\nKernel using Tensor Cores:\nTotal " WORD " Time for Tensor Core kernels / Total " WORD " Time for all kernels.\n"
const char qn_prof_text_tc_share[] = TC_SHARE;
const char qn_prof_text_tc_share_a[] = TC_SHARE "It is always 0.0 On MLU devices because MLU does not using Tensor Cores.\n";

/* ---- Advice ------------------------------------------------------------------------------------------------------- */

const char qn_prof_advice_loader[] = "This run has high time cost on input data loading. " FIRST
                                     "% of the step time is in DataLoader. You could try to set "
                                     "num_workers on DataLoader's construction and " LINK(
                                         "https://pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading",
                                         "enable multi-processes on data loading") ".";
const char qn_prof_advice_dp[] = "It is recommended to " LINK(
    "https://pytorch.org/docs/stable/notes/cuda.html#cuda-nn-ddp-instead",
    "use DistributedDataParallel instead of DataParallel") " to do multi-" FIRST " training.";
const char
    qn_prof_advice_nccl[] = "Nccl backend is currently the fastest and highly recommended backend when using DDP for training.";
const char
    qn_prof_advice_cncl[] = "Cncl backend is currently the fastest and highly recommended backend when using DDP for training.";
const char qn_prof_advice_communication
    [] = "This run has high time cost on communication. " FIRST "% of the step time is in communication. You could try " LINK(
        "('https://pytorch.org/docs/stable/ddp_comm_hooks.html',)",
        "Gradient Compression") " or " LINK("https://towardsdatascience.com/"
                                            "what-is-gradient-accumulation-in-deep-learning-ec034122cfa",
                                            "Gradient Accumulation") " or increase the batch size. Note: Gradient accumulation "
                                                                     "will increase global effective "
                                                                     "batch size, which may hurt model convergence and accuracy. "
                                                                     "For such case, you may want to evaluate " LINK(
                                                                         "https://nvidia.github.io/apex/"
                                                                         "optimizers.html#apex.optimizers.FusedLAMB",
                                                                         "LAMB optimizer") ".";
const char qn_prof_advice_utilisation[] = WORD
    " " FIRST " " SECOND " low utilization. You could try to increase batch size to improve. Note: Increasing batch size "
    "may affect the speed and stability of model convergence.";
const char qn_prof_advice_amp[] = "Kernels with " FIRST
                                  "% time are launched by Tensor Cores eligible operators. You could enable " LINK(
                                      "https://pytorch.org/docs/stable/amp.html",
                                      "Automatic Mixed Precision") " to speedup by using FP16.";
const char qn_prof_advice_memory[] = "Device memory usage is at the limit of device memory capacity (" FIRST "% of " SECOND
                                     "GB on " DEVICE "). To get better value of your " WORD
                                     " or to use larger batch size for training, please refer to " LINK(
                                         "https://pytorch.org/docs/stable/checkpoint.html",
                                         "Gradient Checkpoint") " or " LINK("https://pytorch.org/docs/stable/amp.html",
                                                                            "Automatic Mixed Precision") ".";

/* ---- Tables ------------------------------------------------------------------------------------------------------- */

const char qn_prof_text_op_eligible[] = "Whether this operator is eligible to use Tensor Cores.";
const char qn_prof_text_op_tc_self[] = "Time of self-kernels with Tensor Cores / Time of self-kernels.";
const char qn_prof_text_op_tc_total[] = "Time of kernels with Tensor Cores / Time of kernels.";

#define KERNEL_TC "Whether this kernel uses Tensor Cores."
const char qn_prof_text_kernel_tc[] = KERNEL_TC;
const char qn_prof_text_kernel_tc_a[] = KERNEL_TC " It's always NO On MLU devices because MLU does not have Tensor Cores.";
const char qn_prof_text_kernel_op_eligible[] = "Whether the operator launched this kernel is eligible to use Tensor Cores.";
const char qn_prof_text_kernel_blocks
    [] = "Blocks Per SM = blocks of this kernel / SM number of this GPU.\nIf this number is less than 1, it indicates the GPU "
         "multiprocessors are not fully utilized.\n\"Mean Blocks per SM\" is the weighted average of all calls of this kernel, "
         "using each call's execution duration as weight.";
const char qn_prof_text_kernel_occupancy[] = OCCUPANCY
    "This \"Mean\" number is the weighted average of all calls' OCC_K of the kernel, using each call's execution "
    "duration as weight. It shows fine-grained low-level GPU utilization.";

const char qn_prof_text_mem_calls[] = "# of calls of the operator.";
const char qn_prof_text_mem_increase[] = "The memory increase size include all children operators.";
const char qn_prof_text_mem_self_increase[] = "The memory increase size associated with the operator itself.";
const char qn_prof_text_mem_count[] = "The allocation count including all chidren operators.";
const char qn_prof_text_mem_self_count[] = "The allocation count belonging to the operator itself.";
const char qn_prof_text_mem_size[] = "The allocation size including all children operators.";
const char qn_prof_text_mem_self_size
    [] = "The allocation size belonging to the operator itself.\nIt will sum up all allocation bytes without considering the "
         "memory free.";
const char qn_prof_text_curve_time[] = "Time since profiler starts.";
const char qn_prof_text_curve_allocated[] = "Total memory in use.";
const char qn_prof_text_curve_reserved[] = "Total reserved memory by allocator, both used and unused.";
