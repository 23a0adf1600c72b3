#!/usr/bin/env bash
# `make install` and `make uninstall`: nothing of the first is left by the second, and nothing else is gone. Usage: uninstall.sh BUILD
# where BUILD is a build folder that is built.
set -euo pipefail
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
mv "$build/installed.txt" "$work/kept" 2>/dev/null || true # whatever the builder has installed stays known
trap 'rm -f "$build/installed.txt"; mv "$work/kept" "$build/installed.txt" 2>/dev/null || true; rm -rf "$work"' EXIT

install() { DESTDIR=${2:-} cmake --install "$build" --prefix "$1" >"$work/log" || { cat "$work/log"; exit 1; }; }
uninstall() { DESTDIR=${2:-} "$root/tools/uninstall.sh" "$build" "$1" >"$work/log" 2>&1; }
fail() { echo "uninstall: $*"; tail -n 5 "$work/log"; exit 1; }

mkdir -p "$work/there/lib/pkgconfig" "$work/there/include"
touch "$work/there/lib/other.so"
(cd "$work/there" && find . | sort) >"$work/before"
install "$work/there"
[ -x "$work/there/bin/quern" ] || fail "bin/quern is not there after an installation"
install "$work/there" # a second time, when all folders are there
install "$work/deep er/new"
install /usr "$work/stage"
[ -x "$work/stage/usr/bin/quern" ] || fail "DESTDIR was not heard"

uninstall "$work/there" || fail "it failed"
grep -q "^removed: $work/there/bin/quern$" "$work/log" || fail "it does not say what it removes"
(cd "$work/there" && find . | sort) >"$work/after"
diff "$work/before" "$work/after" || fail "left or gone"
uninstall "$work/there" && fail "a second time, there is nothing, and it did not say so"
grep -q "nothing is known to be installed under $work/there" "$work/log" || fail "it does not say that there is nothing"
[ -x "$work/deep er/new/bin/quern" ] && [ -x "$work/stage/usr/bin/quern" ] || fail "another installation is gone"

touch "$work/deep er/new/include/quern/mine.h"
rm "$work/deep er/new/include/quern/quern.h"
uninstall "$work/deep er/new" || fail "it failed"
[ "$(cd "$work/deep er" && find . -type f)" = ./new/include/quern/mine.h ] || fail "a stranger's file is gone, or a file is left"
grep -q "was not there: .*/quern.h" "$work/log" || fail "it does not say what was not there"
uninstall /usr "$work/stage" || fail "it failed"
[ ! -e "$work/stage" ] || fail "$(find "$work/stage") is left"
echo "uninstall: all as it should be"
