#!/usr/bin/env bash
# Tests of what reads and writes numbers, under locales whose decimal point is a comma and two bytes: run.sh BUILD.
set -uo pipefail
[ $# = 1 ] || { echo "usage: run.sh BUILD" >&2; exit 2; }
build=$1
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc -shared -fPIC -o "$folder/other_locale.so" tests/locale/other_locale.c || exit 1

failed=0
for locale in de_DE ps_AF; do
    if ! localedef -i "$locale" -f UTF-8 "$folder/$locale.UTF-8" >/dev/null 2>&1; then
        echo "$locale cannot be made here"
        exit 1
    fi
    for test in convert gguf graph ir ir_bodies json_scan json_schema pass plan prof_num profile record record_read template \
        tokenizer trace_read trace_view; do
        if ! LOCPATH=$folder LC_ALL=$locale.UTF-8 LD_PRELOAD=$folder/other_locale.so "$build/tests/test_$test" >"$folder/log" 2>&1; then
            echo "$locale: test_$test failed"
            cat "$folder/log"
            failed=1
        fi
    done
done
exit $failed
