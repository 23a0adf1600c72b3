#!/usr/bin/env bash
# Installs a build into a folder of its own and looks at it as its users would. Usage: tests/install/run.sh BUILD
set -euo pipefail
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage cmake --install "$1" --prefix /opt/quern >"$stage/log" || { cat "$stage/log"; exit 1; }
for what in files header pkgconfig cmake readme; do
    echo "== $what"
    tests/install/check.sh "$what" "$stage/opt/quern"
done
