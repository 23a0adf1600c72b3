/* How many processors there are for this process: fewer than the machine's where it was given some of them, or some of their time. */
#ifndef QN_THREAD_CORES_H
#define QN_THREAD_CORES_H

/* At least 1. More threads than that take turns, and a turn lasts longer than a round of parts. */
int qn_cores(void);

/* Of these, what the system lets it run on, whatever its share of their time: the one question that is asked in no time. 0: not known. */
int qn_cores_allowed(void);

/* Of a control group's "QUOTA PERIOD": the processors that this much time is, begun ones counted; 0: as many as there are. */
int qn_cores_of_quota(const char *text);
/* The same of the control groups that the file `list` names, below `mount`. */
int qn_cores_granted(const char *list, const char *mount);

#endif
