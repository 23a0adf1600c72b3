/* Networks written down once and used by `quern train`, `quern plan --example` and `quern bench plan`: a graph with its params, how
 * they start, and an AdamW step for each. */
#ifndef QN_APPS_NET_H
#define QN_APPS_NET_H

#include <quern/quern.h>

enum { NET_PARAMS = 512 };

typedef struct net_param {
    char name[64];
    qn_val value;
    int rank;
    int64_t shape[QN_MAX_RANK];
    float spread; /* uniform in [-spread, spread); 0: `fill` everywhere */
    float fill;
} net_param;

typedef struct net {
    qn_graph *graph;
    net_param params[NET_PARAMS];
    int n_params;
    float clip; /* gradients together are made no longer than this; 0: as they are */
} net;

/* An example by name: "mnist", "gpt2"; NULL past the last number. */
typedef struct net_example {
    const char *name, *summary;
    int (*build)(net *n); /* 0: the graph's error says why */
} net_example;
const net_example *net_example_at(int i);
const net_example *net_example_find(const char *name);

qn_val net_param_new(net *n, const char *name, float spread, float fill, int rank, const int64_t *shape);
qn_val net_add(net *n, qn_val a, qn_val b); /* broadcast */
qn_val net_matmul(net *n, qn_val a, qn_val b, int transposed_b);
qn_val net_reshape(net *n, qn_val a, int rank, const int64_t *shape);
qn_val net_unary(net *n, int sub, qn_val a);
/* Gradients of the loss by every param, an AdamW step for each, and the loss as output "loss". Adds the input "hyper" [7]. */
int net_train_step(net *n, qn_val loss);

/* The CNN of `quern train --example mnist`: images [batch, 1, 28, 28], labels [batch, 10] one-hot; output "logits". With `train` also
 * the loss and its steps. */
int net_mnist(net *n, int64_t batch, int train);
int net_gpt2(net *n);

#endif
