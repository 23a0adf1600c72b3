/* Templates that are small and would compute for hours: each loop over what a template can make long has to cost steps, whatever it
 * gives. Each one here ran outside the steps once. The bound is of seconds of computing, however busy the machine is, and wide enough for
 * checked builds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmocka_setup.h"
#include "quern/text.h"

enum { SECONDS = 20 };
static timer_t timer;

static void count_down(int seconds) { /* to a signal that ends the process; 0: no more */
    const struct itimerspec left = {.it_value = {seconds, 0}};
    assert_int_equal(timer_settime(timer, 0, &left, NULL), 0);
}

static qn_status drop(void *user, const char *text, size_t length) {
    (void)user, (void)text, (void)length;
    return QN_OK;
}

/* With the limits that everybody has; nothing of it may come to its end. */
static void ends_soon(const char *what, qn_text chat_template) {
    qn_error error = {QN_OK, ""};
    count_down(SECONDS);
    qn_status status = qn_chat_render(chat_template, (qn_text){"{}", 2}, NULL, drop, NULL, &error);
    count_down(0);
    if (status == QN_OK || !strstr(error.text, "more than 10000000 steps"))
        fail_msg("%s: status %d, '%s'", what, status, error.text);
}

#define MILLION(what) "{% set L = " what " %}{% for i in range(100000) %}{% set x = "
#define TIMES " %}{% endfor %}"

static void endless_chat_templates(void **state) {
    (void)state;
    static const char *const TEMPLATES[] = {
        /* the components of a path, however the path is used, and a path of one long component */
        "{% set x = (['a'] * 1000000)|map(attribute=('0.' * 5000) * 1000)|list %}",
        "{% set x = (['a'] * 1000000)|selectattr(('0.' * 5000) * 1000)|list %}",
        "{% set x = (['a'] * 1000000)|sum(('0.' * 5000) * 1000, '') %}",
        "{% set x = (['a'] * 1000000)|max(attribute=('0.' * 5000) * 1000) %}",
        "{% set x = (['a'] * 1000000)|map(attribute=('a' * 5000) * 1000)|list %}",
        /* lists of which nothing is kept */
        MILLION("range(1000000)") "L|sum" TIMES,
        MILLION("[0] * 1000000") "L|select" TIMES,
        MILLION("[1] * 1000000") "L|reject" TIMES,
        MILLION("[1] * 1000000") "L|select('none')" TIMES,
        MILLION("['a'] * 1000000") "L|rejectattr('0')" TIMES,
        MILLION("[''] * 1000000") "L|join" TIMES,
        MILLION("[''] * 1000000") "''.join(L)" TIMES,
        MILLION("['b'] * 1000000") "'abc'.startswith(L)" TIMES,
        MILLION("[1] * 1000000") "'abc'.endswith(L)" TIMES,
        /* sets of characters that stay below the 64 bytes of a step, and so did each character they were held against */
        "{% set a = ('a' * 1000) * 1000 %}{% set s = 'b' * 62 ~ 'a' %}{% for i in range(100000) %}{% set x = a.strip(s) %}{% "
        "endfor %}",
    };
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++)
        ends_soon(TEMPLATES[i], (qn_text){TEMPLATES[i], strlen(TEMPLATES[i])});
}

static char *big;
static size_t used;
enum { BIG = 4 << 20 };

static void put(const char *text, size_t times) {
    for (size_t n = strlen(text); times-- && used + n < BIG; used += n) memcpy(big + used, text, n);
}

static void run_big(const char *what) {
    ends_soon(what, (qn_text){big, used});
    used = 0;
}

/* What is long is the template itself: as many names as it has room for, in one place. */
static void endless_names(void **state) {
    (void)state;
    big = malloc(BIG);
    assert_non_null(big);
    put("{% set L = [1] * 100001 %}{% for i in range(1000000) %}{% set ", 1);
    put("a,", 100000);
    put("a = L %}{% endfor %}", 1);
    run_big("one name a hundred thousand times");
    put("{% macro m(", 1);
    put("a,", 100000);
    put("a) %}{% endmacro %}{% for i in range(1000000) %}{% set x = m() %}{% endfor %}", 1);
    run_big("one parameter a hundred thousand times");
#define LONG_NAME "a_name_of_just_below_sixty_four_letters_that_differs_late_"
    for (int i = 0; i < 120; i++) {
        put("{% for b in [1] %}", 1);
        for (int k = 0; k < 13; k++) {
            char set[100];
            snprintf(set, sizeof set, "{%% set " LONG_NAME "%02d = 1 %%}", k);
            put(set, 1);
        }
    }
    put("{% for i in range(1000000) %}", 1);
    put("{{ " LONG_NAME "zz }}", 10000);
    put("{% endfor %}", 121);
    run_big("many scopes of few names");
    free(big);
}

int main(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) != 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(endless_chat_templates), cmocka_unit_test(endless_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
