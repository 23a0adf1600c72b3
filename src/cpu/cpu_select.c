/* Which levels there are, and the walk from the best of them down to the first that takes a call. */
#include "cpu/cpu_detour.h"

#include <string.h>

#include "tensor/dtype.h"

#define QN_CPU_HERE_any(...) __VA_ARGS__
#if defined(__x86_64__)
#define QN_CPU_HERE_x86_64(...) __VA_ARGS__
#else
#define QN_CPU_HERE_x86_64(...)
#endif
#if defined(__aarch64__)
#define QN_CPU_HERE_aarch64(...) __VA_ARGS__
#else
#define QN_CPU_HERE_aarch64(...)
#endif

#define QN_CPU_LEVEL(name, arch, summary) QN_CPU_HERE_##arch(extern const qn_cpu_kernel_fn qn_cpu_table__##name[QN_OP_COUNT];)
#include "cpu/cpu_levels.def"
#undef QN_CPU_LEVEL

static const qn_cpu_kernel_fn *const tables[QN_CPU_LEVEL_COUNT] = {
#define QN_CPU_LEVEL(name, arch, summary) QN_CPU_HERE_##arch([QN_CPU_LEVEL_##name] = qn_cpu_table__##name, )
#include "cpu/cpu_levels.def"
#undef QN_CPU_LEVEL
};

static const char *const names[QN_CPU_LEVEL_COUNT] = {
#define QN_CPU_LEVEL(name, arch, summary) #name,
#include "cpu/cpu_levels.def"
#undef QN_CPU_LEVEL
};

const char *qn_cpu_level_name(int level) { return level >= 0 && level < QN_CPU_LEVEL_COUNT ? names[level] : NULL; }

uint32_t qn_cpu_levels_parse(const char *list, uint32_t have) {
    uint32_t chosen = 1u << QN_CPU_LEVEL_c;
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ", ");
        for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++)
            if (strlen(names[l]) == n && memcmp(names[l], at, n) == 0) chosen |= have & 1u << l;
        if (n == 4 && memcmp(at, "near", n) == 0) chosen |= have & QN_CPU_NEAR;
        at += n + strspn(at + n, ", ");
    }
    return chosen;
}

/* Elements at addresses that are multiples of their size. Guards do not ask for it, references do without it, kernels need it. */
static int is_aligned(const qn_tensor *t) {
    if (!t || qn_is_block(t->dtype)) return 1;
    uint64_t size = qn_dtype_bytes(t->dtype), bits = (uintptr_t)t->data | (uint64_t)t->offset;
    for (int k = 0; k < t->rank; k++) bits |= (uint64_t)t->stride[k];
    return (bits & (size - 1)) == 0;
}

static int all_aligned(const qn_call *c) {
    int yes = 1;
    for (int i = 0; i < c->n_src; i++) yes &= is_aligned(c->src[i]);
    for (int i = 0; i < c->n_dst; i++) yes &= is_aligned(c->dst[i]);
    return yes;
}

/* In pieces of a size that compilers store directly: for the whole they take an instruction that costs more than all else here. */
static inline void clear(qn_cpu_step *s) {
    enum { PIECE = 64, WHOLE = sizeof *s / PIECE * PIECE };
    for (size_t at = 0; at < WHOLE; at += PIECE) memset((char *)s + at, 0, PIECE);
    memset((char *)s + WHOLE, 0, sizeof *s - WHOLE);
}

int qn_cpu_choose(uint32_t levels, const qn_call *c, qn_cpu_step *s) {
    uint32_t constant = s->constant;
    int aligned = -1; /* not looked at yet: most ops have no kernel at some level */
    for (int l = QN_CPU_LEVEL_COUNT - 1; l >= 0; l--) {
        if (!(levels >> l & 1) || !tables[l] || !tables[l][c->op]) continue;
        if (aligned < 0) aligned = all_aligned(c);
        if (!aligned) return 0;
        clear(s);
        s->constant = constant;
        s->level = l;
        s->is_near = (levels & QN_CPU_NEAR) != 0;
        if (tables[l][c->op](c, s)) return 1;
    }
    return 0;
}

int qn_cpu_prepare(uint32_t levels, const qn_call *c, qn_cpu_step *s) {
    return qn_cpu_choose(levels, c, s) || qn_cpu_detour(levels, c, s);
}

int qn_cpu_has_kernel_at(int level, int op) { return tables[level] && tables[level][op]; }

int qn_cpu_has_kernel(int op) {
    for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++)
        if (qn_cpu_has_kernel_at(l, op)) return 1;
    return 0;
}

void qn_cpu_part(void *arg, int64_t part) {
    const qn_cpu_job *job = arg;
    job->step->run(job->call, job->step, job->phase, part);
}

typedef struct pack_job {
    const qn_call *call;
    const qn_cpu_step *step;
    void *packed;
} pack_job;

static void pack_part(void *arg, int64_t part) {
    const pack_job *job = arg;
    job->step->pack(job->call, job->step, job->packed, part);
}

void qn_cpu_pack(qn_pool *pool, const qn_call *c, const qn_cpu_step *s, void *packed) {
    pack_job job = {c, s, packed};
    qn_pool_for(pool, s->pack_parts, pack_part, &job);
}
