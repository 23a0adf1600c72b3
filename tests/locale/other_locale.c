/* Loaded before a program that knows nothing of it: puts it under the locale of its environment, as a host would, but for the
 * language of the system's sentences, which tests look at. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void go_abroad(void) {
    if (setlocale(LC_ALL, "") && setlocale(LC_MESSAGES, "C")) return;
    fputs("there is no such locale\n", stderr);
    _Exit(2);
}
