/* Loaded before a program that knows nothing of it: puts it under the locale of its environment, as a host would. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void go_abroad(void) {
    if (setlocale(LC_ALL, "")) return;
    fputs("there is no such locale\n", stderr);
    _Exit(2);
}
