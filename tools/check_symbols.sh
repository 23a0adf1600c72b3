#!/usr/bin/env bash
# What the libraries in a build folder (default build/) show and use:
#  - the shared library exports exactly the functions that the public headers mark QN_API;
#  - every global name in the static library starts with qn_;
#  - nothing can end the process or write to the terminal, only src/base allocates, and there is no writable global.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
shared=$build/libquern.so
static=$build/libquern.a
faults=0

complain() { # title, then the offending lines on stdin, if any
    local lines
    lines=$(cat)
    [ -z "$lines" ] && return
    echo "$1:"
    sed 's/^/    /' <<<"$lines"
    faults=1
}

for file in "$shared" "$static"; do
    [ -e "$file" ] || { echo "check_symbols: $file is not there; build first"; exit 1; }
done

exported=$(nm -D --defined-only "$shared" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
declared=$(find include/quern -name "*.h" ! -name page.h -exec cat {} + | tr "\n" " " | sed -E "s/QN_PRINTF\([^)]*\) //g" | grep -oE "QN_API [^;(]*\(" | grep -oE "qn_[a-z0-9_]+\($" | tr -d "(" | sort -u)
complain "exported but not QN_API in a public header" < <(comm -23 <(echo "$exported") <(echo "$declared"))
complain "QN_API in a public header but not exported" < <(comm -13 <(echo "$exported") <(echo "$declared"))

complain "global names without qn_ in $static" < <(nm -g --defined-only "$static" | awk 'NF == 3 && $3 !~ /^qn_/ { print $3 }')

# "folder member symbol" for everything the objects take from outside. File names are unique in src/, so a member names its folder.
imports=$(nm -A -u "$static" | awk '{ n = split($1, part, ":"); print part[n - 1] == "" ? part[n - 2] : part[n - 1], $NF }' |
    while read -r member symbol; do
        path=$(find src -name "${member%.o}" -print -quit)
        path=${path#src/}
        echo "${path%%/*} $member $symbol"
    done)
fatal='(abort|exit|_exit|_Exit|quick_exit|atexit|__assert_fail|raise|kill|signal|sigaction)'
terminal='(printf|vprintf|puts|putchar|putc|perror|fprintf|vfprintf|fputs|fputc|__printf_chk|__fprintf_chk|__vfprintf_chk|stdout|stderr)'
memory='(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup)'
complain "could end the process" < <(grep -E " $fatal$" <<<"$imports")
complain "could write to the terminal" < <(grep -E " $terminal$" <<<"$imports")
complain "allocates outside src/base" < <(grep -E " $memory$" <<<"$imports" | grep -v '^base ')

complain "writable globals" < <(objdump -t "$static" | grep -E '[[:space:]]O[[:space:]]+(\.data|\.bss|\.tdata|\.tbss|COMMON|\*COM\*)' |
    grep -vE '\.data\.rel\.ro' | awk '{ print $NF }')

[ "$faults" = 0 ] && echo "symbols: $(wc -l <<<"$exported") exported, all from the public headers; no exits, prints, stray allocations or globals"
exit "$faults"
