#!/usr/bin/env bash
# Whether all C is laid out as .clang-format says; with --fix, makes it so. Versions of
# clang-format disagree about the same file, so it is one of them, and where that is not here this says so and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
major=14 # Debian 12's

program=
for name in "clang-format-$major" clang-format; do
    if command -v "$name" >/dev/null && "$name" --version | grep -Eq "version $major\."; then
        program=$name
        break
    fi
done
if [ -z "$program" ]; then
    echo "skip: clang-format $major is not here"
    exit 77
fi
what=(--dry-run -Werror)
[ "${1:-}" = --fix ] && what=(-i)
find include src apps tests fuzz examples -name '*.[ch]' -print0 | xargs -0 -n 40 -P "$(nproc)" "$program" "${what[@]}"
