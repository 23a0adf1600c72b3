/* What this machine's processor can do, asked of the processor and of the system: an instruction whose registers the system does
 * not save is not there. */
#define _DEFAULT_SOURCE /* syscall */
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "thread/cores.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PERMIT_STATE = 0x1023, TILE_DATA = 18 }; /* arch_prctl's request, and the state that AMX tiles are kept in */

/* Nothing else reads it, and it is an instruction of its own level. */
static uint64_t saved_states(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

typedef struct leaves {
    uint32_t c1, b7, c7, d7, a71; /* ecx of leaf 1; ebx, ecx, edx of leaf 7; eax of leaf 7.1 */
} leaves;

static int bit(uint32_t word, int n) { return word >> n & 1; }

static int has_amx(const leaves *f, uint64_t states) {
    int tiles = bit(f->d7, 22) && bit(f->d7, 24) && bit(f->d7, 25) && (states & 0x60000) == 0x60000;
    int floats = bit(f->a71, 5) && bit(f->d7, 23); /* AVX512_BF16, AVX512_FP16 */
    return tiles && floats;
}

/* From then on what a signal saves is larger by 8 KB, and sigaltstack refuses the process stacks that were large enough before: so
 * nobody asks who does without tiles. */
static int may_use_tiles(void) { return syscall(SYS_arch_prctl, PERMIT_STATE, TILE_DATA) == 0; }

/* Skylake's and Cascade Lake's servers: one core copies 64 MB at 9.7 GB/s past its caches, and at 12.3 through them where both
 * sides are asked for ahead, two cores twice that. Many together are bound by the memory, which has less to do past the caches: eight
 * of them want what six channels give. */
static int is_slow_past_caches(uint32_t version) {
    enum { FEW = 8 };
    uint32_t family = version >> 8 & 15, model = (version >> 4 & 15) | (version >> 12 & 0xf0);
    if (family != 6 || model != 0x55) return 0;
    int cores = qn_cores_allowed();
    return cores > 0 && cores <= FEW;
}

static uint32_t detect(uint32_t wanted) {
    leaves f = {0, 0, 0, 0, 0};
    uint32_t a, b, c, d, version, levels = 1u << QN_CPU_LEVEL_c;
    /* No more questions than it takes: in a virtual machine each one stops the processor for microseconds. */
    if (__get_cpuid_max(0, NULL) < 7) return levels;
    __cpuid(1, version, b, f.c1, d);
    __cpuid_count(7, 0, a, f.b7, f.c7, f.d7);
    if (a >= 1) __cpuid_count(7, 1, f.a71, b, c, d);
    uint64_t states = bit(f.c1, 27) ? saved_states() : 0;
    if ((states & 6) != 6 || !bit(f.b7, 5) || !bit(f.b7, 8) || !bit(f.c1, 12) || !bit(f.c1, 29)) return levels;
    levels |= 1u << QN_CPU_LEVEL_avx2;
    if (is_slow_past_caches(version)) levels |= QN_CPU_NEAR;
    if (bit(f.a71, 4)) levels |= 1u << QN_CPU_LEVEL_avxvnni;
    int wide = bit(f.b7, 16) && bit(f.b7, 17) && bit(f.b7, 30) && bit(f.b7, 31) && bit(f.c7, 11);
    if (!wide || (states & 0xe0) != 0xe0) return levels;
    levels |= 1u << QN_CPU_LEVEL_avx512;
    if (bit(f.c7, 1) && bit(f.c7, 6)) levels |= 1u << QN_CPU_LEVEL_vbmi;
    if ((wanted >> QN_CPU_LEVEL_amx & 1) && has_amx(&f, states) && may_use_tiles()) levels |= 1u << QN_CPU_LEVEL_amx;
    return levels;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>
#include <sys/prctl.h>

/* Bytes of a vector of SVE in this thread and those it starts; negative where the system knows none. Headers older than it lack
 * PR_SVE_GET_VL. */
static int sve_bytes(void) {
    enum { GET_LENGTH = 51, LENGTH_MASK = 0xffff };
    int length = prctl(GET_LENGTH, 0, 0, 0, 0);
    return length < 0 ? length : length & LENGTH_MASK;
}

static uint32_t detect(uint32_t wanted) {
    (void)wanted;
    /* bit numbers of the kernel's interface */
    enum { FPHP = 9, ASIMDHP = 10, ASIMDDP = 20, SVE = 22, ASIMDFHM = 23, SVEI8MM2 = 9, I8MM2 = 13 };
    unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
    uint32_t levels = 1u << QN_CPU_LEVEL_c | 1u << QN_CPU_LEVEL_neon;
    if (!(one >> FPHP & 1) || !(one >> ASIMDHP & 1) || !(one >> ASIMDDP & 1)) return levels;
    levels |= 1u << QN_CPU_LEVEL_dotprod;
    if (!(two >> I8MM2 & 1) || !(one >> ASIMDFHM & 1)) return levels;
    levels |= 1u << QN_CPU_LEVEL_i8mm;
    /* Code for 32 bytes gives wrong results at any other length: those machines stay with NEON. */
    if ((one >> SVE & 1) && (two >> SVEI8MM2 & 1) && sve_bytes() == 32) levels |= 1u << QN_CPU_LEVEL_sve;
    return levels;
}

#else
static uint32_t detect(uint32_t wanted) {
    (void)wanted;
    return 1u << QN_CPU_LEVEL_c;
}
#endif

uint32_t qn_cpu_levels(void) {
    const char *mask = getenv("QUERN_CPU");
    if (mask && strcmp(mask, "none") == 0) return 0;
    /* SVE where it is named only: under emulation some ops were not walked to their end, and nobody has timed it. */
    uint32_t wanted = mask && *mask ? qn_cpu_levels_parse(mask, ~0u) : ~(1u << QN_CPU_LEVEL_sve);
    uint32_t levels = wanted & detect(wanted);
    return mask && *mask ? levels | (wanted & QN_CPU_NEAR) : levels;
}
