#!/usr/bin/env bash
# Looks at an installed copy as its users would. Usage: check.sh files|header|pkgconfig|cmake|readme PREFIX
set -euo pipefail
what=$1
prefix=$(cd "$2" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings="-Wall -Wextra -Wpedantic -Werror"

pc=$(find "$prefix" -name quern.pc -print -quit)
[ -n "$pc" ] || { echo "no quern.pc under $prefix"; exit 1; }
export PKG_CONFIG_PATH=${pc%/*}
libdir=$(cd "$(pkg-config --variable=libdir quern)" && pwd)

with_shared() { LD_LIBRARY_PATH=$libdir "$@"; }

check_files() {
    for file in "$prefix/bin/quern" "$prefix/include/quern/quern.h" "$prefix/include/quern/ops.def" \
        "$libdir/libquern.so" "$libdir/libquern.a" "$libdir/cmake/Quern/QuernConfig.cmake" \
        "$prefix"/share/man/man1/quern.1* "$prefix/share/bash-completion/completions/quern"; do
        [ -e "$file" ] || { echo "not installed: $file"; return 1; }
    done
    version=$("$prefix/bin/quern" --version)
    grep -qF "$(pkg-config --modversion quern)" <<<"$version"
    readelf -d "$libdir/libquern.so" | grep -F "SONAME" | grep -F "[libquern.so.$(pkg-config --modversion quern | cut -d. -f1)]"
}

# Each header by itself, in every language that may include it, without a conversion that a user's flags would complain of.
check_header() {
    local header
    warnings="$warnings -Wconversion -Wsign-conversion -Wshadow -Wundef"
    for header in $(cd "$prefix/include" && echo quern/*.h); do
        echo "#include <$header>" >"$work/alone.c"
        cp "$work/alone.c" "$work/alone.cpp"
        for compiler in "gcc -std=c11 -Wstrict-prototypes" "clang -std=c11 -Wstrict-prototypes" "gcc -std=c2x"; do
            $compiler $warnings -I"$prefix/include" -fsyntax-only "$work/alone.c" || { echo "$compiler: $header"; return 1; }
        done
        for compiler in "g++ -std=c++11" "g++ -std=c++23" "clang++ -std=c++11" "clang++ -std=c++20"; do
            $compiler $warnings -I"$prefix/include" -fsyntax-only "$work/alone.cpp" || { echo "$compiler: $header"; return 1; }
        done
    done
    linked_from_cpp
}

# What C++ calls is what the library has: the names are C's.
linked_from_cpp() {
    printf '%s\n' '#include <quern/quern.h>' 'int main() { return qn_version()[0] ? 0 : 1; }' >"$work/linked.cpp"
    g++ -std=c++11 "$work/linked.cpp" -o "$work/linked" $(pkg-config --cflags --libs quern)
    with_shared "$work/linked"
}

check_pkgconfig() {
    cc -std=c11 $warnings "$here/outside.c" -o "$work/shared" $(pkg-config --cflags --libs quern)
    with_shared "$work/shared"
    readelf -d "$work/shared" | grep -F "libquern.so."
    cc -std=c11 $warnings -static "$here/outside.c" -o "$work/static" $(pkg-config --static --cflags --libs quern)
    "$work/static"
}

check_cmake() {
    cmake -G Ninja -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix"
    cmake --build "$work/build"
    "$work/build/outside_quern"
    "$work/build/outside_quern_static"
    readelf -d "$work/build/outside_quern" | grep -F "libquern.so."
    ! readelf -d "$work/build/outside_quern_static" | grep -F "libquern.so."
}

# The README's promise: its first C example compiles as it stands, runs, and prints the block of text behind it.
check_readme() {
    [ -f "$root/README.md" ] || { echo "there is no README.md"; return 1; }
    awk '/^```c[[:space:]]*$/ && !seen { on = seen = 1; next } /^```/ { on = 0 } on' "$root/README.md" >"$work/example.c"
    [ -s "$work/example.c" ] || { echo "README.md has no \`\`\`c block"; return 1; }
    cc -std=c11 $warnings "$work/example.c" -o "$work/example" $(pkg-config --cflags --libs quern)
    awk '/^```text[[:space:]]*$/ && !seen { on = seen = 1; next } /^```/ { on = 0 } on' "$root/README.md" >"$work/printed"
    [ -s "$work/printed" ] || { echo "README.md has no \`\`\`text block"; return 1; }
    with_shared "$work/example" | diff "$work/printed" -
}

"check_$what"
