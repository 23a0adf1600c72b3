#!/usr/bin/env bash
# What each configure switch leaves out, in bytes: builds the library once per row, strips it and prints the table of docs/build.md.
# Usage: measure_sizes.sh [FOLDER [ROW]]: the builds are made and stay in the folder (default build/sizes); one row alone by its name.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/sizes}
only=${2:-}

row() { # title, then switches
    local title=$1 build switches
    shift
    [ -z "$only" ] || [ "$only" = "$title" ] || return 0
    switches=${*:+\`$*\`}
    build=$folder/with$(tr -c 'a-z0-9\n' - <<<"$*")
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DQUERN_TESTS=OFF "$@" >"$folder/log" 2>&1 &&
        cmake --build "$build" --target libquern.so >>"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; exit 1; }
    strip -o "$folder/stripped.so" "$build/libquern.so"
    printf '| %s | %s | %s |\n' "$title" "${switches:--}" "$(stat -c %s "$folder/stripped.so")"
}

mkdir -p "$folder"
printf '| what is built | switches | bytes |\n|---|---|---:|\n'
row "everything"
row "no Vulkan" -DQUERN_VULKAN=OFF
row "no models" -DQUERN_MODELS=OFF
row "no profiler" -DQUERN_PROFILER=OFF
row "kernels of this machine alone" -DQUERN_CPU_LEVELS=here
row "kernels for AVX2 alone" -DQUERN_CPU_LEVELS=avx2
row "no kernels" -DQUERN_CPU_LEVELS=none
row "the core, with kernels of this machine" -DQUERN_CPU_LEVELS=here -DQUERN_VULKAN=OFF -DQUERN_MODELS=OFF -DQUERN_PROFILER=OFF
row "the core" -DQUERN_CPU_LEVELS=none -DQUERN_VULKAN=OFF -DQUERN_MODELS=OFF -DQUERN_PROFILER=OFF
