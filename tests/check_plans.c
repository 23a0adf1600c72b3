/* The graphs of check_plans.h, and what runs them. An output "loss" is derived by every param of f32 whose name begins with w, and those
 * take a step of gradient descent. */
#include "check_plans.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *text;
} plans[] = {
    {"convolutional net, a step of training", "quern graph 1\n"
                                              "input %x f32[4, 16, 28, 28]\n"
                                              "input %labels f32[4, 10]\n"
                                              "param %w1 f32[32, 16, 3, 3]\n"
                                              "param %w1g f32[32]\n"
                                              "param %w1b f32[32]\n"
                                              "param %mean f32[32]\n"
                                              "param %var f32[32]\n"
                                              "param %w2 f32[64, 32, 3, 3]\n"
                                              "param %w3 f32[10, 3136]\n"
                                              "%c1 = conv %x %w1 {padding=(1, 1)}\n"
                                              "%n1 = batch_norm %c1 %w1g %w1b %mean %var {training=1}\n"
                                              "%r1 = unary.relu %n1\n"
                                              "%c2 = conv %r1 %w2 {stride=(2, 2), padding=(1, 1)}\n"
                                              "%r2 = unary.gelu %c2\n"
                                              "%p = pool.max %r2 {kernel=(2, 2), stride=(2, 2)}\n"
                                              "%f = reshape %p {shape=(4, 3136)}\n"
                                              "%l = mul_mat %w3 %f\n"
                                              "%loss = cross_entropy_loss %l %labels\n"
                                              "output %loss \"loss\"\n"},
    {"transformer, a step of training", "quern graph 1\n"
                                        "input %x f32[96, 128]\n"
                                        "input %labels f32[96, 300]\n"
                                        "input %pos i32[96]\n"
                                        "param %wg f32[128]\n"
                                        "param %wb f32[128]\n"
                                        "param %wq f32[128, 128]\n"
                                        "param %wk f32[128, 128]\n"
                                        "param %wv f32[128, 128]\n"
                                        "param %wo f32[128, 128]\n"
                                        "param %wgate f32[256, 128]\n"
                                        "param %wup f32[256, 128]\n"
                                        "param %wdown f32[128, 256]\n"
                                        "param %wlast f32[300, 128]\n"
                                        "%h = layer_norm %x %wg %wb\n"
                                        "%q0 = mul_mat %wq %h\n"
                                        "%q1 = reshape %q0 {shape=(1, 96, 4, 32)}\n"
                                        "%q2 = rope %q1 %pos {n_dims=32, mode=2}\n"
                                        "%q = permute %q2 {axes=(0, 2, 1, 3)}\n"
                                        "%k0 = mul_mat %wk %h\n"
                                        "%k1 = reshape %k0 {shape=(1, 96, 4, 32)}\n"
                                        "%k2 = rope %k1 %pos {n_dims=32, mode=2}\n"
                                        "%k = permute %k2 {axes=(0, 2, 1, 3)}\n"
                                        "%v0 = mul_mat %wv %h\n"
                                        "%v1 = reshape %v0 {shape=(1, 96, 4, 32)}\n"
                                        "%v = permute %v1 {axes=(0, 2, 1, 3)}\n"
                                        "%a0 = attention %q %k %v {mask_kind=1}\n"
                                        "%a1 = permute %a0 {axes=(0, 2, 1, 3)}\n"
                                        "%a = cont %a1 {shape=(96, 128)}\n"
                                        "%o = mul_mat %wo %a\n"
                                        "%r = add %x %o\n"
                                        "%m = rms_norm %r\n"
                                        "%gate = mul_mat %wgate %m\n"
                                        "%up = mul_mat %wup %m\n"
                                        "%act = glu.swiglu %gate %up\n"
                                        "%down = mul_mat %wdown %act\n"
                                        "%r2 = add %r %down\n"
                                        "%l = mul_mat %wlast %r2\n"
                                        "%loss = cross_entropy_loss %l %labels\n"
                                        "output %loss \"loss\"\n"},
    {"transformer with weights in blocks", "quern graph 1\n"
                                           "input %x f32[33, 512]\n"
                                           "input %pos i32[33]\n"
                                           "param %g f32[512]\n"
                                           "param %q q4_0[512, 512]\n"
                                           "param %k q8_0[128, 512]\n"
                                           "param %v q5_0[128, 512]\n"
                                           "param %o q4_K[512, 512]\n"
                                           "param %gate q4_K[1024, 512]\n"
                                           "param %up q5_K[1024, 512]\n"
                                           "param %down q6_K[512, 1024]\n"
                                           "param %last f16[700, 512]\n"
                                           "%h = rms_layer_norm %x %g\n"
                                           "%q0 = mul_mat %q %h\n"
                                           "%q1 = reshape %q0 {shape=(1, 33, 8, 64)}\n"
                                           "%q2 = rope %q1 %pos {n_dims=64, mode=2}\n"
                                           "%q3 = permute %q2 {axes=(0, 2, 1, 3)}\n"
                                           "%k0 = mul_mat %k %h\n"
                                           "%k1 = reshape %k0 {shape=(1, 33, 2, 64)}\n"
                                           "%k2 = rope %k1 %pos {n_dims=64, mode=2}\n"
                                           "%k3 = permute %k2 {axes=(0, 2, 1, 3)}\n"
                                           "%k4 = cont %k3 {dtype=f16}\n"
                                           "%v0 = mul_mat %v %h\n"
                                           "%v1 = reshape %v0 {shape=(1, 33, 2, 64)}\n"
                                           "%v2 = permute %v1 {axes=(0, 2, 1, 3)}\n"
                                           "%v3 = cont %v2 {dtype=f16}\n"
                                           "%a0 = flash_attn_ext %q3 %k4 %v3 _ _ {scale=0.125}\n"
                                           "%a = reshape %a0 {shape=(33, 512)}\n"
                                           "%o0 = mul_mat %o %a\n"
                                           "%r = add %x %o0\n"
                                           "%m = rms_layer_norm %r %g\n"
                                           "%gate0 = mul_mat %gate %m\n"
                                           "%up0 = mul_mat %up %m\n"
                                           "%act = glu.swiglu %gate0 %up0\n"
                                           "%down0 = mul_mat %down %act\n"
                                           "%r2 = add %r %down0\n"
                                           "%l = mul_mat %last %r2\n"
                                           "%best, %ids = top_k_pairs %l {k=5}\n"
                                           "output %l \"logits\"\n"
                                           "output %best \"best\"\n"
                                           "output %ids \"ids\"\n"},
    {"branches and loops", "quern graph 1\n"
                           "input %x f32[40, 64, 48]\n"
                           "input %s f32[64, 48]\n"
                           "param %w f32[48, 48]\n"
                           "input %go i32[1]\n"
                           "%y = cond %go %s %w {then_body={\n"
                           "  input %s f32[64, 48]\n"
                           "  input %w f32[48, 48]\n"
                           "  %1 = mul_mat %w %s\n"
                           "  output %1 \"y\"\n"
                           "}, else_body={\n"
                           "  input %s f32[64, 48]\n"
                           "  input %w f32[48, 48]\n"
                           "  %1 = unary.tanh %s\n"
                           "  output %1 \"y\"\n"
                           "}}\n"
                           "%c, %ys = scan_loop %y %x %w {n_carry=1, n_xs=1, body={\n"
                           "  input %s f32[64, 48]\n"
                           "  input %x f32[64, 48]\n"
                           "  input %w f32[48, 48]\n"
                           "  %1 = mul_mat %w %s\n"
                           "  %2 = add %1 %x\n"
                           "  %3 = rms_norm %2\n"
                           "  output %3 \"s\"\n"
                           "  output %1 \"y\"\n"
                           "}}\n"
                           "%z = while_loop %c %w {max_trips=5, test={\n"
                           "  input %s f32[64, 48]\n"
                           "  input %w f32[48, 48]\n"
                           "  %1 = sum %s\n"
                           "  %2 = unary.step %1\n"
                           "  %3 = scale %2 {s=1, b=1}\n"
                           "  output %3 \"go\"\n"
                           "}, body={\n"
                           "  input %s f32[64, 48]\n"
                           "  input %w f32[48, 48]\n"
                           "  %1 = mul_mat %w %s\n"
                           "  %2 = soft_max %1\n"
                           "  output %2 \"s\"\n"
                           "}}\n"
                           "output %ys \"ys\"\n"
                           "output %z \"z\"\n"},
};

