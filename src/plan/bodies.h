/* Inside a step with bodies. */
#ifndef QN_PLAN_BODIES_H
#define QN_PLAN_BODIES_H

#include "plan/plan.h"

enum { QN_PLAN_BODIES = 2 }; /* no op has more */

/* An input or output of a body: the values that lie in its memory. */
typedef struct qn_plan_port {
    qn_val root; /* QN_VAL_NONE: an output that is copied out */
    int32_t first, n;
} qn_plan_port;

typedef struct qn_plan_body {
    const char *name; /* of the attribute */
    qn_schedule *schedule;
    qn_plan_port *in, *out;
    QN_VEC(qn_val) aimed; /* values by port */
} qn_plan_body;

struct qn_plan_control {
    int n_bodies;
    qn_plan_body body[QN_PLAN_BODIES]; /* in the order of the op's attributes */
    int n_carry;
    uint64_t carry[2][QN_MAX_SRC]; /* offsets in the workspace */
    uint64_t body_bytes, bytes;    /* of the larger body; with the carries: the workspace */
    void *workspace;
};

/* Fills s->control, and the schedule's scratch with what it needs. */
qn_status qn_plan_control_create(qn_schedule *p, qn_plan_step *s, const qn_schedule_options *o, qn_error *error);
void qn_plan_control_destroy(qn_plan_control *c);
void qn_plan_control_point(qn_plan_control *c, void *scratch);
/* Everything in a port's memory lies at `data` from now on. */
void qn_plan_aim(const qn_plan_body *b, const qn_plan_port *port, void *data);
/* Frees those of the first n outputs from the arena that can be written where they go. */
void qn_plan_free_outputs(qn_schedule *p, int n);

#endif
