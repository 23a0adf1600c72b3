#!/usr/bin/env bash
# The smallest library: no kernels, models, profiler or Vulkan. It is built, installed and used: the programs of check.sh, README's
# example, products, and every part that is left out, which must say so. Usage: small.sh, from anywhere; about a minute on two cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
most=2000000 # bytes of the stripped library; they were 1.5 million when this was written

cmake -S "$root" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DQUERN_TESTS=OFF \
    -DQUERN_CPU_LEVELS=none -DQUERN_VULKAN=OFF -DQUERN_MODELS=OFF -DQUERN_PROFILER=OFF
cmake --build "$work/build"
cmake --install "$work/build" --prefix "$prefix" >/dev/null

for what in files pkgconfig readme; do "$here/check.sh" "$what" "$prefix"; done
"$root/tools/check_symbols.sh" "$work/build"

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name quern.pc)")
libdir=$(cd "$(pkg-config --variable=libdir quern)" && pwd)
cc -std=c11 -Wall -Wextra -Wpedantic -Werror "$here/small.c" -o "$work/small" $(pkg-config --cflags --libs quern)
LD_LIBRARY_PATH=$libdir "$work/small"

says() { # exit code, a part of the only line on standard error, the command
    local code=$1 part=$2 rc=0
    shift 2
    "$prefix/bin/quern" "$@" >"$work/out" 2>"$work/err" </dev/null || rc=$?
    [ "$rc" = "$code" ] && grep -qF -- "$part" "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] && return
    echo "quern $*: exit code $rc, not $code: $(cat "$work/err")"
    exit 1
}
models="this build has no models: QUERN_MODELS is off"
for verb in run chat tokenize embed eval; do
    says 1 "quern $verb: $models" "$verb"
    "$prefix/bin/quern" "$verb" --help | grep -q "^usage: quern $verb"
done
says 1 "quern plan: $models" plan -m "$root/models/stories.gguf"
says 1 "quern bench: $models" bench -m "$root/models/stories.gguf"
says 1 "$models" train --example stories
says 1 "quern profile: this build has no profiler: QUERN_PROFILER is off" profile overview x
says 1 "this build has no Vulkan: QUERN_VULKAN is off" plan --example mnist --device vulkan
"$prefix/bin/quern" plan --example mnist >/dev/null
"$prefix/bin/quern" inspect "$root/models/stories.gguf" >/dev/null

strip -o "$work/stripped.so" "$libdir/libquern.so"
bytes=$(stat -c %s "$work/stripped.so")
[ "$bytes" -le "$most" ] || { echo "the stripped library has $bytes bytes, more than $most"; exit 1; }
echo "small: all as it should be, $bytes bytes stripped"