int qc_plans_count(void) { return (int)(sizeof plans / sizeof *plans); }

static qn_val output_named(const qn_graph *g, const char *want) {
    for (int32_t i = 0; i < qn_graph_output_count(g); i++) {
        const char *name = NULL;
        qn_val v = qn_graph_output_value(g, i, &name);
        if (name && strcmp(name, want) == 0) return v;
    }
    return QN_VAL_NONE;
}

enum { MOST_WEIGHTS = 16 };

/* Gradients of the loss become outputs, and steps of the params they are of. */
static qn_status train(qn_graph *g, qn_val loss) {
    static const float rate[2] = {0.01f, 0};
    qn_val wrt[MOST_WEIGHTS], grads[MOST_WEIGHTS], next;
    int n = 0;
    for (qn_val v = 0; v < qn_graph_value_count(g) && n < MOST_WEIGHTS; v++) {
        qn_value_info info = {.size = sizeof info};
        if (qn_graph_value(g, v, &info) == QN_OK && info.kind == QN_VALUE_PARAM && *info.name == 'w') wrt[n++] = v;
    }
    qn_val hyper = qn_graph_constant(g, QN_DTYPE_F32, 1, (int64_t[]){2}, rate, sizeof rate);
    qn_status status = qn_graph_grad(g, loss, n, wrt, grads);
    for (int i = 0; status == QN_OK && i < n; i++) {
        char name[] = "grad_a";
        name[5] = (char)('a' + i);
        status = qn_graph_output(g, grads[i], name);
        next = qn_graph_op(g, QN_OP_opt_step_sgd, 0, 3, (qn_val[]){wrt[i], grads[i], hyper}, NULL);
        name[0] = 'n';
        if (status == QN_OK) status = next == QN_VAL_NONE ? QN_INVALID : qn_graph_output(g, next, name);
    }
    return status;
}

/* Floats in [-1, 1), positions in order, blocks of small scales. */
static void fill(const qn_tensor *t, uint64_t bytes, uint64_t seed) {
    qc_rng rng = {seed};
    unsigned char *to = t->data;
    for (uint64_t i = 0; t->dtype == QN_DTYPE_F32 && i < bytes / 4; i++)
        ((float *)t->data)[i] = (float)(qc_unit(&rng) * 2 - 1) / (t->rank > 1 ? 8 : 1);
    for (uint64_t i = 0; t->dtype == QN_DTYPE_I32 && i < bytes / 4; i++) ((int32_t *)t->data)[i] = (int32_t)i + 1;
    for (uint64_t i = 0; t->dtype == QN_DTYPE_F16 && i < bytes / 2; i++)
        ((uint16_t *)t->data)[i] = (uint16_t)(0x2c00u | (qc_next(&rng) >> 20 & 0x83ffu));
    if (t->dtype == QN_DTYPE_F32 || t->dtype == QN_DTYPE_I32 || t->dtype == QN_DTYPE_F16) return;
    for (uint64_t i = 0; i < bytes; i++) to[i] = (unsigned char)(qc_next(&rng) >> 20 & 0x27u);
}

static qn_status set_leaf(qn_plan *plan, const qn_value_info *info, uint64_t seed, qn_error *e) {
    uint64_t bytes = 0;
    qn_tensor t;
    qn_status status = qn_tensor_bytes(info->dtype, info->rank, info->shape, &bytes);
    void *data = malloc(bytes ? bytes : 1);
    if (status == QN_OK && !data) status = QN_NO_MEMORY;
    if (status == QN_OK) status = qn_tensor_init(&t, info->dtype, info->rank, info->shape, data, bytes);
    if (status == QN_OK) {
        fill(&t, bytes, seed);
        status = qn_plan_set(plan, info->name, &t, e);
    }
    free(data);
    return status;
}

int qc_plan_begin(int number, qc_plan *p) {
    qn_error e = {QN_OK, ""};
    *p = (qc_plan){plans[number].name, NULL, NULL};
    qn_status status = qn_graph_parse(plans[number].text, strlen(plans[number].text), 0, &p->graph, &e);
    if (status == QN_OK && output_named(p->graph, "loss") != QN_VAL_NONE) {
        status = train(p->graph, output_named(p->graph, "loss"));
        if (status != QN_OK) qn_graph_error(p->graph, &e);
    }
    if (status == QN_OK) status = qn_plan_create(p->graph, NULL, &p->plan, &e);
    for (qn_val v = 0; status == QN_OK && v < qn_graph_value_count(p->graph); v++) {
        qn_value_info info = {.size = sizeof info};
        status = qn_graph_value(p->graph, v, &info);
        if (status == QN_OK && (info.kind == QN_VALUE_INPUT || info.kind == QN_VALUE_PARAM))
            status = set_leaf(p->plan, &info, (uint64_t)v + 1, &e);
    }
    if (status == QN_OK) return 1;
    qc_fail(NULL, "plan \"%s\": %s", p->name, e.text);
    qc_plan_end(p);
    return 0;
}

/* Bits that agree say little when they are NaN. */
static int is_finite(const qn_tensor *t, const unsigned char *dense, size_t bytes) {
    for (size_t i = 0; t->dtype == QN_DTYPE_F32 && i + 4 <= bytes; i += 4) {
        float v;
        memcpy(&v, dense + i, 4);
        if (!isfinite(v)) return 0;
    }
    return 1;
}

int64_t qc_plan_run(qc_plan *p, qn_context *context, unsigned char *out, size_t room) {
    qn_error e = {QN_OK, ""};
    size_t n = 0;
    qn_status status = QN_OK;
    for (int i = 0; i < 3 && status == QN_OK; i++) status = qn_plan_run(p->plan, context, &e);
    for (int32_t i = 0; status == QN_OK && i < qn_graph_output_count(p->graph); i++) {
        const char *name = NULL;
        qn_tensor t = {0};
        qn_graph_output_value(p->graph, i, &name);
        status = qn_plan_output(p->plan, name, &t, &e);
        size_t more = status == QN_OK ? qc_gather(&t, out + n, room - n) : 0;
        if (!is_finite(&t, out + n, more)) qc_fail(NULL, "plan \"%s\": output %s is not finite", p->name, name);
        n += more;
    }
    if (status == QN_OK) return (int64_t)n;
    qc_fail(NULL, "plan \"%s\": %s", p->name, e.text);
    return -1;
}

void qc_plan_end(qc_plan *p) {
    qn_plan_destroy(p->plan);
    qn_graph_destroy(p->graph);
}
